"""Metrics of the slaves that copy the log, and of a follower's copy of its leader's."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.writer.replication.follower import Follower, LinkState
from mqstore.writer.replication.ha_server import HaServer


class ReplicationMetrics(Collector):
    """Read at each scrape, from any thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        server: Callable[[], HaServer | None],
        follower: Callable[[], Follower | None],
    ) -> None:
        """``server`` returns None while no slave may connect, ``follower`` in a leader."""
        self._server = server
        self._follower = follower
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The values at this moment, as ``Collector``."""
        server = self._server()
        slaves = [] if server is None else server.slaves
        end = 0 if server is None else server.end
        yield GaugeMetricFamily(
            "mqstore_replication_slaves",
            "Slaves that are connected and copy the log.",
            value=len(slaves),
        )
        acknowledged = GaugeMetricFamily(
            "mqstore_replication_acknowledged_offset",
            "End of the log of each slave as it last reported it, by slave.",
            labels=["slave"],
        )
        lag = GaugeMetricFamily(
            "mqstore_replication_lag_bytes",
            "Bytes of the log that each slave has not acknowledged, by slave.",
            labels=["slave"],
        )
        for slave in slaves:
            acknowledged.add_metric([slave.name], slave.acknowledged)
            lag.add_metric([slave.name], max(0, end - slave.acknowledged))
        yield acknowledged
        yield lag
        yield CounterMetricFamily(
            "mqstore_replication_sent_bytes",
            "Bytes of the log that were sent to slaves.",
            value=0 if server is None else server.sent_bytes,
        )
        yield CounterMetricFamily(
            "mqstore_replication_refused",
            "Connections that were closed because the slave cannot copy this log from its end, as "
            "the log of store-writer says.",
            value=0 if server is None else server.refused,
        )
        yield from self._of_follower(self._follower())

    def _of_follower(self, follower: Follower | None) -> Iterable[Metric]:
        follows = follower is not None and follower.link.state is LinkState.FOLLOWING
        yield GaugeMetricFamily(
            "mqstore_replication_following",
            "1 while this store copies the log of a leader that it is connected to.",
            value=float(follows),
        )
        yield GaugeMetricFamily(
            "mqstore_replication_behind_bytes",
            "Bytes of the leader's log that a follower lacks, as far as is known; 0 in a leader.",
            value=0 if follower is None else follower.lag,
        )
