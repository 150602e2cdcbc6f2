package referee;

import com.google.gson.JsonElement;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.ByteArrayInputStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.MixAll;

/** What a broker, its controller and a name server take from their files, and how. */
final class Properties {
    private static final List<String> CLASSES = List.of(
        "common.BrokerConfig", "common.ControllerConfig", "common.namesrv.NamesrvConfig",
        "remoting.netty.NettyServerConfig", "remoting.netty.NettyClientConfig",
        "store.config.MessageStoreConfig", "tieredstore.MessageStoreConfig",
        "auth.config.AuthConfig");

    private Properties() {
    }

    /** Each setter, with the type of what it sets. */
    static void list(Output out) {
        for (Class<?> type : classes()) {
            for (Method method : type.getMethods()) {
                if (method.getName().matches("set.+") && method.getParameterCount() == 1) {
                    JsonObject line = new JsonObject();
                    line.addProperty("t", "property");
                    line.addProperty("name", Character.toLowerCase(method.getName().charAt(3))
                        + method.getName().substring(4)); // as MixAll.properties2Object
                    line.addProperty("type", method.getParameterTypes()[0].getSimpleName());
                    out.line(line);
                }
            }
        }
    }

    /** What Java reads in each file (its bytes as characters), or that it refuses the file. */
    static void parse(JsonArray files, Output out) {
        for (JsonElement file : files) {
            JsonObject line = new JsonObject();
            line.addProperty("t", "file");
            try {
                line.add("entries", asJson(loaded(file.getAsString())));
            } catch (Exception error) {
                line.addProperty("refused", error.toString());
            }
            out.line(line);
        }
    }

    /** All that a broker has after it read a file (its bytes as characters), as it saves it. */
    static void configure(JsonArray files, Output out) throws Exception {
        for (JsonElement file : files) {
            java.util.Properties given = loaded(file.getAsString());
            java.util.Properties found = new java.util.Properties();
            for (Class<?> type : classes()) {
                Object config = type.getDeclaredConstructor().newInstance();
                MixAll.properties2Object(given, config);
                found.putAll(MixAll.object2Properties(config));
            }
            JsonObject line = new JsonObject();
            line.addProperty("t", "file");
            line.add("entries", asJson(found));
            out.line(line);
        }
    }

    private static java.util.Properties loaded(String content) throws Exception {
        java.util.Properties read = new java.util.Properties();
        read.load(new ByteArrayInputStream(content.getBytes(StandardCharsets.ISO_8859_1)));
        return read;
    }

    private static JsonObject asJson(java.util.Properties properties) {
        JsonObject object = new JsonObject();
        for (String name : properties.stringPropertyNames()) {
            object.addProperty(name, properties.getProperty(name));
        }
        return object;
    }

    private static List<Class<?>> classes() {
        List<Class<?>> found = new ArrayList<>();
        for (String name : CLASSES) {
            try {
                found.add(Class.forName("org.apache.rocketmq." + name));
            } catch (ClassNotFoundException error) {
                continue; // 4.9 has no such part
            }
        }
        return found;
    }
}
