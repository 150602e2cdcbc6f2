package referee;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The referee: drives the real DefaultMessageStore of one RocketMQ version.
 *
 * <pre>
 * serve                          JSON commands on stdin, one a line; answers on stdout
 * write   DIR SCRIPT             make a store: run a script (first line: config, then operations)
 * append  DIR SCRIPT             open an existing store and run a script on it
 * dump    DIR [CONFIG] [--queries]   recover DIR and print all that the store sees
 * rebuild DIR [CONFIG]           build queues and index of DIR anew from its log
 * clean (served only)            rounds of deletion by hand, as deleteExpiredCommitLog requests
 * evaluate (served only)         what filter expressions say of properties
 * recode (served only)           a config file's text, read and written by its manager
 * subscribe (served only)        consumerFilter.json after registrations
 * pull (served only)             what groups get of queues, by a broker's filters
 * properties (served only)       names of settings that RocketMQ takes from its files
 * judge (served only)            names of topics and groups that a broker allows
 * parse (served only)            what Java reads in properties files
 * configure (served only)        what a broker has after it read settings files
 * bloom (served only)            where a subscription's bits are
 * transact DIR REQUEST           a whole broker on DIR, and a TransactionMQProducer; ends the JVM
 * consume DIR REQUEST            a whole broker on DIR, and a group that sends back; ends the JVM
 * permissions DIR REQUEST       a whole broker on DIR, and groups that pull; ends the JVM
 * time DIR REQUEST               a whole broker on DIR, and messages with a delay; ends the JVM
 * slave DIR REQUEST              a whole broker on DIR that copies its master; commands on stdin
 * master DIR REQUEST             a whole broker on DIR whose log is copied; commands on stdin
 * states DIR REQUEST             a whole broker on DIR and its clients; commands on stdin
 * starts DIR REQUEST             whether a whole broker starts on DIR; ends the JVM
 * </pre>
 *
 * A served command is {"cmd":…,"dir":…,"script":FILE | "config":{…},"queries":bool,
 * "rounds":int}. Every answer
 * is JSON lines closed by {"t":"end","ok":true} or {"t":"end","ok":false,"error":…}.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream stdout = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err); // stdout carries answers only, whatever a library prints
        Output out = new Output(stdout);
        boolean ok = true;
        if (args.length == 1 && args[0].equals("serve")) {
            serve(out);
        } else if (args.length >= 2) {
            ok = answer(commandOf(args), out);
        } else {
            System.err.println("usage: serve | write DIR SCRIPT | append DIR SCRIPT"
                + " | dump DIR [CONFIG] [--queries] | rebuild DIR [CONFIG]");
            System.exit(2);
        }
        // RocketMQ leaves threads behind that are no daemons.
        Runtime.getRuntime().halt(ok ? 0 : 1);
    }

    private static void serve(Output out) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answer(JsonParser.parseString(line).getAsJsonObject(), out);
        }
    }

    private static JsonObject commandOf(String[] args) throws Exception {
        JsonObject command = new JsonObject();
        command.addProperty("cmd", args[0]);
        command.addProperty("dir", args[1]);
        for (int i = 2; i < args.length; i++) {
            if (args[i].equals("--queries")) {
                command.addProperty("queries", true);
            } else if (args[0].equals("transact") || args[0].equals("consume")
                || args[0].equals("time") || args[0].equals("slave")
                || args[0].equals("master") || args[0].equals("permissions")
                || args[0].equals("states") || args[0].equals("starts")) {
                command.add("request", JsonParser.parseString(args[i]));
            } else if (args[0].equals("write") || args[0].equals("append")) {
                command.addProperty("script", args[i]);
            } else {
                command.add("config", JsonParser.parseString(Files.readString(Path.of(args[i]))));
            }
        }
        return command;
    }

    private static boolean answer(JsonObject command, Output out) {
        JsonObject end = new JsonObject();
        end.addProperty("t", "end");
        try {
            run(command, out);
            end.addProperty("ok", true);
        } catch (Throwable failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            end.addProperty("ok", false);
            end.addProperty("error", trace.toString());
        }
        out.line(end);
        out.flush();
        return end.get("ok").getAsBoolean();
    }

    private static void run(JsonObject command, Output out) throws Exception {
        Path dir = Path.of(command.has("dir") ? command.get("dir").getAsString() : "");
        JsonObject config =
            command.has("config") ? command.getAsJsonObject("config") : new JsonObject();
        switch (command.get("cmd").getAsString()) {
            case "write":
                if (Files.exists(dir.resolve("commitlog"))) {
                    throw new IllegalArgumentException(dir + " holds a store; use append");
                }
                Script.run(dir, Path.of(command.get("script").getAsString()), out);
                break;
            case "append":
                Script.run(dir, Path.of(command.get("script").getAsString()), out);
                break;
            case "dump":
                boolean queries = command.has("queries") && command.get("queries").getAsBoolean();
                Dump.run(dir, config, queries, out);
                break;
            case "rebuild":
                Rebuild.run(dir, config, out);
                break;
            case "clean":
                Clean.run(dir, config, command.get("rounds").getAsInt(), out);
                break;
            case "times":
                Times.run(dir, config, command.getAsJsonArray("requests"), out);
                break;
            case "evaluate":
                Filters.evaluate(command.getAsJsonArray("requests"), out);
                break;
            case "recode":
                Tables.recode(command.get("file").getAsString(),
                    command.get("text").getAsString(), out);
                break;
            case "subscribe":
                Tables.subscribe(command.getAsJsonArray("requests"), out);
                break;
            case "transact":
                Transactions.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "consume":
                Consumers.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "permissions":
                Permissions.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "time":
                Timers.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "slave":
                Slave.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "master":
                Master.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "states":
                States.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "starts":
                Starts.run(dir, command.getAsJsonObject("request"), out);
                break;
            case "pull":
                Pull.run(dir, config, command.getAsJsonArray("requests"), out);
                break;
            case "properties":
                Properties.list(out);
                break;
            case "judge":
                Validity.judge(command.getAsJsonArray("names"), out);
                break;
            case "parse":
                Properties.parse(command.getAsJsonArray("files"), out);
                break;
            case "configure":
                Properties.configure(command.getAsJsonArray("files"), out);
                break;
            case "bloom":
                Filters.bloom(command.getAsJsonArray("requests"), out);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.get("cmd"));
        }
    }
}
