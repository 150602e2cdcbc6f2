"""Metrics of the slaves that copy the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.writer.replication.ha_server import HaServer


class ReplicationMetrics(Collector):
    """Read at each scrape, from any thread."""

    def __init__(self, registry: CollectorRegistry, server: Callable[[], HaServer | None]) -> None:
        """``server`` returns None while no slave may connect."""
        self._server = server
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
            acknowledged.add_metric([slave.address], slave.acknowledged)
            lag.add_metric([slave.address], max(0, end - slave.acknowledged))
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
