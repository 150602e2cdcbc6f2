package referee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/** SQL92 expressions and the bloom filter of subscriptions. */
final class Filters {
    private Filters() {
    }

    /** {"expression":…,"properties":[{name: value},…]} each; true, false, null, throws or refused. */
    static void evaluate(JsonArray requests, Output out) {
        for (JsonElement each : requests) {
            JsonObject question = each.getAsJsonObject();
            JsonObject line = new JsonObject();
            line.addProperty("t", "evaluated");
            line.add("answers", answers(question));
            out.line(line);
        }
    }

    private static JsonArray answers(JsonObject question) {
        JsonArray answers = new JsonArray();
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92")
                .compile(question.get("expression").getAsString());
        } catch (Exception refused) {
            answers.add("refused");
            return answers;
        }
        for (JsonElement properties : question.getAsJsonArray("properties")) {
            answers.add(answer(compiled, properties.getAsJsonObject()));
        }
        return answers;
    }

    private static String answer(Expression compiled, JsonObject properties) {
        Map<String, String> found = new HashMap<>();
        for (Map.Entry<String, JsonElement> property : properties.entrySet()) {
            found.put(property.getKey(), property.getValue().getAsString());
        }
        try {
            return String.valueOf(compiled.evaluate(new MessageEvaluationContext(found)));
        } catch (Exception thrown) {
            return "throws";
        }
    }

    /** {"f":…,"n":…,"texts":[…]} each; bits in all, and positions of each text. */
    static void bloom(JsonArray requests, Output out) {
        for (JsonElement each : requests) {
            JsonObject question = each.getAsJsonObject();
            BloomFilter filter = BloomFilter.createByFn(
                question.get("f").getAsInt(), question.get("n").getAsInt());
            JsonObject line = new JsonObject();
            line.addProperty("t", "bloom");
            line.addProperty("bits", filter.getM());
            JsonArray positions = new JsonArray();
            for (JsonElement text : question.getAsJsonArray("texts")) {
                JsonArray of = new JsonArray();
                for (int position : filter.calcBitPositions(text.getAsString())) {
                    of.add(position);
                }
                positions.add(of);
            }
            line.add("positions", positions);
            out.line(line);
        }
    }
}
