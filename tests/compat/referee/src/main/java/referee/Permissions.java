package referee;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.file.Path;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls from queue 0 of topics at a whole broker, each by a group:
 * {"config":{…},"pulls":[{"group":…,"topic":…}]}. The code of each reply; 0 for one that is served.
 */
final class Permissions {
    private Permissions() {
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        Broker broker = Broker.start(dir, request.getAsJsonObject("config"));
        for (JsonElement each : request.getAsJsonArray("pulls")) {
            JsonObject pull = each.getAsJsonObject();
            JsonObject line = new JsonObject();
            line.addProperty("t", "pulled");
            line.addProperty("group", pull.get("group").getAsString());
            line.addProperty("topic", pull.get("topic").getAsString());
            line.addProperty("code", code(broker, pull));
            out.line(line);
        }
        broker.close();
    }

    private static int code(Broker broker, JsonObject pull) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(pull.get("group").getAsString());
        consumer.setNamesrvAddr(broker.nameServer);
        consumer.setInstanceName(pull.toString());
        consumer.start();
        String topic = pull.get("topic").getAsString();
        String name = broker.real.getBrokerConfig().getBrokerName();
        try {
            consumer.pull(new MessageQueue(topic, name, 0), "*", 0, 1);
            return 0;
        } catch (MQBrokerException refused) {
            return refused.getResponseCode();
        } finally {
            consumer.shutdown();
        }
    }
}
