package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.body.SetMessageRequestModeRequestBody;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.statictopic.LogicQueueMappingItem;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingDetail;
import org.apache.rocketmq.remoting.protocol.subscription.GroupRetryPolicyType;
import org.apache.rocketmq.remoting.protocol.subscription.SimpleSubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** What a broker has or lacks of the states of a store: RocketMQ 5. */
final class Features {
    private static final int POP_MESSAGES = 32;

    private Features() {
    }

    static BrokerController newBroker(Settings settings, NettyServerConfig server,
        NettyClientConfig client) {
        AuthConfig auth = null;
        if (!settings.users.isEmpty()) {
            auth = new AuthConfig();
            auth.setAuthConfigPath(settings.store.getStorePathRootDir() + "/config");
            MixAll.properties2Object(settings.users, auth);
        }
        return new BrokerController(settings.broker, server, client, settings.store, auth);
    }

    /** A controller of one member, for a broker with enableControllerMode. */
    static void startController(Settings settings) {
        if (!settings.broker.isEnableControllerMode()) {
            return;
        }
        NettyServerConfig server = Broker.server(Broker.freePort());
        ControllerConfig config = new ControllerConfig();
        config.setControllerDLegerGroup("controllers");
        config.setControllerDLegerPeers("n0-127.0.0.1:" + Broker.freePort());
        config.setControllerDLegerSelfId("n0");
        config.setMappedFileSize(1 << 20);
        ControllerManager controller =
            new ControllerManager(config, server, new NettyClientConfig());
        controller.initialize();
        controller.start();
        settings.broker.setControllerAddr("127.0.0.1:" + server.getListenPort());
    }

    static void setAttributes(TopicConfig topic, JsonObject attributes) {
        Map<String, String> added = new HashMap<>();
        attributes.entrySet().forEach(
            each -> added.put("+" + each.getKey(), each.getValue().getAsString()));
        topic.setAttributes(added);
    }

