package peer;

import java.io.IOException;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Opens and closes stores with RocketMQ's defaults, but for file sizes and the kind of flush. */
final class Stores {
    /** One for all: each has threads that only the JVM's end stops. */
    private static final BrokerStatsManager STATISTICS = new BrokerStatsManager("bench", false);

    private Stores() {
    }

    /** Not loaded yet. */
    static DefaultMessageStore make(Request request) throws IOException {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(request.text("dir"));
        config.setStorePathCommitLog(request.path("dir").resolve("commitlog").toString());
        config.setMappedFileSizeCommitLog(request.number("segment"));
        config.setFlushDiskType(FlushDiskType.valueOf(request.text("flush")));
        config.setHaListenPort(0);
        config.setFileReservedTime(24 * 365 * 50); // nothing expires meanwhile
        config.setCleanFileForciblyEnable(false);
        return new DefaultMessageStore(config, STATISTICS,
            (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { }, new BrokerConfig());
    }

    static void start(DefaultMessageStore store) throws Exception {
        if (!store.load()) {
            throw new IOException("RocketMQ refuses this store: load() is false");
        }
        store.start();
    }

    static DefaultMessageStore open(Request request) throws Exception {
        DefaultMessageStore store = make(request);
        start(store);
        awaitDispatch(store);
        return store;
    }

    static void awaitDispatch(DefaultMessageStore store) {
        while (store.dispatchBehindBytes() > 0) {
            LockSupport.parkNanos(50_000);
        }
    }

    /** An interrupt cuts short the second that RocketMQ sleeps for stragglers: there are none. */
    static void close(DefaultMessageStore store) {
        awaitDispatch(store);
        Thread.currentThread().interrupt();
        try {
            store.shutdown();
        } finally {
            Thread.interrupted();
        }
    }

    /** Deletes the files too, which unmaps them at once. */
    static void destroy(DefaultMessageStore store) {
        close(store);
        store.destroy();
    }
}
