package referee;

import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.schedule.ScheduleMessageService;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;

/** RocketMQ's delivery of delayed messages: in 5.x the broker's, here of a broker never started. */
final class Delivery {
    private final ScheduleMessageService service;

    private Delivery(ScheduleMessageService service) {
        this.service = service;
    }

    static Delivery begin(Settings settings, DefaultMessageStore store) {
        BrokerController broker = new BrokerController(
            settings.broker, new NettyServerConfig(), new NettyClientConfig(), settings.store);
        broker.setMessageStore(store);
        Delivery delivery = new Delivery(new ScheduleMessageService(broker));
        delivery.service.start();
        return delivery;
    }

    /** The next queue offset by level. */
    Map<Integer, Long> offsets() {
        return service.getOffsetTable();
    }

    /** Ends it and writes delayOffset.json. */
    void end() {
        service.shutdown();
    }
}
