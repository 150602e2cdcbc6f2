package referee;

import com.google.gson.JsonObject;
import java.nio.file.Path;

/**
 * Starts a whole broker on a directory as BrokerStartup does, and shuts it down: {"config":{…}}. The
 * answer has the end of its log; a broker that does not start is an error.
 */
final class Starts {
    private Starts() {
    }

    static void run(Path dir, JsonObject request, Output out) throws Exception {
        Broker broker = Broker.startAlone(dir, request.getAsJsonObject("config"));
        JsonObject line = new JsonObject();
        line.addProperty("t", "started");
        line.addProperty("end", broker.real.getMessageStore().getMaxPhyOffset());
        out.line(line);
        out.flush();
        broker.close();
    }
}
