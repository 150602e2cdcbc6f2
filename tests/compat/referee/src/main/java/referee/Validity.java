package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What a broker allows as names of topics and, in 5.x, of groups. */
final class Validity {
    private Validity() {
    }

    static void judge(JsonArray names, Output out) throws Exception {
        for (JsonElement each : names) {
            String name = each.getAsString();
            JsonObject line = new JsonObject();
            line.addProperty("t", "name");
            line.addProperty("topic", isTopic(name));
            line.addProperty("group", isGroup(name));
            line.addProperty("isSystem", TopicValidator.isSystemTopic(name));
            line.addProperty("isRefused", TopicValidator.isNotAllowedSendTopic(name));
            out.line(line);
        }
    }

    private static boolean isTopic(String name) throws Exception {
        for (Method method : TopicValidator.class.getMethods()) {
            if (method.getName().equals("validateTopic")) {
                return method.getParameterCount() == 1
                    ? isValid(method.invoke(null, name))
                    : (Boolean) method.invoke(null, name,
                        RemotingCommand.createResponseCommand(0, ""));
            }
        }
        throw new IllegalStateException("no validateTopic");
    }

    private static Boolean isGroup(String name) throws Exception {
        for (Method method : TopicValidator.class.getMethods()) {
            if (method.getName().equals("validateGroup")) {
                return isValid(method.invoke(null, name));
            }
        }
        return null; // 4.9 checks none
    }

    private static boolean isValid(Object result) throws Exception {
        return (Boolean) result.getClass().getMethod("isValid").invoke(result);
    }
}
