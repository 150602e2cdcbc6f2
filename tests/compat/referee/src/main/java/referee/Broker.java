package referee;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerPathConfigHelper;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/**
 * A whole broker over a directory, and the name server through which clients find it; both live as
 * long as the JVM.
 */
final class Broker {
    final BrokerController real;
    final String nameServer;

    private Broker(BrokerController real, String nameServer) {
        this.real = real;
        this.nameServer = nameServer;
    }

    static Broker start(Path dir, JsonObject config) throws Exception {
        prepare();
        int namesPort = freePort();
        String nameServer = "127.0.0.1:" + namesPort;
        NamesrvController names = new NamesrvController(new NamesrvConfig(), server(namesPort));
        names.initialize();
        names.start();
        Settings settings = new Settings(dir, config);
        settings.broker.setNamesrvAddr(nameServer);
        Features.startController(settings);
        BrokerController real = start(dir, settings);
        while (names.getRouteInfoManager().getAllTopicList().getTopicList().isEmpty()) {
            Thread.sleep(10);
            real.registerBrokerAll(true, false, true); // 5.x by itself only after ten seconds
        }
        return new Broker(real, nameServer);
    }

    /** A broker whose name server, if any, is in its settings. */
    static Broker startAlone(Path dir, JsonObject config) throws Exception {
        prepare();
        Settings settings = new Settings(dir, config);
        return new Broker(start(dir, settings), settings.broker.getNamesrvAddr());
    }

    private static void prepare() {
        // As BrokerStartup does; who says no version is taken for one of 2013.
        System.setProperty("rocketmq.remoting.version",
            Integer.toString(MQVersion.CURRENT_VERSION));
        System.setProperty("tls.server.mode", "disabled"); // else each server makes itself a key
    }

    private static BrokerController start(Path dir, Settings settings) throws Exception {
        settings.broker.setBrokerIP1("127.0.0.1");
        BrokerPathConfigHelper.setBrokerConfigPath(dir.resolve("config/broker.properties").toString());
        BrokerController real =
            Features.newBroker(settings, server(freePort()), new NettyClientConfig());
        if (!settings.plugIn.isEmpty()) {
            real.getConfiguration().registerConfig(settings.plugIn);
        }
        if (!real.initialize()) {
            throw new IOException("RocketMQ refuses this store: initialize() is false for " + dir);
        }
        real.start();
        return real;
    }

    /**
     * What BrokerController.shutdown does to the files; the rest of it waits ten seconds for threads
     * of the network, which the end of this JVM ends too.
     */
    void close() {
        real.getTransactionalMessageService().close();
        Thread.currentThread().interrupt(); // as Store.close
        try {
            real.getMessageStore().shutdown();
        } finally {
            Thread.interrupted();
        }
        real.getConsumerOffsetManager().persist();
    }

    /** As BrokerStartup does; the sleeps of the store's shutdown, the last one, are cut short. */
    void shutdown() throws InterruptedException {
        Thread shutdown = new Thread(real::shutdown, "shutdown");
        shutdown.start();
        while (shutdown.isAlive()) {
            shutdown.join(20);
            StackTraceElement[] stack = shutdown.getStackTrace();
            if (stack.length > 0 && stack[0].getMethodName().equals("sleep")
                && Arrays.stream(stack).anyMatch(
                    each -> each.getClassName().endsWith(".DefaultMessageStore"))) {
                shutdown.interrupt();
            }
        }
    }

    static NettyServerConfig server(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        return config;
    }

    /**
     * The one two below is free too: a broker takes it for its fast lane. Both are below those that
     * the kernel gives to connections, one of which could take them before the broker listens.
     */
    static int freePort() {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(12_000, 30_000);
            try {
                new ServerSocket(port).close();
                new ServerSocket(port - 2).close();
                return port;
            } catch (IOException taken) {
                continue;
            }
        }
    }
}
