package referee;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionForRetryMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.ConsumeQueueStore;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerMessageStore;

/** What differs between the versions: RocketMQ 5. */
final class Api {
    private Api() {
    }

    /**
     * A crash recovery of 5.x looks at the last 10 segments at most: with a test's small segments
     * that loses queues and index which a real store of ten gigabytes would not lose.
     */
    static void defaults(MessageStoreConfig config) {
        config.setCommitLogRecoverMaxNum(Integer.MAX_VALUE);
    }

    /** 5.4 flushes these metrics first after ten seconds, and loops without a pause until then. */
    static void defaults(BrokerConfig config) {
        config.setTransactionMetricFlushInterval(200);
    }

    static DefaultMessageStore newStore(Settings settings) throws Exception {
        return new DefaultMessageStore(settings.store, new BrokerStatsManager("referee", false),
            (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { }, settings.broker,
            new ConcurrentHashMap<>());
    }

    /** Nothing to do: in 5.x the broker delivers, not the store. */
    static void suppressDelivery(DefaultMessageStore store) {
    }

    /**
     * In 5.x the broker, not the store, sends a message with a delay to SCHEDULE_TOPIC_XXXX: what
     * HookUtils.handleScheduleMessage does before a put.
     */
    static void delay(DefaultMessageStore store, BrokerMessage message) {
        int transaction = MessageSysFlag.getTransactionValue(message.getSysFlag());
        if (message.getDelayTimeLevel() <= 0
            || transaction == MessageSysFlag.TRANSACTION_PREPARED_TYPE
            || transaction == MessageSysFlag.TRANSACTION_ROLLBACK_TYPE) {
            return;
        }
        int level = Math.min(message.getDelayTimeLevel(), store.getMaxDelayLevel());
        message.setDelayTimeLevel(level);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID,
            String.valueOf(message.getQueueId()));
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(level - 1);
    }

    /** Nothing to do: the 5.x store reads them when it is made. */
    static void readDelayLevels(DefaultMessageStore store) {
    }

    static DispatchRequest check(CommitLog log, ByteBuffer record) {
        return log.checkMessageAndReturnSize(record, false, false, true);
    }

    static Map<String, ? extends Map<Integer, ConsumeQueueInterface>> queueTable(
        DefaultMessageStore store) {
        return store.getConsumeQueueTable();
    }

    /** One round of both cleaners, which a broker runs every ten seconds. */
    static void cleanFiles(DefaultMessageStore store) throws ReflectiveOperationException {
        Method log = DefaultMessageStore.class.getDeclaredMethod("cleanFilesPeriodically");
        log.setAccessible(true);
        log.invoke(store);
        Method queues = ConsumeQueueStore.class.getDeclaredMethod("cleanQueueFilesPeriodically");
        queues.setAccessible(true);
        queues.invoke(store.getQueueStore());
    }

    /** What a broker with filterSupportRetry filters a pull by. */
    static MessageFilter filter(String topic, String expression, String type,
        ConsumerFilterData data, ConsumerFilterManager manager) throws Exception {
        return new ExpressionForRetryMessageFilter(
            FilterAPI.build(topic, expression, type), data, manager);
    }

    static void delayBy(Message message, long delayMs) {
        message.setDelayTimeMs(delayMs);
    }

    /** Whether all messages with a delay are in the wheel, and the checkpoint on disk says so. */
    static boolean isTimerSaved(BrokerController broker) {
        TimerMessageStore timer = broker.getTimerMessageStore();
        return timer.getEnqueueBehindMessages() == 0
            && broker.getTimerCheckpoint().getLastTimerQueueOffset() == timer.getCommitQueueOffset();
    }

    static void closeTimer(BrokerController broker) {
        if (broker.getTimerMessageStore() != null) {
            broker.getTimerMessageStore().shutdown();
        }
    }
}
