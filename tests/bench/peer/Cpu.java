package peer;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/** Processor time of this JVM, collector and compiler included. */
final class Cpu {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Cpu() {
    }

    static long nanos() {
        return SYSTEM.getProcessCpuTime();
    }

    /** Microseconds per message since `before`. */
    static double cost(long before, double messages) {
        return (nanos() - before) / 1e3 / messages;
    }
}
