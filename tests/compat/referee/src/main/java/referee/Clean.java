package referee;

import com.google.gson.JsonObject;
import java.nio.file.Path;

/** Lets RocketMQ delete what has expired, at any hour, as a broker does at a command. */
final class Clean {
    private Clean() {
    }

    static void run(Path dir, JsonObject config, int rounds, Output out) throws Exception {
        Store store = Store.open(dir, config);
        store.real.executeDeleteFilesManually();
        for (int round = 0; round < rounds; round++) {
            Api.cleanFiles(store.real);
        }
        JsonObject line = new JsonObject();
        line.addProperty("t", "cleaned");
        line.addProperty("minPhyOffset", store.real.getMinPhyOffset());
        line.addProperty("maxPhyOffset", store.real.getMaxPhyOffset());
        store.close();
        out.line(line);
    }
}
