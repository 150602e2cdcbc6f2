package peer;

import java.io.PrintStream;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerPathConfigHelper;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A whole broker of RocketMQ 5 with its defaults, as `peer/Broker.java` of RocketMQ 4: `Broker
 * DIRECTORY PORT FLUSH SEGMENT NAMES`. It has no name server: NAMES is 0.
 */
public final class Broker {
    private Broker() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BrokerPathConfigHelper.setBrokerConfigPath(Path.of(args[0], "broker.conf").toString());
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY,
            Integer.toString(MQVersion.CURRENT_VERSION)); // as BrokerStartup does
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName("bench-broker");
        config.setWaitTimeMillsInSendQueue(60_000); // 200 ms refuse sends on a busy machine
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Integer.parseInt(args[1]));
        BrokerController broker = new BrokerController(config, server, new NettyClientConfig(),
            store(args[0], FlushDiskType.valueOf(args[2]), Integer.parseInt(args[3])));
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not start: initialize() is false");
        }
        broker.start();
        answers.println("ready");
        answers.flush();
        while (System.in.read() >= 0) {
            continue; // nothing is said to it but its end
        }
        Runtime.getRuntime().halt(0);
    }

    private static MessageStoreConfig store(String directory, FlushDiskType flush, int segment) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(Path.of(directory, "commitlog").toString());
        config.setFlushDiskType(flush);
        config.setMappedFileSizeCommitLog(segment);
        config.setHaListenPort(0);
        config.setFileReservedTime(24 * 365 * 50); // nothing expires meanwhile
        config.setCleanFileForciblyEnable(false);
        return config;
    }
}
