package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Runs a script on a store. First line: {"config":{…}}. Then one operation a line:
 *
 * <pre>
 * {"op":"put","topic","queueId","body":BASE64|null,"flag","sysFlag","bornTs","bornHost","storeHost",
 *  "reconsume","pto","props":[[name,value],…]|null}      or "propsRaw":TEXT, stored as it stands
 * {"op":"batch","topic","queueId","sysFlag","bornTs","bornHost","storeHost","reconsume",
 *  "props":[…]|null,"messages":[{"body","flag","props"},…]}
 * {"op":"flush"}   {"op":"waitDispatch"}   {"op":"sleep","ms":N}
 * {"op":"waitDelayed"}, until all delayed messages are delivered: only with "deliverDelayed":true
 * {"op":"end","how":"shutdown"|"halt"|"haltMidWrite","waitDispatch":bool,"afterPuts":N}
 * </pre>
 *
 * "haltMidWrite" is armed from the start: another thread halts the JVM once N puts were made, while
 * the script goes on. Each put is answered with {"t":"put","op":LINE,"status","append","msgId",
 * "off","size","qoff","count","storeTs"}, flushed before the next operation.
 */
final class Script {
    private final Store store;
    private final Output out;
    private final AtomicInteger puts = new AtomicInteger();

    private Script(Store store, Output out) {
        this.store = store;
        this.out = out;
    }

    static void run(Path dir, Path file, Output out) throws Exception {
        List<JsonObject> lines = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            lines.add(JsonParser.parseString(line).getAsJsonObject());
        }
        Store store = Store.open(dir, lines.get(0).getAsJsonObject("config"));
        new Script(store, out).run(lines.subList(1, lines.size()));
    }

    private void run(List<JsonObject> operations) throws Exception {
        JsonObject end = new JsonObject();
        if (!operations.isEmpty()) {
            JsonObject last = operations.get(operations.size() - 1);
            end = text(last, "op", "").equals("end") ? last : end;
        }
        String how = text(end, "how", "shutdown");
        if (how.equals("haltMidWrite")) {
            haltAfter((int) number(end, "afterPuts", 1));
        }
        for (int i = 0; i < operations.size(); i++) {
            step(i, operations.get(i));
        }
        if (!how.equals("shutdown")) {
            if (end.has("waitDispatch") && end.get("waitDispatch").getAsBoolean()) {
                store.waitDispatch();
            }
            Runtime.getRuntime().halt(0);
        }
        store.close();
    }

    private void haltAfter(int count) {
        Thread killer = new Thread(() -> {
            while (puts.get() < count) {
                Thread.onSpinWait();
            }
            Runtime.getRuntime().halt(0);
        }, "killer");
        killer.setDaemon(true);
        killer.start();
    }

    private void step(int index, JsonObject operation) throws Exception {
        switch (operation.get("op").getAsString()) {
            case "put":
                answer(index, store.real.putMessage(message(operation)));
                break;
            case "batch":
                answer(index, store.real.putMessages(batch(operation)));
                break;
            case "flush":
                store.real.flush();
                break;
            case "waitDispatch":
                store.waitDispatch();
                break;
            case "waitDelayed":
                store.waitDelayed();
                break;
            case "sleep":
                Thread.sleep(operation.get("ms").getAsLong());
                break;
            case "end":
                break;
            default:
                throw new IllegalArgumentException("unknown operation " + operation);
        }
    }

    private void answer(int index, PutMessageResult result) {
        puts.incrementAndGet();
        JsonObject line = new JsonObject();
        line.addProperty("t", "put");
        line.addProperty("op", index);
        line.addProperty("status", result.getPutMessageStatus().name());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            line.addProperty("append", append.getStatus().name());
            line.addProperty("msgId", append.getMsgId());
            line.addProperty("off", append.getWroteOffset());
            line.addProperty("size", append.getWroteBytes());
            line.addProperty("qoff", append.getLogicsOffset());
            line.addProperty("count", append.getMsgNum());
            line.addProperty("storeTs", append.getStoreTimestamp());
        }
        out.line(line);
        out.flush();
    }

    private BrokerMessage message(JsonObject operation) throws Exception {
        BrokerMessage message = new BrokerMessage();
        fill(message, operation);
        message.setBody(body(operation));
        message.setFlag((int) number(operation, "flag", 0));
        message.setPreparedTransactionOffset(number(operation, "pto", 0));
        if (operation.has("propsRaw")) {
            String raw = operation.get("propsRaw").getAsString();
            MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(raw));
            message.setPropertiesString(raw);
        } else if (properties(operation) != null) {
            MessageAccessor.setProperties(message, properties(operation));
            Api.delay(store.real, message);
            message.setPropertiesString(
                MessageDecoder.messageProperties2String(message.getProperties()));
        }
        message.setTagsCode(BrokerMessage.tagsString2tagsCode(message.getTags()));
        return message;
    }

    private static MessageExtBatch batch(JsonObject operation) throws Exception {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, operation);
        if (properties(operation) != null) {
            MessageAccessor.setProperties(batch, properties(operation));
        }
        List<Message> messages = new ArrayList<>();
        for (JsonElement element : operation.getAsJsonArray("messages")) {
            JsonObject one = element.getAsJsonObject();
            Message message = new Message();
            message.setBody(body(one));
            message.setFlag((int) number(one, "flag", 0));
            if (properties(one) != null) {
                MessageAccessor.setProperties(message, properties(one));
            }
            messages.add(message);
        }
        batch.setBody(MessageDecoder.encodeMessages(messages)); // as producers send a batch
        return batch;
    }

    /** What a message and a batch have in common, set as SendMessageProcessor sets it. */
    private static void fill(MessageExt message, JsonObject operation) throws Exception {
        message.setTopic(operation.get("topic").getAsString());
        message.setQueueId((int) number(operation, "queueId", 0));
        message.setSysFlag((int) number(operation, "sysFlag", 0));
        message.setBornTimestamp(number(operation, "bornTs", 0));
        message.setBornHost(Names.host(text(operation, "bornHost", "127.0.0.1|40000")));
        message.setStoreHost(Names.host(text(operation, "storeHost", "127.0.0.1|10911")));
        message.setReconsumeTimes((int) number(operation, "reconsume", 0));
    }

    private static byte[] body(JsonObject operation) {
        JsonElement body = operation.get("body");
        return body == null || body.isJsonNull()
            ? null : Base64.getDecoder().decode(body.getAsString());
    }

    /**
     * Through the text form, as properties travel from a producer to a broker: that gives the
     * broker's map, in its order, and drops empty values.
     */
    private static Map<String, String> properties(JsonObject operation) {
        JsonElement props = operation.get("props");
        if (props == null || props.isJsonNull()) {
            return null;
        }
        StringBuilder text = new StringBuilder();
        for (JsonElement pair : props.getAsJsonArray()) {
            JsonArray nameAndValue = pair.getAsJsonArray();
            text.append(nameAndValue.get(0).getAsString()).append(MessageDecoder.NAME_VALUE_SEPARATOR)
                .append(nameAndValue.get(1).getAsString()).append(MessageDecoder.PROPERTY_SEPARATOR);
        }
        return MessageDecoder.string2messageProperties(text.toString());
    }

    private static long number(JsonObject object, String name, long absent) {
        return object.has(name) ? object.get(name).getAsLong() : absent;
    }

    private static String text(JsonObject object, String name, String absent) {
        return object.has(name) ? object.get(name).getAsString() : absent;
    }
}
