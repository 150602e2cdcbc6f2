package peer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.topic.TopicValidator;

/**
 * Producers with transactions against a broker: one with a thread of its own for each client, whose
 * local transaction commits at once. It sends its decision one way, so a round ends when all messages
 * are in their queues.
 */
final class Transactions {
    private static final long PATIENCE_NS = 60_000_000_000L;
    private static final TransactionListener COMMITS = new TransactionListener() {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    };

    private Transactions() {
    }

    static Map<String, Double> run(Request request) throws Exception {
        int clients = request.number("clients");
        int count = request.number("transactions");
        List<TransactionMQProducer> producers = new ArrayList<>();
        ExecutorService pool = Executors.newFixedThreadPool(clients);
        try {
            for (int i = 0; i < clients; i++) {
                producers.add(start(request, i));
            }
            long before = visible(producers.get(0));
            sendAll(request, producers, pool, 1); // connects
            before = await(producers.get(0), before + clients);
            ProcessHandle broker = ProcessHandle.of(request.number("broker")).orElseThrow();
            long cpu = Cpu.nanos();
            Duration brokerCpu = cpuOf(broker);
            long began = System.nanoTime();
            long[] latencies = sendAll(request, producers, pool, count);
            await(producers.get(0), before + latencies.length);
            double seconds = (System.nanoTime() - began) / 1e9;
            Duration cost = cpuOf(broker).minus(brokerCpu);
            Map<String, Double> figures = new HashMap<>();
            figures.put("server", cost.toNanos() / 1e3 / latencies.length);
            figures.put("rate", latencies.length / seconds);
            figures.put("client", Cpu.cost(cpu, latencies.length));
            Latencies.put(figures, latencies);
            return figures;
        } finally {
            pool.shutdown();
            producers.forEach(TransactionMQProducer::shutdown);
        }
    }

    private static Duration cpuOf(ProcessHandle process) {
        return process.info().totalCpuDuration().orElseThrow();
    }

    private static TransactionMQProducer start(Request request, int number) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("bench");
        producer.setNamesrvAddr("127.0.0.1:" + request.number("names"));
        producer.setInstanceName("client-" + number);
        producer.setTransactionListener(COMMITS);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        // The topic is made by its first message: until then only this one leads to the broker.
        MQClientManager.getInstance().getOrCreateMQClientInstance(producer)
            .updateTopicRouteInfoFromNameServer(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC);
        return producer;
    }

    private static long[] sendAll(Request request, List<TransactionMQProducer> producers,
        ExecutorService pool, int count) throws Exception {
        List<Callable<long[]>> workers = new ArrayList<>();
        for (TransactionMQProducer producer : producers) {
            byte[] body = Workload.body(request.number("body"));
            workers.add(() -> Latencies.time(count, i -> send(producer, i, body)));
        }
        long[] all = new long[producers.size() * count];
        int position = 0;
        for (Future<long[]> worker : pool.invokeAll(workers)) {
            System.arraycopy(worker.get(), 0, all, position, count);
            position += count;
        }
        return all;
    }

    private static void send(TransactionMQProducer producer, int number, byte[] body)
        throws Exception {
        Message message = new Message(Workload.TOPIC, "paid", "order-" + number, body);
        SendResult result = producer.sendMessageInTransaction(message, null);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("send: " + result.getSendStatus());
        }
    }

    private static long await(TransactionMQProducer producer, long wanted) throws Exception {
        long began = System.nanoTime();
        for (long found = visible(producer); found != wanted; found = visible(producer)) {
            if (System.nanoTime() - began > PATIENCE_NS) {
                throw new IllegalStateException(found + " messages are there, not " + wanted);
            }
            Thread.sleep(1);
        }
        return wanted;
    }

    private static long visible(TransactionMQProducer producer) throws Exception {
        long count = 0;
        for (int queue = 0; queue < Workload.QUEUES; queue++) {
            count += producer.maxOffset(new MessageQueue(Workload.TOPIC, Broker.NAME, queue));
        }
        return count;
    }
}
