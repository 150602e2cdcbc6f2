package peer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Puts that wait for the disk, by several threads at once. */
final class SyncPuts {
    private SyncPuts() {
    }

    static Map<String, Double> run(Request request) throws Exception {
        DefaultMessageStore store = Stores.open(request);
        int threads = request.number("threads");
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            byte[] body = Workload.body(request.number("body"));
            int warm = request.number("warm");
            int puts = request.number("puts");
            putAll(store, pool, threads, body, 0, warm);
            long cpu = Cpu.nanos();
            long began = System.nanoTime();
            long[] latencies = putAll(store, pool, threads, body, warm * threads, puts);
            double seconds = (System.nanoTime() - began) / 1e9;
            Map<String, Double> figures = new HashMap<>();
            figures.put("cost", Cpu.cost(cpu, latencies.length));
            figures.put("rate", latencies.length / seconds);
            Latencies.put(figures, latencies);
            return figures;
        } finally {
            pool.shutdown();
            Stores.destroy(store);
        }
    }

    /** Latencies in nanoseconds of `puts` puts by each of the threads. */
    private static long[] putAll(DefaultMessageStore store, ExecutorService pool, int threads,
        byte[] body, int first, int puts) throws Exception {
        List<Callable<long[]>> workers = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int queueId = i % Workload.QUEUES;
            String[] properties = Workload.properties(first + i * puts, puts);
            workers.add(() -> put(store, queueId, body, properties));
        }
        long[] all = new long[threads * puts];
        int position = 0;
        for (Future<long[]> worker : pool.invokeAll(workers)) {
            System.arraycopy(worker.get(), 0, all, position, puts);
            position += puts;
        }
        return all;
    }

    private static long[] put(DefaultMessageStore store, int queueId, byte[] body,
        String[] properties) throws Exception {
        return Latencies.time(properties.length,
            i -> Workload.put(store, Workload.message(queueId, body, properties[i])));
    }
}
