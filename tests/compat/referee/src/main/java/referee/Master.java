package referee;

import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.store.MessageStore;

/**
 * A whole broker whose log is copied: {"config":{"haListenPort":…,…}}. Its first line says where it
 * listens. Commands come on stdin, one a line, and each has one line as answer; the end of stdin
 * closes the broker.
 *
 * <pre>
 * FIRST COUNT   sends so many messages of topic orders, numbered from FIRST; the log's end
 * tables        commits an offset of group g; all tables that a slave copies
 * </pre>
 */
final class Master {
    private static final long PATIENCE_MS = 60_000;
    private static final String TOPIC = "orders";
    private static final String GROUP = "g";

    private final BrokerController real;
    private final DefaultMQProducer producer;

    private Master(Broker broker) throws Exception {
        real = broker.real;
        producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(broker.nameServer);
        producer.start();
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        Broker broker = Broker.start(dir, request.getAsJsonObject("config"));
        Master master = new Master(broker);
        JsonObject started = line("started");
        started.addProperty("address", broker.real.getBrokerAddr());
        out.line(started);
        out.flush();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.line(line.equals("tables") ? master.tables() : master.send(line.split(" ")));
            out.flush();
        }
        broker.close();
    }

    private JsonObject send(String[] command) throws Exception {
        int first = Integer.parseInt(command[0]);
        int end = first + Integer.parseInt(command[1]);
        for (int number = first; number < end; number++) {
            byte[] body = ("body " + number + " ").repeat(1 + number % 97)
                .getBytes(StandardCharsets.UTF_8);
            Message message = new Message(TOPIC, "tag" + number % 3, "key" + number, body);
            SendResult result = producer.send(message);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException(number + " is " + result.getSendStatus());
            }
        }
        MessageStore store = real.getMessageStore();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the log is not dispatched");
            }
            Thread.sleep(10);
        }
        JsonObject line = line("sent");
        line.addProperty("offset", store.getMaxPhyOffset());
        return line;
    }

    private JsonObject tables() {
        // made by itself, and of a class that has another package in 5.x
        var group = real.getSubscriptionGroupManager().findSubscriptionGroupConfig(GROUP);
        group.setRetryMaxTimes(3);
        real.getSubscriptionGroupManager().updateSubscriptionGroupConfig(group);
        real.getConsumerOffsetManager().commitOffset("here", GROUP, TOPIC, 0, 1);
        JsonObject line = line("tables");
        line.addProperty("topics", real.getTopicConfigManager().encode());
        line.addProperty("groups", real.getSubscriptionGroupManager().encode());
        line.addProperty("offsets", real.getConsumerOffsetManager().encode());
        return line;
    }

    private static JsonObject line(String type) {
        JsonObject line = new JsonObject();
        line.addProperty("t", type);
        return line;
    }
}
