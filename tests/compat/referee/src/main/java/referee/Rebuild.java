package referee;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Lets RocketMQ build queues and index of a store from its log alone. */
final class Rebuild {
    private Rebuild() {
    }

    static void run(Path dir, JsonObject config, Output out) throws Exception {
        for (String derived : List.of("consumequeue", "index", "checkpoint")) {
            delete(dir.resolve(derived));
        }
        // Abnormal recovery without a checkpoint starts at the first segment and dispatches all.
        if (!Files.exists(dir.resolve("abort"))) {
            Files.createFile(dir.resolve("abort"));
        }
        Store store = Store.open(dir, config, true);
        JsonObject line = new JsonObject();
        line.addProperty("t", "rebuilt");
        line.addProperty("minPhyOffset", store.real.getMinPhyOffset());
        line.addProperty("maxPhyOffset", store.real.getMaxPhyOffset());
        store.close();
        out.line(line);
    }

    private static void delete(Path path) throws IOException {
        if (!Files.exists(path)) {
            return;
        }
        try (Stream<Path> tree = Files.walk(path)) {
            for (Path each : tree.sorted(Comparator.reverseOrder()).collect(Collectors.toList())) {
                Files.delete(each);
            }
        }
    }
}
