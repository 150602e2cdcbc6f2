package peer;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/** What is put; tests/bench/workload.py makes the same. */
final class Workload {
    static final String TOPIC = "bench";
    static final int QUEUES = 4;
    private static final long TAGS_CODE = MessageExtBrokerInner.tagsString2tagsCode(null, "paid");
    private static final SocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private Workload() {
    }

    static byte[] body(int size) {
        byte[] body = new byte[size];
        for (int i = 0; i < size; i++) {
            body[i] = (byte) i;
        }
        return body;
    }

    static String uniqueKey(long number) {
        return String.format("%032X", number);
    }

    static String messageId(long offset) {
        return MessageDecoder.createMessageId(
            ByteBuffer.allocate(16), MessageExt.socketAddress2ByteBuffer(HOST), offset);
    }

    /** As a broker gets them from a producer, already encoded. */
    static String[] properties(int first, int count) {
        String[] encoded = new String[count];
        for (int i = 0; i < count; i++) {
            encoded[i] = "UNIQ_KEY\u0001" + uniqueKey(first + i) + "\u0002KEYS\u0001order-" + (first + i)
                + "\u0002TAGS\u0001paid";
        }
        return encoded;
    }

    static MessageExtBrokerInner message(int queueId, byte[] body, String properties) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setPropertiesString(properties);
        message.setTagsCode(TAGS_CODE);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        return message;
    }

    /** The body of a batch, as a broker gets it from a producer. */
    static byte[] encodedBatch(int first, int count, byte[] body) {
        List<Message> messages = new ArrayList<>();
        for (String properties : properties(first, count)) {
            Message message = new Message(TOPIC, body);
            MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(properties));
            messages.add(message);
        }
        return MessageDecoder.encodeMessages(messages);
    }

    static MessageExtBatch batch(int queueId, byte[] encoded) {
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(TOPIC);
        batch.setQueueId(queueId);
        batch.setBody(encoded);
        batch.setBornTimestamp(System.currentTimeMillis());
        batch.setBornHost(HOST);
        batch.setStoreHost(HOST);
        return batch;
    }

    static void put(DefaultMessageStore store, MessageExtBrokerInner message) {
        check(store.putMessage(message));
    }

    static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("put: " + result.getPutMessageStatus());
        }
    }
}
