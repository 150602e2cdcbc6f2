package referee;

import java.lang.reflect.Field;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.schedule.ScheduleMessageService;

/** RocketMQ's delivery of delayed messages: in 4.9 the store's own, begun and ended with it. */
final class Delivery {
    private final ScheduleMessageService service;

    private Delivery(ScheduleMessageService service) {
        this.service = service;
    }

    static Delivery begin(Settings settings, DefaultMessageStore store) {
        return new Delivery(store.getScheduleMessageService());
    }

    /** The next queue offset by level; levels that delivered nothing are left out. */
    @SuppressWarnings("unchecked")
    Map<Integer, Long> offsets() throws ReflectiveOperationException {
        Field table = ScheduleMessageService.class.getDeclaredField("offsetTable");
        table.setAccessible(true);
        return (Map<Integer, Long>) table.get(service);
    }

    void end() {
    }
}
