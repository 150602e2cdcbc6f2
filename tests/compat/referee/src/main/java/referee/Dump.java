package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Opens a store, which recovers it, and prints what `mqstore store dump` prints for it. */
final class Dump {
    private static final int BLANK_MAGIC = 0xcbd43194;
    private static final int SMALLEST_RECORD = 91;
    private static final int QUERY_LIMIT = 64;
    private static final int CHECKPOINT_LONGS = 5;

    private final Store store;
    private final Output out;
    /** "topic, key" of all messages seen, in log order. */
    private final Set<List<String>> keys = new LinkedHashSet<>();

    private Dump(Store store, Output out) {
        this.store = store;
        this.out = out;
    }

    static void run(Path dir, JsonObject config, boolean queries, Output out) throws Exception {
        checkpoint(dir, out);
        Store store = Store.open(dir, config);
        try {
            Dump dump = new Dump(store, out);
            dump.recovered();
            dump.log();
            dump.queues();
            if (queries) {
                dump.queries();
            }
        } finally {
            store.close();
        }
    }

    /** The raw longs of the checkpoint file as found, before the store touches it. */
    private static void checkpoint(Path dir, Output out) throws Exception {
        JsonObject line = line("checkpoint");
        Path file = dir.resolve("checkpoint");
        if (Files.exists(file) && Files.size(file) >= CHECKPOINT_LONGS * Long.BYTES) {
            ByteBuffer longs = ByteBuffer.wrap(Files.readAllBytes(file));
            line.addProperty("physicMsgTimestamp", longs.getLong(0));
            line.addProperty("logicsMsgTimestamp", longs.getLong(8));
            line.addProperty("indexMsgTimestamp", longs.getLong(16));
            line.addProperty("masterFlushedOffset", longs.getLong(24));
            line.addProperty("confirmPhyOffset", longs.getLong(32));
        } else {
            line.addProperty("missing", true);
        }
        out.line(line);
    }

    private void recovered() {
        JsonObject line = line("recovered");
        line.addProperty("path", store.abnormal ? "abnormal" : "normal");
        line.addProperty("minPhyOffset", store.real.getMinPhyOffset());
        line.addProperty("maxPhyOffset", store.real.getMaxPhyOffset());
        out.line(line);
    }

    private void log() throws Exception {
        CommitLog log = store.real.getCommitLog();
        long end = store.real.getMaxPhyOffset();
        long offset = Math.max(0, store.real.getMinPhyOffset());
        while (offset < end) {
            SelectMappedBufferResult part = log.getData(offset, false);
            if (part == null || part.getSize() < 8) {
                bad(offset, "no segment here");
                offset = log.rollNextFile(offset);
                if (part != null) {
                    part.release();
                }
                continue;
            }
            try {
                offset = record(log, offset, part.getByteBuffer());
            } finally {
                part.release();
            }
        }
    }

    /** Prints what stands at offset and returns where the next record is. */
    private long record(CommitLog log, long offset, ByteBuffer bytes) throws Exception {
        int size = bytes.getInt(bytes.position());
        if (bytes.getInt(bytes.position() + 4) == BLANK_MAGIC) {
            JsonObject line = line("blank");
            line.addProperty("off", offset);
            line.addProperty("size", size);
            out.line(line);
            return log.rollNextFile(offset);
        }
        if (size < SMALLEST_RECORD || size > bytes.remaining()) {
            bad(offset, "impossible size " + size);
            return log.rollNextFile(offset);
        }
        bytes.limit(bytes.position() + size);
        DispatchRequest request = Api.check(log, bytes.slice());
        MessageExt message = MessageDecoder.decode(bytes.slice(), false);
        if (!request.isSuccess() || message == null) {
            bad(offset, "RocketMQ's decoder refuses it");
            return request.getMsgSize() > 0 ? offset + size : log.rollNextFile(offset);
        }
        message(offset, message, bodyOf(bytes.slice(), message.getSysFlag()), request.getTagsCode());
        return offset + size;
    }

    /** The stored body as it is: neither decompressed nor refused for a wrong CRC. */
    private static byte[] bodyOf(ByteBuffer record, int sysFlag) {
        int hosts = ((sysFlag & MessageSysFlag.BORNHOST_V6_FLAG) == 0 ? 8 : 20)
            + ((sysFlag & MessageSysFlag.STOREHOSTADDRESS_V6_FLAG) == 0 ? 8 : 20);
        record.position(4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 4 + 8 + hosts);
        byte[] body = new byte[record.getInt()];
        record.get(body);
        return body;
    }

