package peer;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * A push consumer of a new group, against a broker with a backlog: its rate from the first message on,
 * what a message costs this JVM, and how many messages it consumed until it was shut down.
 */
final class PushConsumers {
    private static final long PATIENCE_S = 60;

    private final AtomicLong consumed = new AtomicLong();
    private final CountDownLatch first = new CountDownLatch(1);
    private final CountDownLatch last = new CountDownLatch(1);
    private final Request request;
    private long began;
    private long cpuAtFirst;

    private PushConsumers(Request request) {
        this.request = request;
    }

    static Map<String, Double> run(Request request) throws Exception {
        return new PushConsumers(request).run();
    }

    private Map<String, Double> run() throws Exception {
        DefaultMQPushConsumer consumer = consumer();
        consumer.start();
        double rate;
        double cost;
        try {
            if (!first.await(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no message came within " + PATIENCE_S + " s");
            }
            last.await(request.number("millis"), TimeUnit.MILLISECONDS);
            double count = consumed.get();
            rate = count / ((System.nanoTime() - began) / 1e9);
            cost = Cpu.cost(cpuAtFirst, count);
        } finally {
            consumer.shutdown();
        }
        return Map.of("rate", rate, "client", cost, "consumed", (double) consumed.get());
    }

    private DefaultMQPushConsumer consumer() throws Exception {
        String group = request.text("group");
        int threads = request.number("threads");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr("127.0.0.1:" + request.number("names"));
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(request.number("batch"));
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.subscribe(Workload.TOPIC, "*");
        int wanted = request.number("messages");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            begin();
            if (consumed.addAndGet(messages.size()) >= wanted) {
                last.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    /** The clocks at the first message; any thread may have it. */
    private synchronized void begin() {
        if (first.getCount() > 0) {
            began = System.nanoTime();
            cpuAtFirst = Cpu.nanos();
            first.countDown();
        }
    }
}
