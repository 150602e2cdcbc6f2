package peer;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/** Reads from a store that fits the page cache; every record is decoded, body and properties. */
final class Reads {
    private static final int PULL = 32;

    private final DefaultMessageStore store;
    private long bytes;

    private Reads(DefaultMessageStore store) {
        this.store = store;
    }

    private interface Loop {
        /** Returns how many records were read. */
        long run(Reads reads) throws Exception;
    }

    static Map<String, Double> queues(Request request) throws Exception {
        return measure(request, Reads::pullAll);
    }

    static Map<String, Double> offsets(Request request) throws Exception {
        long[] offsets = request.numbers("picks");
        return measure(request, reads -> reads.look(offsets));
    }

    static Map<String, Double> keys(Request request) throws Exception {
        long[] numbers = request.numbers("picks");
        String[] keys = new String[numbers.length];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = Workload.uniqueKey(numbers[i]);
        }
        return measure(request, reads -> reads.query(keys));
    }

    private static Map<String, Double> measure(Request request, Loop loop) throws Exception {
        DefaultMessageStore store = Stores.open(request);
        try {
            Reads reads = new Reads(store);
            long began = System.nanoTime();
            long records = loop.run(reads);
            double seconds = (System.nanoTime() - began) / 1e9;
            return Map.of("rate", records / seconds, "records", (double) records,
                "bytes", (double) reads.bytes);
        } finally {
            Stores.close(store);
        }
    }

    private long pullAll() {
        long records = 0;
        for (int queueId = 0; queueId < Workload.QUEUES; queueId++) {
            long end = store.getMaxOffsetInQueue(Workload.TOPIC, queueId);
            long offset = 0;
            while (offset < end) {
                GetMessageResult pulled =
                    store.getMessage("bench", Workload.TOPIC, queueId, offset, PULL, null);
                records += decode(pulled.getMessageBufferList());
                offset = pulled.getNextBeginOffset();
                pulled.release();
            }
        }
        return records;
    }

    private long look(long[] offsets) {
        for (long offset : offsets) {
            take(store.lookMessageByOffset(offset));
        }
        return offsets.length;
    }

    private long query(String[] keys) {
        long records = 0;
        for (String key : keys) {
            QueryMessageResult found =
                store.queryMessage(Workload.TOPIC, key, PULL, 0, Long.MAX_VALUE);
            records += decode(found.getMessageBufferList());
            found.release();
        }
        return records;
    }

    private long decode(List<ByteBuffer> buffers) {
        for (ByteBuffer buffer : buffers) {
            take(MessageDecoder.decode(buffer, true, false));
        }
        return buffers.size();
    }

    private void take(MessageExt message) {
        bytes += message.getBody().length + message.getProperties().size();
    }
}