    private void message(long offset, MessageExt message, byte[] body, long tagsCode)
        throws Exception {
        JsonObject line = line("msg");
        line.addProperty("off", offset);
        line.addProperty("size", message.getStoreSize());
        line.addProperty("topic", message.getTopic());
        line.addProperty("q", message.getQueueId());
        line.addProperty("qoff", message.getQueueOffset());
        line.addProperty("flag", message.getFlag());
        line.addProperty("phys", message.getCommitLogOffset());
        line.addProperty("sysFlag", message.getSysFlag());
        line.addProperty("bornTs", message.getBornTimestamp());
        line.addProperty("bornHost", Names.host(message.getBornHost()));
        line.addProperty("storeTs", message.getStoreTimestamp());
        line.addProperty("storeHost", Names.host(message.getStoreHost()));
        line.addProperty("reconsume", message.getReconsumeTimes());
        line.addProperty("pto", message.getPreparedTransactionOffset());
        line.addProperty("bodyLen", body.length);
        line.addProperty("bodyCrc", message.getBodyCRC());
        line.addProperty("crcOk", body.length == 0 || UtilAll.crc32(body) == message.getBodyCRC());
        line.addProperty("bodySha256", hex(MessageDigest.getInstance("SHA-256").digest(body)));
        line.add("props", properties(message.getProperties()));
        line.addProperty("tags", message.getTags());
        line.addProperty("keys", message.getKeys());
        line.addProperty("uniqKey", uniqKey(message));
        line.addProperty("offsetMsgId", message.getMsgId());
        line.addProperty("tagsCode", tagsCode);
        out.line(line);
        collectKeys(message);
    }

    private static JsonElement properties(Map<String, String> properties) {
        if (properties == null) {
            return JsonNull.INSTANCE;
        }
        JsonObject object = new JsonObject();
        new TreeMap<>(properties).forEach(object::addProperty);
        return object;
    }

    private static String uniqKey(MessageExt message) {
        return message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
    }

    private void collectKeys(MessageExt message) {
        if (uniqKey(message) != null) {
            keys.add(List.of(message.getTopic(), uniqKey(message)));
        }
        if (message.getKeys() != null) {
            for (String key : message.getKeys().split(MessageConst.KEY_SEPARATOR)) {
                if (!key.isEmpty()) {
                    keys.add(List.of(message.getTopic(), key));
                }
            }
        }
    }

    private void bad(long offset, String why) {
        JsonObject line = line("bad");
        line.addProperty("off", offset);
        line.addProperty("why", why);
        out.line(line);
    }

    private void queues() throws Exception {
        List<ConsumeQueue> queues = new ArrayList<>();
        for (Map<Integer, ? extends Object> byId : Api.queueTable(store.real).values()) {
            byId.values().forEach(queue -> queues.add((ConsumeQueue) queue));
        }
        for (ConsumeQueue queue : queues) {
            JsonObject line = line("queue");
            line.addProperty("topic", queue.getTopic());
            line.addProperty("q", queue.getQueueId());
            line.addProperty("min", queue.getMinOffsetInQueue());
            line.addProperty("max", queue.getMaxOffsetInQueue());
            out.line(line);
        }
        for (ConsumeQueue queue : queues) {
            entries(queue);
        }
    }

    private void entries(ConsumeQueue queue) {
        long index = queue.getMinOffsetInQueue();
        long end = queue.getMaxOffsetInQueue();
        while (index < end) {
            SelectMappedBufferResult part = queue.getIndexBuffer(index);
            if (part == null) {
                throw new IllegalStateException(
                    "no queue file for " + queue.getTopic() + " " + queue.getQueueId() + " " + index);
            }
            try {
                ByteBuffer bytes = part.getByteBuffer();
                while (bytes.remaining() >= ConsumeQueue.CQ_STORE_UNIT_SIZE && index < end) {
                    JsonObject line = line("cq");
                    line.addProperty("topic", queue.getTopic());
                    line.addProperty("q", queue.getQueueId());
                    line.addProperty("i", index++);
                    line.addProperty("off", bytes.getLong());
                    line.addProperty("size", bytes.getInt());
                    line.addProperty("tagsCode", bytes.getLong());
                    out.line(line);
                }
            } finally {
                part.release();
            }
        }
    }

    private void queries() {
        for (List<String> topicAndKey : keys) {
            String topic = topicAndKey.get(0);
            String key = topicAndKey.get(1);
            QueryMessageResult found =
                store.real.queryMessage(topic, key, QUERY_LIMIT, 0, Long.MAX_VALUE);
            JsonArray offsets = new JsonArray();
            for (ByteBuffer record : found.getMessageBufferList()) {
                offsets.add(record.getLong(MessageDecoder.PHY_POS_POSITION));
            }
            found.release();
            JsonObject line = line("query");
            line.addProperty("topic", topic);
            line.addProperty("key", key);
            line.add("offsets", offsets);
            out.line(line);
        }
    }

    private static JsonObject line(String type) {
        JsonObject line = new JsonObject();
        line.addProperty("t", type);
        return line;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }
}
