package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** What a broker has or lacks of the states of a store: RocketMQ 4.9. */
final class Features {
    private Features() {
    }

    static BrokerController newBroker(Settings settings, NettyServerConfig server,
        NettyClientConfig client) {
        return new BrokerController(settings.broker, server, client, settings.store);
    }

    /** RocketMQ 4 has no controller. */
    static void startController(Settings settings) {
    }

    static void setAttributes(TopicConfig topic, JsonObject attributes) {
        throw new UnsupportedOperationException("4.9 has no attributes of topics");
    }

    static JsonArray pop(Broker broker, DefaultMQProducer producer, JsonObject command,
        long patienceMs) {
        throw new UnsupportedOperationException("4.9 has no POP");
    }

    static void make(BrokerController broker, JsonObject command) {
        switch (command.get("what").getAsString()) {
            case "broker-properties": // a setting is changed while the broker runs
                Properties changed = new Properties();
                changed.setProperty("fileReservedTime", "71");
                broker.getConfiguration().update(changed);
                break;
            case "group-policies":
                var groups = broker.getSubscriptionGroupManager();
                var group = groups.findSubscriptionGroupConfig(command.get("group").getAsString());
                group.setRetryQueueNums(0);
                groups.updateSubscriptionGroupConfig(group);
                break;
            default:
                throw new IllegalArgumentException("4.9 makes no " + command);
        }
    }
}
