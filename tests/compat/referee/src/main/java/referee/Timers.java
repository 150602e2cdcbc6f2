package referee;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.store.MessageStore;

/**
 * Messages with a delay in milliseconds at a whole broker. The request:
 * {"config":{…},"topic":…,"sends":[{"body":…,"delayMs":…}],"delivered":int,"halt":boolean}.
 *
 * <p>It ends once the topic has so many messages, and all sent ones that wait are in the wheel.
 */
final class Timers {
    private static final long PATIENCE_MS = 60_000;

    private Timers() {
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        Broker broker = Broker.start(dir, request.getAsJsonObject("config"));
        String topic = request.get("topic").getAsString();
        DefaultMQProducer producer = new DefaultMQProducer("timers");
        producer.setNamesrvAddr(broker.nameServer);
        producer.start();
        for (JsonElement each : request.getAsJsonArray("sends")) {
            JsonObject one = each.getAsJsonObject();
            Message message = new Message(topic, one.get("body").getAsString()
                .getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("number", one.get("body").getAsString());
            Api.delayBy(message, one.get("delayMs").getAsLong());
            producer.send(message, PATIENCE_MS);
        }
        MessageStore store = broker.real.getMessageStore();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (count(store, topic) < request.get("delivered").getAsLong()
            || !Api.isTimerSaved(broker.real)) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("delivered: " + count(store, topic));
            }
            Thread.sleep(10);
        }
        JsonObject line = new JsonObject();
        line.addProperty("t", "delivered");
        line.addProperty("count", count(store, topic));
        out.line(line);
        if (request.get("halt").getAsBoolean()) {
            Runtime.getRuntime().halt(0);
        }
        Api.closeTimer(broker.real);
        broker.close();
    }

    private static long count(MessageStore store, String topic) throws Exception {
        long count = 0;
        for (int queue = 0; queue < 16; queue++) {
            count += Math.max(0, store.getMaxOffsetInQueue(topic, queue));
        }
        return count;
    }
}
