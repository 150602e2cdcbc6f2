package peer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;

/**
 * RocketMQ's client against a broker: a connection and a thread each, the next send after the
 * answer to the last. It stands below the look-up of routes, as there is no name server.
 */
final class Sends {
    private static final long TIMEOUT_MS = 60_000;

    private Sends() {
    }

    static Map<String, Double> run(Request request) throws Exception {
        int connections = request.number("connections");
        int sends = request.number("sends");
        List<MQClientAPIImpl> clients = new ArrayList<>();
        ExecutorService pool = Executors.newFixedThreadPool(connections);
        try {
            for (int i = 0; i < connections; i++) {
                clients.add(connect());
            }
            sendAll(request, clients, pool, 1); // connects
            long cpu = Cpu.nanos();
            long began = System.nanoTime();
            long[] latencies = sendAll(request, clients, pool, sends);
            double seconds = (System.nanoTime() - began) / 1e9;
            double messages = (double) latencies.length * request.number("batch");
            Map<String, Double> figures = new HashMap<>();
            figures.put("rate", messages / seconds);
            figures.put("client", Cpu.cost(cpu, messages));
            Latencies.put(figures, latencies);
            return figures;
        } finally {
            pool.shutdown();
            clients.forEach(MQClientAPIImpl::shutdown);
        }
    }

    static MQClientAPIImpl connect() {
        MQClientAPIImpl client = new MQClientAPIImpl(new NettyClientConfig(),
            new ClientRemotingProcessor(null), null, new ClientConfig());
        client.start();
        return client;
    }

    /** One message to queue 0. */
    static SendResult one(MQClientAPIImpl client, String address, int size) throws Exception {
        SendResult result = client.sendMessage(address, "bench",
            new Message(Workload.TOPIC, Workload.body(size)), header(0, "", false), TIMEOUT_MS,
            CommunicationMode.SYNC, null, null);
        check(result);
        return result;
    }

    private static long[] sendAll(Request request, List<MQClientAPIImpl> clients,
        ExecutorService pool, int sends) throws Exception {
        List<Callable<long[]>> workers = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            MQClientAPIImpl client = clients.get(i);
            int number = i;
            workers.add(() -> send(request, client, number, sends));
        }
        long[] all = new long[clients.size() * sends];
        int position = 0;
        for (Future<long[]> worker : pool.invokeAll(workers)) {
            System.arraycopy(worker.get(), 0, all, position, sends);
            position += sends;
        }
        return all;
    }

    private static long[] send(Request request, MQClientAPIImpl client, int number, int sends)
        throws Exception {
        int batch = request.number("batch");
        int first = number * sends * batch;
        byte[] body = Workload.body(request.number("body"));
        String address = "127.0.0.1:" + request.number("port");
        int queueId = number % Workload.QUEUES;
        String[] properties = batch == 1 ? Workload.properties(first, sends) : null;
        byte[] encoded = batch == 1 ? body : Workload.encodedBatch(first, batch, body);
        return Latencies.time(sends, i -> check(client.sendMessage(address, "bench",
            new Message(Workload.TOPIC, encoded),
            header(queueId, properties == null ? "" : properties[i], batch > 1), TIMEOUT_MS,
            CommunicationMode.SYNC, null, null)));
    }

    private static SendMessageRequestHeader header(int queueId, String properties, boolean batch) {
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup("bench");
        header.setTopic(Workload.TOPIC);
        header.setDefaultTopic("TBW102"); // the topic is made by its first message
        header.setDefaultTopicQueueNums(Workload.QUEUES);
        header.setQueueId(queueId);
        header.setSysFlag(0);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(0);
        header.setProperties(properties);
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        header.setBatch(batch);
        return header;
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("send: " + result.getSendStatus());
        }
    }
}
