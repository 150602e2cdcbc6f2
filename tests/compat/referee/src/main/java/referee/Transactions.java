package referee;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.GetMessageResult;

/**
 * A producer with transactions against a whole broker. The request:
 * {"config":{…},"group":…,"topic":…,"sends":[{"body":…,"keys":…,"say":SAY}],"answers":{BODY:SAY},
 * "checks":int,"checked":[BODY],"visible":int,"decided":[BODY],"halfOffset":int,"halt":bool}, SAY
 * being commit, rollback or unknown (also what is said when "answers" has no such body).
 *
 * <p>It ends once so many checks came, one of each of these bodies among them, so many messages of
 * the topic are there, the op records name
 * half messages with these bodies and the check service has passed so many.
 */
final class Transactions {
    private static final long PATIENCE_MS = 60_000;
    private static final String CHECK_GROUP = "CID_RMQ_SYS_TRANS";

    private final Broker broker;
    private final JsonObject request;
    private final BlockingQueue<JsonObject> checks = new LinkedBlockingQueue<>();

    private Transactions(Broker broker, JsonObject request) {
        this.broker = broker;
        this.request = request;
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        Broker broker = Broker.start(dir, request.getAsJsonObject("config"));
        Transactions run = new Transactions(broker, request);
        TransactionMQProducer producer = run.producer();
        producer.start();
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(producer);
        client.updateTopicRouteInfoFromNameServer(request.get("topic").getAsString());
        client.sendHeartbeatToAllBrokerWithLock(); // who is to be checked must be known
        for (JsonElement each : request.getAsJsonArray("sends")) {
            out.line(run.send(producer, each.getAsJsonObject()));
        }
        Set<String> unchecked = run.bodies("checked");
        for (int left = run.number("checks"); left > 0 || !unchecked.isEmpty(); left--) {
            JsonObject check = run.checks.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
            if (check == null) {
                throw new IllegalStateException(
                    left + " more checks were expected, and of " + unchecked);
            }
            unchecked.remove(check.get("body").getAsString());
            out.line(check);
        }
        run.await();
        for (JsonObject check = run.checks.poll(); check != null; check = run.checks.poll()) {
            out.line(check);
        }
        if (!request.has("halt") || !request.get("halt").getAsBoolean()) {
            broker.close();
        }
    }

    private TransactionMQProducer producer() {
        TransactionMQProducer producer =
            new TransactionMQProducer(request.get("group").getAsString());
        producer.setNamesrvAddr(broker.nameServer);
        producer.setInstanceName(broker.nameServer);
        producer.setSendMsgTimeout((int) PATIENCE_MS); // else 3 s
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object say) {
                return state((String) say);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                JsonObject answers = request.getAsJsonObject("answers");
                checks.add(check(message, body));
                return state(answers.has(body) ? answers.get(body).getAsString() : "unknown");
            }
        });
        return producer;
    }

    private static JsonObject check(MessageExt message, String body) {
        JsonObject line = new JsonObject();
        line.addProperty("t", "check");
        line.addProperty("body", body);
        line.addProperty("transactionId", message.getTransactionId());
        line.addProperty("times",
            message.getProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES));
        return line;
    }

    private JsonObject send(TransactionMQProducer producer, JsonObject one) throws Exception {
        Message message = new Message(request.get("topic").getAsString(), "paid",
            one.get("keys").getAsString(),
            one.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
        SendResult result =
            producer.sendMessageInTransaction(message, one.get("say").getAsString());
        JsonObject line = new JsonObject();
        line.addProperty("t", "sent");
        line.addProperty("status", result.getSendStatus().toString());
        line.addProperty("body", one.get("body").getAsString());
        line.addProperty("uniqKey", result.getMsgId());
        line.addProperty("queueId", result.getMessageQueue().getQueueId());
        line.addProperty("halfOffset", result.getQueueOffset());
        return line;
    }

    /** What a listener answers for a word of a script. */
    static LocalTransactionState state(String say) {
        switch (say) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private Set<String> bodies(String name) {
        Set<String> found = new HashSet<>();
        if (request.has(name)) {
            request.getAsJsonArray(name).forEach(each -> found.add(each.getAsString()));
        }
        return found;
    }

    private int number(String name) {
        return request.has(name) ? request.get(name).getAsInt() : 0;
    }

    /** A producer sends its decisions one way: until what is expected is there. */
    private void await() throws Exception {
        Set<String> expected = bodies("decided");
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (visible() < number("visible") || !decided().containsAll(expected)
            || passed() < number("halfOffset")) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("there are " + visible() + " messages, " + decided()
                    + " are decided, " + passed() + " half messages are passed");
            }
            Thread.sleep(10);
        }
    }

    private long visible() throws Exception {
        String topic = request.get("topic").getAsString();
        long count = 0;
        for (int queue = 0; queue < 16; queue++) {
            count += Math.max(0, broker.real.getMessageStore().getMaxOffsetInQueue(topic, queue));
        }
        return count;
    }

    private long passed() {
        return Math.max(0, broker.real.getConsumerOffsetManager()
            .queryOffset(CHECK_GROUP, TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC, 0));
    }

    /**
     * The bodies of the half messages that op records name. A check makes a copy of its half message;
     * of those that checks decide, the newest copy must be named. 4.9 writes an op record for each
     * half message, 5.x one for all of some seconds.
     */
    private Set<String> decided() throws Exception {
        Set<Long> named = new HashSet<>();
        for (long offset = 0; offset < end(TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC); offset++) {
            for (String half : body(TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC, offset).split(",")) {
                if (!half.isEmpty()) {
                    named.add(Long.parseLong(half));
                }
            }
        }
        Set<String> found = new HashSet<>();
        for (long offset = 0; offset < end(TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC); offset++) {
            String body = body(TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC, offset);
            if (named.contains(offset)) {
                found.add(body);
            } else if (request.getAsJsonObject("answers").has(body)) {
                found.remove(body);
            }
        }
        return found;
    }

    private long end(String topic) throws Exception {
        return broker.real.getMessageStore().getMaxOffsetInQueue(topic, 0);
    }

    /** The body of a message of queue 0; empty where there is none. */
    private String body(String topic, long offset) {
        GetMessageResult found =
            broker.real.getMessageStore().getMessage(CHECK_GROUP, topic, 0, offset, 1, null);
        try {
            return found.getMessageBufferList().stream()
                .map(each -> MessageDecoder.decode(each.duplicate()))
                .map(each -> new String(each.getBody(), StandardCharsets.UTF_8))
                .collect(Collectors.joining());
        } finally {
            found.release();
        }
    }
}
