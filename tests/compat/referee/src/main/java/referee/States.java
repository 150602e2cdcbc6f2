package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageStore;

/**
 * A whole broker that is brought into states, and its clients: {"config":{…}}. Its first line says that it
 * has started, with its address and
 * that of its name server. Commands come on stdin, JSON, one a line, and each has one line as answer; the end of
 * stdin shuts the broker down as BrokerStartup does.
 *
 * <pre>
 * topic     name, queues, multiTag, attributes{}   makes a topic
 * send      topic, bodies[], queue, tag, level, delayMs, properties{}, batch
 * transact  topic, sends{BODY: commit|rollback|unknown}, visible: messages of the topic afterwards,
 *           awaitDecisions: false where they are in RocksDB
 * pull      group, topic, count              reads and commits so many of each queue
 * push      group, topic, bodies[], fails[], filter   a push consumer, until it is past its topics
 * pop       group, topic, bodies[], ack[], invisibleMs, order, rounds   pops so often, or until it has seen
 *                                    the bodies
 * make      what: see Features.make of the version
 * </pre>
 */
final class States {
    private static final long PATIENCE_MS = 120_000;
    private static final int QUEUES = 16;

    private final Broker broker;
    private final TransactionMQProducer producer;
    private final Map<String, String> said = new ConcurrentHashMap<>();

