package referee;

import com.google.gson.JsonObject;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;

/** A DefaultMessageStore, opened the way a broker opens it. */
final class Store {
    private static final int DELAY_LEVELS = 18;

    final DefaultMessageStore real;
    /** What config/consumerFilter.json says. */
    final ConsumerFilterManager filters;
    /** Whether an abort file was found, which makes the recovery the abnormal one. */
    final boolean abnormal;
    /** Null unless this store delivers delayed messages. */
    private final Delivery delivery;

    private Store(DefaultMessageStore real, ConsumerFilterManager filters, boolean abnormal,
        Delivery delivery) {
        this.real = real;
        this.filters = filters;
        this.abnormal = abnormal;
        this.delivery = delivery;
    }

    static Store open(Path dir, JsonObject config) throws Exception {
        return open(dir, config, false);
    }

    /** With knowsDelays, 4.9 has read its delay levels before it recovers, which it forgets to. */
    static Store open(Path dir, JsonObject config, boolean knowsDelays) throws Exception {
        Settings settings = new Settings(dir, config);
        Files.createDirectories(dir);
        boolean abnormal = Files.exists(dir.resolve("abort"));
        DefaultMessageStore real = Api.newStore(settings);
        keepIndexNamesApart(real, dir.resolve("index").toFile());
        ConsumerFilterManager filters = Pull.filtersOf(dir);
        if (settings.broker.isEnableCalcFilterBitMap()) {
            real.getDispatcherList().addFirst(
                new CommitLogDispatcherCalcBitMap(settings.broker, filters));
        }
        if (knowsDelays) {
            Api.readDelayLevels(real);
        }
        if (!real.load()) {
            throw new IOException("RocketMQ refuses this store: load() is false for " + dir);
        }
        if (!settings.deliverDelayed) {
            Api.suppressDelivery(real);
        }
        real.start();
        Delivery delivery = settings.deliverDelayed ? Delivery.begin(settings, real) : null;
        Store store = new Store(real, filters, abnormal, delivery);
        store.waitDispatch();
        return store;
    }

    /**
     * Two index files begun in the same millisecond get the same name and are then one file: with
     * small test files that happens, in production it does not. Waits the millisecond out.
     */
    private static void keepIndexNamesApart(DefaultMessageStore real, File index) {
        real.getDispatcherList().addFirst((DispatchRequest request) -> {
            String[] names = index.list();
            if (names == null) {
                return;
            }
            String now = Names.ofMillisecond(System.currentTimeMillis());
            for (String name : names) {
                while (name.compareTo(now) >= 0) {
                    Thread.onSpinWait();
                    now = Names.ofMillisecond(System.currentTimeMillis());
                }
            }
        });
    }

    void waitDispatch() throws InterruptedException {
        while (real.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    /** Until every delayed message is delivered. */
    void waitDelayed() throws Exception {
        waitDispatch();
        for (int level = 1; level <= DELAY_LEVELS; level++) {
            while (delivery.offsets().getOrDefault(level, 0L)
                < real.getMaxOffsetInQueue(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC, level - 1)) {
                Thread.sleep(1);
            }
        }
    }

    /**
     * Closes cleanly. Both versions first sleep for stragglers (1 s and 3 s), which an interrupt
     * cuts short; nothing straggles here, since dispatch has been waited for.
     */
    void close() throws Exception {
        waitDispatch();
        if (delivery != null) {
            delivery.end();
        }
        Thread.currentThread().interrupt();
        try {
            real.shutdown();
        } finally {
            Thread.interrupted();
        }
    }
}
