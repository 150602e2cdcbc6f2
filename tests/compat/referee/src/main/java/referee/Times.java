package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.file.Path;

/** Where a broker lets a consumer begin that seeks by time. */
final class Times {
    private Times() {
    }

    static void run(Path dir, JsonObject config, JsonArray requests, Output out) throws Exception {
        Store store = Store.open(dir, config);
        try {
            for (JsonElement each : requests) {
                JsonObject seek = each.getAsJsonObject();
                JsonObject line = new JsonObject();
                line.addProperty("t", "time");
                line.addProperty("offset", store.real.getOffsetInQueueByTime(
                    seek.get("topic").getAsString(), seek.get("q").getAsInt(),
                    seek.get("ms").getAsLong()));
                out.line(line);
            }
        } finally {
            store.close();
        }
    }
}
