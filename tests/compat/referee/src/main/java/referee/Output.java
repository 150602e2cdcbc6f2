package referee;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import java.io.PrintStream;

/** JSON lines on the real standard output. */
final class Output {
    private final Gson gson = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private final PrintStream stream;

    Output(PrintStream stream) {
        this.stream = stream;
    }

    void line(JsonObject object) {
        stream.print(gson.toJson(object) + "\n");
    }

    void flush() {
        stream.flush();
    }
}
