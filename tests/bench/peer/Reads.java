package peer;

import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Reads from a store that fits the page cache, with or without decoding body and properties. */
final class Reads {
    private static final int PULL = 32;

    private final DefaultMessageStore store;
    private final Taking taking;
    private long bytes;

    private Reads(DefaultMessageStore store, Taking taking) {
        this.store = store;
        this.taking = taking;
    }

    /** What is done with what was read. */
    private enum Taking {
        UNDECODED, COPIED, DECODED
    }

    private interface Loop {
        /** Returns how many records were read. */
        long run(Reads reads) throws Exception;
    }

    private interface One {
        /** Reads what one pick names; returns how many records that were. */
        long run(Reads reads, int index);
    }

    static Map<String, Double> queues(Request request) throws Exception {
        return measure(request, Reads::pullAll,
            (figures, reads) -> figures.put("again", rate(Reads::pullAll, reads)));
    }

    static Map<String, Double> offsets(Request request) throws Exception {
        long[] offsets = request.numbers("picks");
        return measureEach(request, offsets.length, (reads, i) -> reads.look(offsets[i]));
    }

    static Map<String, Double> keys(Request request) throws Exception {
        long[] numbers = request.numbers("picks");
        String[] keys = new String[numbers.length];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = Workload.uniqueKey(numbers[i]);
        }
        return measureEach(request, keys.length, (reads, i) -> reads.query(keys[i]));
    }

    static Map<String, Double> ids(Request request) throws Exception {
        long[] offsets = request.numbers("picks");
        String[] ids = new String[offsets.length];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = Workload.messageId(offsets[i]);
        }
        return measureEach(request, ids.length, (reads, i) -> reads.lookId(ids[i]));
    }

    static Map<String, Double> offsetsByTime(Request request) throws Exception {
        long[] times = request.numbers("picks");
        return measureEach(request, times.length, (reads, i) -> {
            int queueId = i % Workload.QUEUES;
            reads.bytes += reads.store.getOffsetInQueueByTime(Workload.TOPIC, queueId, times[i]);
            return 1;
        });
    }

    static Map<String, Double> filtered(Request request) throws Exception {
        MessageFilter filter = new DefaultMessageFilter(
            FilterAPI.buildSubscriptionData(Workload.TOPIC, request.text("tag")));
        Loop all = reads -> reads.pullAll(filter);
        return measure(request, all, (figures, reads) -> figures.put("again", rate(all, reads)));
    }

    /** Each of some threads reads everything. */
    static Map<String, Double> byMany(Request request) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(request.number("readers"));
        Loop all = reads -> {
            List<Future<Long>> parts = new ArrayList<>();
            for (int i = 0; i < request.number("readers"); i++) {
                parts.add(threads.submit(() -> new Reads(reads.store, reads.taking).pullAll()));
            }
            long records = 0;
            for (Future<Long> part : parts) {
                records += part.get();
            }
            return records;
        };
        try {
            return measure(request, all,
                (figures, reads) -> figures.put("again", rate(all, reads)));
        } finally {
            threads.shutdown();
        }
    }

    private interface Further {
        void measure(Map<String, Double> figures, Reads reads) throws Exception;
    }

    private static Map<String, Double> measureEach(Request request, int count, One one)
        throws Exception {
        Loop all = reads -> {
            long records = 0;
            for (int i = 0; i < count; i++) {
                records += one.run(reads, i);
            }
            return records;
        };
        int timed = request.number("timed");
        return measure(request, all, (figures, reads) ->
            Latencies.put(figures, Latencies.time(timed, i -> one.run(reads, i))));
    }

    private static Map<String, Double> measure(Request request, Loop loop, Further further)
        throws Exception {
        DefaultMessageStore store = Stores.open(request);
        try {
            Reads reads = new Reads(store, Taking.valueOf(request.text("taking").toUpperCase()));
            Map<String, Double> figures = new HashMap<>();
            figures.put("rate", rate(loop, reads));
            figures.put("bytes", (double) reads.bytes);
            further.measure(figures, reads);
            return figures;
        } finally {
            Stores.close(store);
        }
    }

    private static double rate(Loop loop, Reads reads) throws Exception {
        long began = System.nanoTime();
        long records = loop.run(reads);
        return records / ((System.nanoTime() - began) / 1e9);
    }

    private long pullAll() {
        return pullAll(null);
    }

    /** Returns how many records were read, or with a filter passed. */
    private long pullAll(MessageFilter filter) {
        long records = 0;
        for (int queueId = 0; queueId < Workload.QUEUES; queueId++) {
            long end = store.getMaxOffsetInQueue(Workload.TOPIC, queueId);
            long offset = 0;
            while (offset < end) {
                GetMessageResult pulled =
                    store.getMessage("bench", Workload.TOPIC, queueId, offset, PULL, filter);
                long taken = takeAll(pulled.getMessageBufferList());
                records += filter == null ? taken : pulled.getNextBeginOffset() - offset;
                offset = pulled.getNextBeginOffset();
                pulled.release();
            }
        }
        return records;
    }

    private long look(long offset) {
        if (taking == Taking.DECODED) {
            take(store.lookMessageByOffset(offset));
        } else {
            SelectMappedBufferResult slice = store.selectOneMessageByOffset(offset);
            takeBytes(slice.getByteBuffer());
            slice.release();
        }
        return 1;
    }

    private long lookId(String id) {
        try {
            take(store.lookMessageByOffset(MessageDecoder.decodeMessageId(id).getOffset()));
        } catch (UnknownHostException impossible) {
            throw new IllegalStateException(impossible);
        }
        return 1;
    }

    private long query(String key) {
        QueryMessageResult found =
            store.queryMessage(Workload.TOPIC, key, PULL, 0, Long.MAX_VALUE);
        long records = takeAll(found.getMessageBufferList());
        found.release();
        return records;
    }

    private long takeAll(List<ByteBuffer> buffers) {
        for (ByteBuffer buffer : buffers) {
            if (taking == Taking.DECODED) {
                take(MessageDecoder.decode(buffer, true, false));
            } else {
                takeBytes(buffer);
            }
        }
        return buffers.size();
    }

    private void takeBytes(ByteBuffer buffer) {
        if (taking == Taking.COPIED) {
            byte[] copy = new byte[buffer.remaining()];
            buffer.get(copy);
            bytes += copy[copy.length - 1];
        } else {
            bytes += buffer.remaining();
        }
    }

    private void take(MessageExt message) {
        bytes += message.getBody().length + message.getProperties().size();
    }
}
