package peer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.common.sysflag.PullSysFlag;

/**
 * RocketMQ's client pulls queues from a broker to their end: a connection and a thread each. What
 * comes is left as it is: the records as they stand in the log.
 */
final class Pulls {
    private static final long TIMEOUT_MS = 60_000;

    private Pulls() {
    }

    static Map<String, Double> run(Request request) throws Exception {
        int readers = request.number("readers");
        List<MQClientAPIImpl> clients = new ArrayList<>();
        ExecutorService pool = Executors.newFixedThreadPool(readers);
        try {
            for (int i = 0; i < readers; i++) {
                clients.add(Sends.connect());
            }
            pullAll(request, clients, pool, request.number("max")); // connects
            long began = System.nanoTime();
            List<Long> latencies = pullAll(request, clients, pool, request.number("end"));
            double seconds = (System.nanoTime() - began) / 1e9;
            Map<String, Double> figures = new HashMap<>();
            figures.put("rate", (double) readers * request.number("end") / seconds);
            Latencies.put(figures, latencies.stream().mapToLong(Long::longValue).toArray());
            return figures;
        } finally {
            pool.shutdown();
            clients.forEach(MQClientAPIImpl::shutdown);
        }
    }

    private static List<Long> pullAll(Request request, List<MQClientAPIImpl> clients,
        ExecutorService pool, long end) throws Exception {
        List<Callable<List<Long>>> workers = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            MQClientAPIImpl client = clients.get(i);
            int queueId = i % Workload.QUEUES;
            workers.add(() -> pull(request, client, queueId, end));
        }
        List<Long> all = new ArrayList<>();
        for (Future<List<Long>> worker : pool.invokeAll(workers)) {
            all.addAll(worker.get());
        }
        return all;
    }

    private static List<Long> pull(Request request, MQClientAPIImpl client, int queueId, long end)
        throws Exception {
        String address = "127.0.0.1:" + request.number("port");
        PullMessageRequestHeader header = header(request, queueId, 0);
        List<Long> nanoseconds = new ArrayList<>();
        long offset = 0;
        while (offset < end) {
            header.setQueueOffset(offset);
            long began = System.nanoTime();
            PullResult result = client.pullMessage(address, header, TIMEOUT_MS,
                CommunicationMode.SYNC, null);
            nanoseconds.add(System.nanoTime() - began);
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("pull: " + result);
            }
            offset = result.getNextBeginOffset();
        }
        return nanoseconds;
    }

    /** With `waitMs` above 0 the pull waits so long for an arrival. */
    static PullMessageRequestHeader header(Request request, int queueId, long waitMs) {
        PullMessageRequestHeader header = new PullMessageRequestHeader();
        header.setConsumerGroup("bench");
        header.setTopic(Workload.TOPIC);
        header.setQueueId(queueId);
        header.setMaxMsgNums(request.number("max"));
        header.setSysFlag(PullSysFlag.buildSysFlag(false, waitMs > 0, true, false));
        header.setCommitOffset(0L);
        header.setSuspendTimeoutMillis(waitMs);
        header.setSubscription(request.text("subscription"));
        header.setSubVersion(0L);
        header.setExpressionType("TAG");
        return header;
    }
}
