package peer;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * RocketMQ's own DefaultMessageStore under measurement, in one long-lived JVM.
 *
 * <p>One request a line on stdin, tab-separated: a verb, then name=value. One answer a line on
 * stdout: "ok" and name=number, or "error" and why. Only what an answer's numbers name is timed,
 * and it is timed in here: neither the opening of a store nor its end nor the pipe.
 */
public final class Peer {
    private Peer() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err); // stdout carries answers only, whatever a library prints
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String answer = answer(line);
            System.gc(); // unmaps the files of closed stores, outside of any measurement
            answers.println(answer);
        }
        Runtime.getRuntime().halt(0); // RocketMQ leaves threads behind that are no daemons
    }

    private static String answer(String line) {
        try {
            return run(new Request(line)).entrySet().stream()
                .map(each -> "\t" + each.getKey() + "=" + each.getValue())
                .collect(Collectors.joining("", "ok", ""));
        } catch (Throwable failure) {
            failure.printStackTrace();
            return "error\t" + failure.toString().replaceAll("\\s+", " ");
        }
    }

    private static Map<String, Double> run(Request request) throws Exception {
        switch (request.verb) {
            case "append":
                return Appends.run(request);
            case "sync":
                return SyncPuts.run(request);
            case "send":
                return Sends.run(request);
            case "transactions":
                return Transactions.run(request);
            case "pull":
                return Pulls.run(request);
            case "wake":
                return Wakes.run(request);
            case "push":
                return PushConsumers.run(request);
            case "open":
                return Openings.open(request);
            case "rebuild":
                return Openings.rebuild(request);
            case "read-queues":
                return Reads.queues(request);
            case "read-offsets":
                return Reads.offsets(request);
            case "query-keys":
                return Reads.keys(request);
            case "look-ids":
                return Reads.ids(request);
            case "offsets-by-time":
                return Reads.offsetsByTime(request);
            case "read-filtered":
                return Reads.filtered(request);
            case "read-by-many":
                return Reads.byMany(request);
            default:
                throw new IllegalArgumentException("unknown verb " + request.verb);
        }
    }
}
