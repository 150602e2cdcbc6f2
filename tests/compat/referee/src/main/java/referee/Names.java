package referee;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import org.apache.rocketmq.common.UtilAll;

/** Text forms: hosts as "IP|port", index files by their creation time. */
final class Names {
    private Names() {
    }

    static InetSocketAddress host(String text) throws UnknownHostException {
        int bar = text.lastIndexOf('|');
        InetAddress address = InetAddress.getByName(text.substring(0, bar));
        return new InetSocketAddress(address, Integer.parseInt(text.substring(bar + 1)));
    }

    static String host(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + "|" + address.getPort();
    }

    static String ofMillisecond(long time) {
        return UtilAll.timeMillisToHumanString(time);
    }
}
