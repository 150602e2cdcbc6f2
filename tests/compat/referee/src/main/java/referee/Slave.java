package referee;

import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.store.MessageStore;

/**
 * A whole broker that copies its master: {"config":{"brokerRole":"SLAVE","brokerId":1,…}}. Commands
 * come on stdin, one a line, and each has one line as answer; the end of stdin closes the broker.
 *
 * <pre>
 * OFFSET   answers once the log ends there or later and all of it is in the queues
 * tables   registers and copies the master's tables at once, as SlaveSynchronize does in its turn
 * </pre>
 */
final class Slave {
    private static final long PATIENCE_MS = 60_000;

    private final BrokerController real;

    private Slave(BrokerController real) {
        this.real = real;
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        Broker broker = Broker.startAlone(dir, request.getAsJsonObject("config"));
        Slave slave = new Slave(broker.real);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.line(line.equals("tables") ? slave.tables() : slave.reach(Long.parseLong(line)));
            out.flush();
        }
        broker.close();
    }

    private JsonObject reach(long offset) throws Exception {
        MessageStore store = real.getMessageStore();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (store.getMaxPhyOffset() < offset || store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the log ends at " + store.getMaxPhyOffset());
            }
            Thread.sleep(10);
        }
        JsonObject line = new JsonObject();
        line.addProperty("t", "reached");
        line.addProperty("offset", store.getMaxPhyOffset());
        return line;
    }

    private JsonObject tables() {
        real.registerBrokerAll(true, false, true); // else at its next turn, in 30 s
        real.getSlaveSynchronize().syncAll();
        JsonObject line = new JsonObject();
        line.addProperty("t", "tables");
        line.addProperty("topics", real.getTopicConfigManager().encode());
        line.addProperty("groups", real.getSubscriptionGroupManager().encode());
        line.addProperty("offsets", real.getConsumerOffsetManager().encode());
        return line;
    }
}
