package peer;

import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Opening an existing store, also one whose queues and index have to be built again. */
final class Openings {
    private Openings() {
    }

    static Map<String, Double> open(Request request) throws Exception {
        long began = System.nanoTime();
        DefaultMessageStore store = Stores.make(request);
        Stores.start(store);
        double seconds = (System.nanoTime() - began) / 1e9;
        Stores.close(store);
        return Map.of("seconds", seconds);
    }

    /**
     * Until the log's last record has its queue entry and its index entries. A start that finds
     * work for dispatch looks once a second whether it is done, which is not counted.
     */
    static Map<String, Double> rebuild(Request request) throws Exception {
        long[] dispatched = new long[1];
        int[] records = new int[1];
        long cpu = Cpu.nanos();
        long began = System.nanoTime();
        DefaultMessageStore store = Stores.make(request);
        store.getDispatcherList().addLast(each -> {
            dispatched[0] = System.nanoTime();
            records[0]++;
        });
        boolean recovered = store.load();
        long loaded = System.nanoTime();
        if (!recovered) {
            throw new IllegalStateException("RocketMQ refuses this store: load() is false");
        }
        store.start();
        Stores.awaitDispatch(store);
        double seconds = (Math.max(loaded, dispatched[0]) - began) / 1e9;
        double cost = Cpu.cost(cpu, records[0]);
        long bytes = store.getMaxPhyOffset() - store.getMinPhyOffset();
        Stores.close(store);
        store = null;
        System.gc(); // unmaps its files, so that they can leave the page cache
        return Map.of("seconds", seconds, "rate", bytes / seconds / (1 << 20),
            "cost", cost, "records", (double) records[0]);
    }
}
