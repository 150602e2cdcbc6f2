package peer;

import java.io.PrintStream;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerPathConfigHelper;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A whole broker of RocketMQ 4 or 5 with its defaults, in a JVM of its own: `Broker DIRECTORY PORT FLUSH
 * SEGMENT NAMES ROLE HA`. SEGMENT is mappedFileSizeCommitLog, NAMES the port of a name server that is
 * to live in this JVM too, ROLE the brokerRole, and HA the haListenPort of the master.
 *
 * <p>With port 0 there is no name server: it registers with none, and senders know its address.
 * "ready" on stdout says that it answers; it ends with its standard input.
 */
public final class Broker {
    /** Not the topic: a broker has a topic of one queue under its own name. */
    static final String NAME = "bench-broker";

    private Broker() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BrokerPathConfigHelper.setBrokerConfigPath(Path.of(args[0], "broker.conf").toString());
        // As BrokerStartup does; who says no version is taken for one of 2013.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY,
            Integer.toString(MQVersion.CURRENT_VERSION));
        BrokerConfig config = config();
        BrokerRole role = BrokerRole.valueOf(args[5]);
        config.setBrokerId(role == BrokerRole.SLAVE ? 1 : 0);
        int namesPort = Integer.parseInt(args[4]);
        if (namesPort != 0) {
            NamesrvController names = new NamesrvController(new NamesrvConfig(), server(namesPort));
            names.initialize();
            names.start();
            config.setNamesrvAddr("127.0.0.1:" + namesPort);
        }
        BrokerController broker =
            new BrokerController(config, server(Integer.parseInt(args[1])), new NettyClientConfig(),
                store(args[0], FlushDiskType.valueOf(args[2]), Integer.parseInt(args[3]), role,
                    Integer.parseInt(args[6])));
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not start: initialize() is false");
        }
        broker.start(); // registers it
        answers.println("ready");
        answers.flush();
        while (System.in.read() >= 0) {
            continue; // nothing is said to it but its end
        }
        Runtime.getRuntime().halt(0);
    }

    private static BrokerConfig config() {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName(NAME);
        // On a machine that does other things too, the 200 ms of the default refuse sends, and the
        // 3 s drop decisions.
        config.setWaitTimeMillsInSendQueue(60_000);
        config.setWaitTimeMillsInTransactionQueue(60_000);
        return config;
    }

    private static NettyServerConfig server(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        return config;
    }

    private static MessageStoreConfig store(String directory, FlushDiskType flush, int segment,
        BrokerRole role, int ha) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(Path.of(directory, "commitlog").toString());
        config.setFlushDiskType(flush);
        config.setMappedFileSizeCommitLog(segment);
        config.setBrokerRole(role);
        config.setHaListenPort(role == BrokerRole.SLAVE ? 0 : ha);
        if (role == BrokerRole.SLAVE) {
            config.setHaMasterAddress("127.0.0.1:" + ha);
        }
        config.setFileReservedTime(24 * 365 * 50); // nothing expires meanwhile
        config.setCleanFileForciblyEnable(false);
        return config;
    }
}
