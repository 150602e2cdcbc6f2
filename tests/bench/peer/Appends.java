package peer;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Asynchronous puts into a fresh store, by one thread. */
final class Appends {
    private static final double NANOS = 1e9;

    private final DefaultMessageStore store;
    private final byte[] body;
    private final int batch;

    private Appends(DefaultMessageStore store, byte[] body, int batch) {
        this.store = store;
        this.body = body;
        this.batch = batch;
    }

    /** The first `warm` records are not counted. */
    static Map<String, Double> run(Request request) throws Exception {
        DefaultMessageStore store = Stores.open(request);
        try {
            byte[] body = Workload.body(request.number("body"));
            Appends appends = new Appends(store, body, request.number("batch"));
            int warm = request.number("warm");
            appends.prepare(0, warm).run();
            Stores.awaitDispatch(store);
            int records = request.number("records");
            Puts puts = appends.prepare(warm, records);
            long cpu = Cpu.nanos();
            long began = System.nanoTime();
            puts.run();
            double acknowledged = (System.nanoTime() - began) / NANOS;
            Stores.awaitDispatch(store);
            double readable = (System.nanoTime() - began) / NANOS;
            double cost = Cpu.cost(cpu, records);
            Map<String, Double> figures = new HashMap<>();
            figures.put("cost", cost);
            figures.put("acknowledged", records / acknowledged);
            figures.put("readable", records / readable);
            Puts timed = appends.prepare(warm + records, request.number("timed"));
            Latencies.put(figures, Latencies.time(timed.count, timed.call));
            return figures;
        } finally {
            Stores.destroy(store);
        }
    }

    /** Calls whose arguments are ready. */
    private static final class Puts {
        private final int count;
        private final Latencies.Call call;

        private Puts(int count, Latencies.Call call) {
            this.count = count;
            this.call = call;
        }

        private void run() throws Exception {
            for (int i = 0; i < count; i++) {
                call.run(i);
            }
        }
    }

    private Puts prepare(int first, int records) {
        return batch == 1 ? singles(first, records) : batches(first, records);
    }

    private Puts singles(int first, int records) {
        String[] properties = Workload.properties(first, records);
        return new Puts(records, i ->
            Workload.put(store, Workload.message(i % Workload.QUEUES, body, properties[i])));
    }

    private Puts batches(int first, int records) {
        byte[][] encoded = new byte[records / batch][];
        for (int i = 0; i < encoded.length; i++) {
            encoded[i] = Workload.encodedBatch(first + i * batch, batch, body);
        }
        return new Puts(encoded.length, i ->
            Workload.check(store.putMessages(Workload.batch(i % Workload.QUEUES, encoded[i]))));
    }
}
