package referee;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ's two configuration objects, filled by their setters' names. */
final class Settings {
    final MessageStoreConfig store = new MessageStoreConfig();
    final BrokerConfig broker = new BrokerConfig();
    /** Whether delayed messages are delivered; off, so that only scripts append. */
    final boolean deliverDelayed;
    /** Settings of ACL 2.0, by their names. */
    final Properties users = new Properties();
    /** Settings of a plug-in of the store, by their names. */
    final Properties plugIn = new Properties();

    Settings(Path dir, JsonObject config) throws ReflectiveOperationException {
        store.setStorePathRootDir(dir.toString());
        store.setStorePathCommitLog(dir.resolve("commitlog").toString());
        store.setHaListenPort(0); // any free port: several referees run at a time
        store.setDiskMaxUsedSpaceRatio(95);
        store.setFileReservedTime(24 * 365 * 50); // nothing expires while a test looks
        store.setCleanFileForciblyEnable(false);
        store.setFlushCommitLogTimed(false); // else each close waits for the end of a sleep of 500 ms
        Api.defaults(store);
        Api.defaults(broker);
        boolean deliver = false;
        for (Map.Entry<String, JsonElement> entry : config.entrySet()) {
            if (entry.getKey().equals("deliverDelayed")) {
                deliver = entry.getValue().getAsBoolean();
            } else if (entry.getKey().startsWith("auth")) {
                users.setProperty(entry.getKey(), entry.getValue().getAsString());
            } else if (entry.getKey().startsWith("tiered")) {
                plugIn.setProperty(entry.getKey(), entry.getValue().getAsString());
            } else if (!set(store, entry.getKey(), entry.getValue())
                && !set(broker, entry.getKey(), entry.getValue())) {
                throw new IllegalArgumentException("no such setting: " + entry.getKey());
            }
        }
        deliverDelayed = deliver;
    }

    private static boolean set(Object target, String name, JsonElement value)
        throws ReflectiveOperationException {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equalsIgnoreCase(setter) && method.getParameterCount() == 1) {
                Object argument = convert(value, method.getParameterTypes()[0]);
                if (argument != null) {
                    invoke(method, target, argument);
                    return true;
                }
            }
        }
        return false;
    }

    private static void invoke(Method method, Object target, Object argument)
        throws ReflectiveOperationException {
        try {
            method.invoke(target, argument);
        } catch (InvocationTargetException e) {
            throw new IllegalArgumentException(method.getName() + "(" + argument + ")", e.getCause());
        }
    }

    /** Null for a type that no setting in JSON has (several setters are overloaded). */
    private static Object convert(JsonElement value, Class<?> type) {
        if (type == int.class) {
            return value.getAsInt();
        } else if (type == long.class) {
            return value.getAsLong();
        } else if (type == boolean.class) {
            return value.getAsBoolean();
        } else if (type == double.class) {
            return value.getAsDouble();
        } else if (type == String.class) {
            return value.getAsString();
        }
        return null;
    }
}
