package referee;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.MessageStore;

/**
 * A group that sends messages back (RECONSUME_LATER) at a whole broker. The request:
 * {"config":{…},"group":…,"topic":…,"sends":[{"body":…,"keys":…}],"fails":{BODY:TIMES},
 * "tries":MAX_RECONSUME_TIMES,"consumed":int,"deadLetters":int}; with "orderly", a failed message holds
 * its queue.
 *
 * <p>Each consumption is reported as it comes. It ends once so many were made, so many messages are dead
 * letters, and the broker knows that the group is past all that is in its topics.
 */
final class Consumers {
    private static final long PATIENCE_MS = 60_000;

    private final Broker broker;
    private final JsonObject request;
    private final Queue<JsonObject> consumed = new ConcurrentLinkedQueue<>();
    private final Map<String, Integer> failures = new ConcurrentHashMap<>();

    private Consumers(Broker broker, JsonObject request) {
        this.broker = broker;
        this.request = request;
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "200"); // else 20 s
        Broker broker = Broker.start(dir, request.getAsJsonObject("config"));
        Consumers run = new Consumers(broker, request);
        DefaultMQProducer producer = new DefaultMQProducer(run.text("group") + "-producer");
        producer.setNamesrvAddr(broker.nameServer);
        producer.setInstanceName("producer");
        producer.setSendMsgTimeout((int) PATIENCE_MS); // else 3 s
        producer.start();
        for (JsonElement each : request.getAsJsonArray("sends")) {
            out.line(run.send(producer, each.getAsJsonObject()));
        }
        DefaultMQPushConsumer consumer = run.consumer();
        consumer.start();
        run.await("consumptions", () -> run.consumed.size() >= run.number("consumed"));
        run.await("dead letters",
            () -> run.end("%DLQ%" + run.text("group"), 0) >= run.number("deadLetters"));
        run.await("offsets", () -> {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset(); // else after 10 s
            return run.isPast(run.text("topic")) && run.isPast("%RETRY%" + run.text("group"));
        });
        consumer.shutdown();
        run.consumed.forEach(out::line);
        broker.close();
    }

    private JsonObject send(DefaultMQProducer producer, JsonObject one) throws Exception {
        String body = one.get("body").getAsString();
        SendResult result = producer.send(new Message(text("topic"), "paid",
            one.get("keys").getAsString(), body.getBytes(StandardCharsets.UTF_8)));
        JsonObject line = new JsonObject();
        line.addProperty("t", "sent");
        line.addProperty("body", body);
        line.addProperty("uniqKey", result.getMsgId());
        line.addProperty("offsetMsgId", result.getOffsetMsgId());
        return line;
    }

    private DefaultMQPushConsumer consumer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(text("group"));
        consumer.setNamesrvAddr(broker.nameServer);
        consumer.setInstanceName("consumer");
        consumer.setPollNameServerInterval(100); // the retry topic is there after a heartbeat
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(number("tries"));
        consumer.subscribe(text("topic"), "*");
        if (request.has("orderly")) {
            consumer.setSuspendCurrentQueueTimeMillis(10);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                consume(messages.get(0))
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                consume(messages.get(0))
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        return consumer;
    }

    /** One at a time, as consumeMessageBatchMaxSize is by default. */
    private boolean consume(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        JsonObject line = new JsonObject();
        line.addProperty("t", "consumed");
        line.addProperty("body", body);
        line.addProperty("topic", message.getTopic());
        line.addProperty("reconsumeTimes", message.getReconsumeTimes());
        line.addProperty("origin", message.getProperty(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID));
        consumed.add(line);
        JsonObject fails = request.getAsJsonObject("fails");
        int failed = failures.merge(body, 1, Integer::sum);
        return !fails.has(body) || failed > fails.get(body).getAsInt();
    }

    private boolean isPast(String topic) throws Exception {
        for (int queue = 0; queue < 16; queue++) {
            long known =
                broker.real.getConsumerOffsetManager().queryOffset(text("group"), topic, queue);
            if (Math.max(0, known) < end(topic, queue)) {
                return false;
            }
        }
        return true;
    }

    private long end(String topic, int queue) throws Exception {
        MessageStore store = broker.real.getMessageStore();
        return Math.max(0, store.getMaxOffsetInQueue(topic, queue));
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private void await(String what, Condition condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("too few " + what + ": " + consumed);
            }
            Thread.sleep(10);
        }
    }

    private String text(String name) {
        return request.get(name).getAsString();
    }

    private int number(String name) {
        return request.get(name).getAsInt();
    }
}
