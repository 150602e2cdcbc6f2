package referee;

import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.util.List;

/** The names that a broker, its controller and a name server take from their files. */
final class Properties {
    private static final List<String> CLASSES = List.of(
        "common.BrokerConfig", "common.ControllerConfig", "common.namesrv.NamesrvConfig",
        "remoting.netty.NettyServerConfig", "remoting.netty.NettyClientConfig",
        "store.config.MessageStoreConfig", "tieredstore.MessageStoreConfig",
        "auth.config.AuthConfig");

    private Properties() {
    }

    static void list(Output out) {
        for (String name : CLASSES) {
            Class<?> type;
            try {
                type = Class.forName("org.apache.rocketmq." + name);
            } catch (ClassNotFoundException error) {
                continue; // 4.9 has no such part
            }
            for (Method method : type.getMethods()) {
                if (method.getName().matches("set.+") && method.getParameterCount() == 1) {
                    JsonObject line = new JsonObject();
                    line.addProperty("t", "property");
                    line.addProperty("name", Character.toLowerCase(method.getName().charAt(3))
                        + method.getName().substring(4)); // as MixAll.properties2Object
                    out.line(line);
                }
            }
        }
    }
}
