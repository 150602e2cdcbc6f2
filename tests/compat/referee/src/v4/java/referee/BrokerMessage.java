package referee;

import org.apache.rocketmq.store.MessageExtBrokerInner;

/** 4.9's MessageExtBrokerInner, under a name that does not change with the version. */
final class BrokerMessage extends MessageExtBrokerInner {
    private static final long serialVersionUID = 1L;
}
