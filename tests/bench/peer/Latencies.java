package peer;

import java.util.Arrays;
import java.util.Map;

/** Percentiles of what single calls took. */
final class Latencies {
    /** What is done once for each index. */
    interface Call {
        void run(int index) throws Exception;
    }

    private Latencies() {
    }

    /** Nanoseconds of each of `count` calls. */
    static long[] time(int count, Call call) throws Exception {
        long[] nanoseconds = new long[count];
        for (int i = 0; i < count; i++) {
            long began = System.nanoTime();
            call.run(i);
            nanoseconds[i] = System.nanoTime() - began;
        }
        return nanoseconds;
    }

    /** In milliseconds; sorts its argument. */
    static void put(Map<String, Double> figures, long[] nanoseconds) {
        Arrays.sort(nanoseconds);
        figures.put("p50", at(nanoseconds, 0.5));
        figures.put("p99", at(nanoseconds, 0.99));
        figures.put("p99.9", at(nanoseconds, 0.999));
    }

    private static double at(long[] sorted, double share) {
        return sorted[(int) (sorted.length * share)] / 1e6;
    }
}