    /**
     * Pops until it has seen the bodies, or so many rounds, and acknowledges some of what it gets;
     * "order" holds the queues of what is not acknowledged.
     */
    static JsonArray pop(Broker broker, DefaultMQProducer producer, JsonObject command,
        long patienceMs) throws Exception {
        MQClientAPIImpl api = MQClientManager.getInstance().getOrCreateMQClientInstance(producer)
            .getMQClientAPIImpl();
        String address = broker.real.getBrokerAddr();
        String group = command.get("group").getAsString();
        Set<String> missing = new HashSet<>(States.texts(command, "bodies"));
        Set<String> acknowledged = new HashSet<>(States.texts(command, "ack"));
        JsonArray seen = new JsonArray();
        long deadline = System.currentTimeMillis() + patienceMs;
        int rounds = command.has("rounds") ? command.get("rounds").getAsInt() : Integer.MAX_VALUE;
        while (!missing.isEmpty() && rounds-- > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no " + missing + " after " + seen.size() + " deliveries");
            }
            for (MessageExt message : pop(api, address, broker, command)) {
                String body = States.body(message);
                missing.remove(body);
                seen.add(body);
                if (acknowledged.contains(body)) {
                    acknowledge(api, address, group, message);
                }
            }
        }
        return seen;
    }

    private static List<MessageExt> pop(MQClientAPIImpl api, String address, Broker broker,
        JsonObject command) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(command.get("group").getAsString());
        header.setTopic(command.get("topic").getAsString());
        header.setQueueId(-1);
        header.setMaxMsgNums(POP_MESSAGES);
        header.setInvisibleTime(command.get("invisibleMs").getAsLong());
        header.setPollTime(200);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        header.setOrder(command.has("order"));
        CompletableFuture<PopResult> answer = new CompletableFuture<>();
        api.popMessageAsync(broker.real.getBrokerConfig().getBrokerName(), address, header, 30_000,
            new PopCallback() {
                @Override
                public void onSuccess(PopResult result) {
                    answer.complete(result);
                }

                @Override
                public void onException(Throwable failure) {
                    answer.completeExceptionally(failure);
                }
            });
        List<MessageExt> found = answer.get(40, TimeUnit.SECONDS).getMsgFoundList();
        return found == null ? List.of() : found;
    }

    private static void acknowledge(MQClientAPIImpl api, String address, String group,
        MessageExt message) throws Exception {
        String taken = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(taken);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, message.getTopic(), group));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setConsumerGroup(group);
        header.setExtraInfo(taken);
        CompletableFuture<AckResult> answer = new CompletableFuture<>();
        api.ackMessageAsync(address, 30_000, new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                answer.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                answer.completeExceptionally(failure);
            }
        }, header);
        if (answer.get(40, TimeUnit.SECONDS).getStatus() != AckStatus.OK) {
            throw new IllegalStateException("not acknowledged: " + message);
        }
    }

    static void make(BrokerController broker, JsonObject command) throws Exception {
        switch (command.get("what").getAsString()) {
            case "broker-properties": // a setting is changed while the broker runs
                Properties changed = new Properties();
                changed.setProperty("fileReservedTime", "71");
                broker.getConfiguration().update(changed);
                break;
            case "static-topic":
                mapQueues(broker, command.get("topic").getAsString());
                break;
            case "static-topic-deleted":
                mapQueues(broker, command.get("topic").getAsString());
                broker.getTopicQueueMappingManager().delete(command.get("topic").getAsString());
                break;
            case "topic-deleted":
                String deleted = command.get("topic").getAsString();
                broker.getTopicConfigManager().deleteTopicConfig(deleted);
                broker.getMessageStore().deleteTopics(Set.of(deleted));
                break;
            case "request-mode":
                SetMessageRequestModeRequestBody mode = new SetMessageRequestModeRequestBody();
                mode.setTopic(command.get("topic").getAsString());
                mode.setConsumerGroup(command.get("group").getAsString());
                mode.setMode(MessageRequestMode.POP);
                var modes = broker.getQueryAssignmentProcessor().getMessageRequestModeManager();
                modes.setMessageRequestMode(mode.getTopic(), mode.getConsumerGroup(), mode);
                modes.persist();
                modes.persist(); // and its .bak
                break;
            case "static-subscription":
                var groups = broker.getSubscriptionGroupManager();
                var group = groups.findSubscriptionGroupConfig(command.get("group").getAsString());
                Set<SimpleSubscriptionData> subscriptions = ConcurrentHashMap.newKeySet();
                subscriptions.add(new SimpleSubscriptionData(
                    command.get("topic").getAsString(), "TAG", "*", 1));
                group.setSubscriptionDataSet(subscriptions);
                groups.updateSubscriptionGroupConfig(group);
                break;
            case "group-policies":
                SubscriptionGroupConfig config = new SubscriptionGroupConfig();
                config.setGroupName(command.get("group").getAsString());
                config.getGroupRetryPolicy().setType(GroupRetryPolicyType.EXPONENTIAL);
                config.setRetryQueueNums(0);
                config.setAttributes(Map.of("+priority.factor", "50"));
                broker.getSubscriptionGroupManager().updateSubscriptionGroupConfig(config);
                break;
            case "user":
                broker.getAuthenticationMetadataManager().createUser(User.of("u", "secret")).get();
                break;
            default:
                throw new IllegalArgumentException("5.x makes no " + command);
        }
    }

    /** Queue 0 of the topic is queue 0 of this broker, at 1000 above its offsets. */
    private static void mapQueues(BrokerController broker, String topic) throws Exception {
        String name = broker.getBrokerConfig().getBrokerName();
        TopicQueueMappingDetail detail = new TopicQueueMappingDetail(topic, 1, name, 1);
        List<LogicQueueMappingItem> items = new ArrayList<>();
        items.add(new LogicQueueMappingItem(0, 0, name, 1000, 0, -1, -1, -1));
        detail.getHostedQueues().put(0, items);
        broker.getTopicQueueMappingManager().updateTopicQueueMapping(detail, false, false, true);
    }
}
