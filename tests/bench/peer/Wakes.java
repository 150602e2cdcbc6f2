package peer;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader;

/**
 * A pull waits at the end of a queue (the broker's PullRequestHoldService) until a message comes:
 * milliseconds until it returns, from the message's sending, and from its acknowledgement (a
 * microsecond where the pull returned before).
 */
final class Wakes {
    private static final long TIMEOUT_MS = 60_000;
    private static final long WAIT_MS = 30_000;
    private static final long LEAST_NS = 1_000;

    private Wakes() {
    }

    static Map<String, Double> run(Request request) throws Exception {
        int warm = request.number("warm");
        int count = warm + request.number("count");
        long[] sent = new long[count];
        long[] acknowledged = new long[count];
        MQClientAPIImpl sender = Sends.connect();
        MQClientAPIImpl puller = Sends.connect();
        ExecutorService pool = Executors.newSingleThreadExecutor();
        try {
            String address = "127.0.0.1:" + request.number("port");
            long offset = Sends.one(sender, address, 1024).getQueueOffset() + 1;
            for (int i = 0; i < count; i++, offset++) {
                long at = offset;
                Future<Long> woken = pool.submit(() -> waited(puller, address, request, at));
                Thread.sleep(request.number("pauseMs")); // so that it waits by then
                long began = System.nanoTime();
                Sends.one(sender, address, 1024);
                long ended = System.nanoTime();
                long woke = woken.get();
                sent[i] = woke - began;
                acknowledged[i] = Math.max(LEAST_NS, woke - ended);
            }
        } finally {
            pool.shutdown();
            sender.shutdown();
            puller.shutdown();
        }
        Map<String, Double> figures = new HashMap<>();
        put(figures, "sent", sent, warm);
        put(figures, "acknowledged", acknowledged, warm);
        return figures;
    }

    private static long waited(MQClientAPIImpl client, String address, Request request,
        long offset) throws Exception {
        PullMessageRequestHeader header = Pulls.header(request, 0, WAIT_MS);
        header.setQueueOffset(offset);
        PullResult result =
            client.pullMessage(address, header, TIMEOUT_MS, CommunicationMode.SYNC, null);
        long woke = System.nanoTime();
        if (result.getPullStatus() != PullStatus.FOUND) {
            throw new IllegalStateException("pull: " + result);
        }
        return woke;
    }

    private static void put(Map<String, Double> figures, String name, long[] all, int warm) {
        Map<String, Double> found = new HashMap<>();
        Latencies.put(found, Arrays.copyOfRange(all, warm, all.length));
        found.forEach((key, value) -> figures.put(name + " " + key, value));
    }
}
