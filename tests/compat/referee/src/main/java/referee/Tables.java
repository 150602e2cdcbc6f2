package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.ConfigManager;

/** config/*.json through RocketMQ's own managers; that of filters expects 64 subscriptions. */
final class Tables {
    private Tables() {
    }

    static void recode(String file, String text, Output out) {
        ConfigManager manager = managerOf(file);
        manager.decode(text);
        print(manager, out);
    }

    /** {"group":…,"topic":…,"expression":…,"version":…} each. */
    static void subscribe(JsonArray requests, Output out) {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        for (JsonElement each : requests) {
            JsonObject one = each.getAsJsonObject();
            manager.register(one.get("topic").getAsString(), one.get("group").getAsString(),
                one.get("expression").getAsString(), "SQL92", one.get("version").getAsLong());
        }
        print(manager, out);
    }

    private static ConfigManager managerOf(String file) {
        switch (file) {
            case "topics.json":
                return new TopicConfigManager();
            case "subscriptionGroup.json":
                return new SubscriptionGroupManager();
            case "consumerOffset.json":
                return new ConsumerOffsetManager();
            case "consumerFilter.json":
                return new ConsumerFilterManager();
            default:
                throw new IllegalArgumentException("no manager of " + file);
        }
    }

    private static void print(ConfigManager manager, Output out) {
        JsonObject line = new JsonObject();
        line.addProperty("t", "table");
        line.addProperty("text", manager.encode(true));
        out.line(line);
    }
}
