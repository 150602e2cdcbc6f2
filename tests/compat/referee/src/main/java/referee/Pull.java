package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;

/** Filtered pulls, by a broker's own filters; those of a store are expected to be for 64 groups. */
final class Pull {
    private static final int QUEUE_OFFSET_AT = 20;
    private static final int BATCH = 32;

    private Pull() {
    }

    static ConsumerFilterManager filtersOf(Path dir) throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        Path file = dir.resolve("config").resolve("consumerFilter.json");
        if (Files.exists(file)) {
            manager.decode(Files.readString(file));
        }
        return manager;
    }

    /**
     * {"group":…,"topic":…,"queueId":…,"type":"TAG"|"SQL92","expression":…} each: the queue offsets
     * of what is found in the whole queue, and how many messages were looked at in the log.
     */
    static void run(Path dir, JsonObject config, JsonArray requests, Output out) throws Exception {
        Store store = Store.open(dir, config);
        try {
            for (JsonElement each : requests) {
                out.line(pulled(store, each.getAsJsonObject()));
            }
        } finally {
            store.close();
        }
    }

    private static JsonObject pulled(Store store, JsonObject request) throws Exception {
        String group = request.get("group").getAsString();
        String topic = request.get("topic").getAsString();
        int queueId = request.get("queueId").getAsInt();
        Counting filter = new Counting(Api.filter(topic, request.get("expression").getAsString(),
            request.get("type").getAsString(), store.filters.get(topic, group), store.filters));
        JsonArray offsets = new JsonArray();
        long next = store.real.getMinOffsetInQueue(topic, queueId);
        while (next < store.real.getMaxOffsetInQueue(topic, queueId)) {
            GetMessageResult found =
                store.real.getMessage(group, topic, queueId, next, BATCH, filter);
            for (ByteBuffer record : found.getMessageBufferList()) {
                offsets.add(record.getLong(QUEUE_OFFSET_AT));
            }
            next = found.getNextBeginOffset();
            found.release();
        }
        JsonObject line = new JsonObject();
        line.addProperty("t", "pulled");
        line.add("offsets", offsets);
        line.addProperty("looked", filter.looked);
        return line;
    }

    /** A filter that counts what it is shown of the log. */
    private static final class Counting implements MessageFilter {
        private final MessageFilter inner;
        private int looked;

        Counting(MessageFilter inner) {
            this.inner = inner;
        }

        @Override
        public boolean isMatchedByConsumeQueue(Long tagsCode, ConsumeQueueExt.CqExtUnit unit) {
            return inner.isMatchedByConsumeQueue(tagsCode, unit);
        }

        @Override
        public boolean isMatchedByCommitLog(ByteBuffer message, Map<String, String> properties) {
            looked++;
            return inner.isMatchedByCommitLog(message, properties);
        }
    }
}
