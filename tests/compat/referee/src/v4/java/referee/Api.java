package referee;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionForRetryMessageFilter;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.schedule.ScheduleMessageService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs between the versions: RocketMQ 4.9. */
final class Api {
    private Api() {
    }

    static void defaults(MessageStoreConfig config) {
    }

    static void defaults(BrokerConfig config) {
    }

    static DefaultMessageStore newStore(Settings settings) throws Exception {
        return new DefaultMessageStore(settings.store, new BrokerStatsManager("referee", false),
            (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { }, settings.broker);
    }

    /** The bare 4.9 store delivers delayed messages; with delivery marked as running, it does not. */
    static void suppressDelivery(DefaultMessageStore store) throws ReflectiveOperationException {
        Field started = ScheduleMessageService.class.getDeclaredField("started");
        started.setAccessible(true);
        ((AtomicBoolean) started.get(store.getScheduleMessageService())).set(true);
    }

    /** Nothing to do: the 4.9 store itself sends a message with a delay to SCHEDULE_TOPIC_XXXX. */
    static void delay(DefaultMessageStore store, BrokerMessage message) {
    }

    /**
     * load() recovers before ScheduleMessageService.load() reads messageDelayLevel, so entries that
     * a recovery makes for delayed messages get no delivery time. Read first, they do.
     */
    static void readDelayLevels(DefaultMessageStore store) {
        store.getScheduleMessageService().parseDelayLevel();
    }

    static DispatchRequest check(CommitLog log, ByteBuffer record) {
        return log.checkMessageAndReturnSize(record, false, true);
    }

    static Map<String, ? extends Map<Integer, ConsumeQueue>> queueTable(DefaultMessageStore store) {
        return store.getConsumeQueueTable();
    }

    /** One round of the cleaner, which a broker runs every ten seconds. */
    static void cleanFiles(DefaultMessageStore store) throws ReflectiveOperationException {
        Method clean = DefaultMessageStore.class.getDeclaredMethod("cleanFilesPeriodically");
        clean.setAccessible(true);
        clean.invoke(store);
    }

    /** What a broker with filterSupportRetry filters a pull by. */
    static MessageFilter filter(String topic, String expression, String type,
        ConsumerFilterData data, ConsumerFilterManager manager) throws Exception {
        return new ExpressionForRetryMessageFilter(
            FilterAPI.build(topic, expression, type), data, manager);
    }

    /** RocketMQ 4 has no timer. */
    static void delayBy(Message message, long delayMs) {
        throw new UnsupportedOperationException("4.9 has no timer");
    }

    static boolean isTimerSaved(BrokerController broker) {
        return true;
    }

    static void closeTimer(BrokerController broker) {
    }
}
