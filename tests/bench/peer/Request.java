package peer;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** One line of the protocol. */
final class Request {
    final String verb;
    private final Map<String, String> values = new HashMap<>();

    Request(String line) {
        String[] parts = line.split("\t");
        verb = parts[0];
        for (int i = 1; i < parts.length; i++) {
            int equals = parts[i].indexOf('=');
            values.put(parts[i].substring(0, equals), parts[i].substring(equals + 1));
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(verb + " needs " + name);
        }
        return value;
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    Path path(String name) {
        return Path.of(text(name));
    }

    /** The named file: big-endian 64-bit numbers. */
    long[] numbers(String name) throws IOException {
        LongBuffer buffer = ByteBuffer.wrap(Files.readAllBytes(path(name))).asLongBuffer();
        long[] numbers = new long[buffer.remaining()];
        buffer.get(numbers);
        return numbers;
    }
}