    private States(Broker broker) throws Exception {
        this.broker = broker;
        producer = new TransactionMQProducer("states");
        producer.setNamesrvAddr(broker.nameServer);
        producer.setSendMsgTimeout((int) PATIENCE_MS); // else 3 s
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object say) {
                return Transactions.state((String) say);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return Transactions.state(said.getOrDefault(body(message), "unknown"));
            }
        });
        producer.start();
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "200"); // else 20 s
        Broker broker = Broker.start(dir, request.getAsJsonObject("config"));
        States states = new States(broker);
        JsonObject started = line("started");
        started.addProperty("address", broker.real.getBrokerAddr());
        started.addProperty("nameServer", broker.nameServer);
        out.line(started);
        out.flush();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            JsonObject answer = line("done");
            states.answer(JsonParser.parseString(text).getAsJsonObject(), answer);
            out.line(answer);
            out.flush();
        }
        broker.shutdown();
    }

    private void answer(JsonObject command, JsonObject answer) throws Exception {
        switch (command.get("do").getAsString()) {
            case "topic":
                topic(command);
                break;
            case "send":
                send(command);
                break;
            case "transact":
                transact(command);
                break;
            case "pull":
                answer.add("consumed", pull(command));
                break;
            case "push":
                answer.add("consumed", push(command));
                break;
            case "pop":
                answer.add("consumed", Features.pop(broker, producer, command, PATIENCE_MS));
                break;
            case "make":
                Features.make(broker.real, command);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    private void topic(JsonObject command) {
        TopicConfig topic = new TopicConfig(command.get("name").getAsString());
        topic.setReadQueueNums(command.get("queues").getAsInt());
        topic.setWriteQueueNums(command.get("queues").getAsInt());
        if (command.has("multiTag")) {
            topic.setTopicFilterType(TopicFilterType.MULTI_TAG);
        }
        if (command.has("attributes")) {
            Features.setAttributes(topic, command.getAsJsonObject("attributes"));
        }
        broker.real.getTopicConfigManager().updateTopicConfig(topic);
        broker.real.registerBrokerAll(true, false, true);
    }

    private void send(JsonObject command) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (JsonElement body : command.getAsJsonArray("bodies")) {
            messages.add(message(command, body.getAsString()));
        }
        MessageQueue queue = command.has("queue")
            ? new MessageQueue(command.get("topic").getAsString(),
                broker.real.getBrokerConfig().getBrokerName(), command.get("queue").getAsInt())
            : null;
        if (command.has("batch")) {
            producer.send(messages, queue);
            return;
        }
        for (Message message : messages) {
            if (queue == null) {
                producer.send(message);
            } else {
                producer.send(message, queue);
            }
        }
    }

    private static Message message(JsonObject command, String body) {
        String tag = command.has("tag") ? command.get("tag").getAsString() : "";
        Message message = new Message(command.get("topic").getAsString(), tag, "key-" + body,
            body.getBytes(StandardCharsets.UTF_8));
        if (command.has("level")) {
            message.setDelayTimeLevel(command.get("level").getAsInt());
        }
        if (command.has("delayMs")) {
            Api.delayBy(message, command.get("delayMs").getAsLong());
        }
        if (command.has("properties")) {
            for (var each : command.getAsJsonObject("properties").entrySet()) {
                MessageAccessor.putProperty(message, each.getKey(), each.getValue().getAsString());
            }
        }
        return message;
    }

    private void transact(JsonObject command) throws Exception {
        for (var each : command.getAsJsonObject("sends").entrySet()) {
            String say = each.getValue().getAsString();
            said.put(each.getKey(), say);
            producer.sendMessageInTransaction(message(command, each.getKey()), say);
        }
        String topic = command.get("topic").getAsString();
        await("commits", () -> count(topic) >= command.get("visible").getAsLong());
        if (command.has("awaitDecisions")) {
            return; // they are in RocksDB
        }
        long decided = said.values().stream().filter(each -> !each.equals("unknown")).count();
        await("decisions in the log", () -> decisions() >= decided);
    }

    /** The half messages that op records name; 5.x writes one record for those of some time. */
    private long decisions() throws Exception {
        String topic = TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC;
        long count = 0;
        for (long offset = 0; offset < end(topic, 0); offset++) {
            GetMessageResult found =
                broker.real.getMessageStore().getMessage("here", topic, 0, offset, 1, null);
            for (ByteBuffer each : found.getMessageBufferList()) {
                count += body(MessageDecoder.decode(each.duplicate())).split(",").length;
            }
            found.release();
        }
        return count;
    }

    /** As PullMessageProcessor reads, and commits, for a consumer that pulls. */
    private JsonArray pull(JsonObject command) {
        String group = command.get("group").getAsString();
        String topic = command.get("topic").getAsString();
        int count = command.get("count").getAsInt();
        JsonArray found = new JsonArray();
        var offsets = broker.real.getConsumerOffsetManager();
        broker.real.getSubscriptionGroupManager().findSubscriptionGroupConfig(group);
        for (int queue = 0; queue < QUEUES; queue++) {
            long next = Math.max(0, offsets.queryOffset(group, topic, queue));
            int left = count;
            while (left > 0) {
                GetMessageResult result =
                    broker.real.getMessageStore().getMessage(group, topic, queue, next, left, null);
                if (result == null || result.getStatus() != GetMessageStatus.FOUND) {
                    break;
                }
                result.getMessageBufferList().forEach(
                    each -> found.add(body(MessageDecoder.decode(each.duplicate()))));
                left -= result.getMessageCount();
                next = result.getNextBeginOffset();
                result.release();
                offsets.commitOffset("here", group, topic, queue, next);
            }
        }
        return found;
    }

    private JsonArray push(JsonObject command) throws Exception {
        String group = command.get("group").getAsString();
        String topic = command.get("topic").getAsString();
        Set<String> fails = ConcurrentHashMap.newKeySet();
        texts(command, "fails").forEach(fails::add);
        List<String> wanted = texts(command, "bodies");
        Queue<String> consumed = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(broker.nameServer);
        consumer.setInstanceName(group);
        consumer.setPollNameServerInterval(100);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (command.has("filter")) {
            consumer.subscribe(topic, MessageSelector.bySql(command.get("filter").getAsString()));
        } else {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            String body = body(messages.get(0));
            consumed.add(body);
            return fails.remove(body)
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await("messages of " + wanted + ": " + consumed, () -> consumed.containsAll(wanted));
        await("offsets", () -> {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset(); // else after 10 s
            return isPast(group, topic) && isPast(group, "%RETRY%" + group);
        });
        consumer.shutdown();
        JsonArray found = new JsonArray();
        consumed.forEach(found::add);
        return found;
    }

    private boolean isPast(String group, String topic) throws Exception {
        for (int queue = 0; queue < QUEUES; queue++) {
            long known = broker.real.getConsumerOffsetManager().queryOffset(group, topic, queue);
            if (Math.max(0, known) < end(topic, queue)) {
                return false;
            }
        }
        return true;
    }

    private long count(String topic) throws Exception {
        long count = 0;
        for (int queue = 0; queue < QUEUES; queue++) {
            count += end(topic, queue);
        }
        return count;
    }

    private long end(String topic, int queue) throws Exception {
        MessageStore store = broker.real.getMessageStore();
        return Math.max(0, store.getMaxOffsetInQueue(topic, queue));
    }

    static List<String> texts(JsonObject command, String name) {
        List<String> found = new ArrayList<>();
        if (command.has(name)) {
            command.getAsJsonArray(name).forEach(each -> found.add(each.getAsString()));
        }
        return found;
    }

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(String what, Condition condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("too few " + what);
            }
            Thread.sleep(10);
        }
    }

    private static JsonObject line(String type) {
        JsonObject line = new JsonObject();
        line.addProperty("t", type);
        return line;
    }
}
