"""Metrics of the slaves that copy the log, and of a follower's copy of its leader's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.service.metrics import Traffic
from mqstore.service.settings import Settings
from mqstore.writer.replication.follower import Follower, LinkState
from mqstore.writer.replication.in_sync_watch import CopyState
from mqstore.writer.replication.leader import Leader, wanted_replicas


class ReplicationMetrics(Collector):
    """Read at each scrape, from any thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        leader: Leader,
        settings: Settings,
        follower: Callable[[], Follower | None],
        epoch: Callable[[], int],
        followed: Traffic,
    ) -> None:
        """``follower`` returns None in a leader. ``epoch`` returns the newest epoch of the log.
        ``followed`` has the messages that were copied from a leader, by topic."""
        self._leader = leader
        self._settings = settings
        self._follower = follower
        self._epoch = epoch
        self._followed = followed
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The values at this moment, as ``Collector``."""
        server, watch = self._leader.ha, self._leader.watch
        yield GaugeMetricFamily(
            "mqstore_replication_epoch",
            "Newest epoch of the log, which each new leader begins; 0 before the first one.",
            value=self._epoch(),
        )
        yield from self._of_slaves([] if watch is None else watch.states)
        yield GaugeMetricFamily(
            "mqstore_replication_in_sync",
            "Copies in sync, this leader included; 0 in a follower, and where no copy may connect.",
            value=0 if watch is None else len(watch.copies.names),
        )
        yield GaugeMetricFamily(
            "mqstore_replication_in_sync_min",
            "Least number of copies in sync, minInSyncReplicas; 0 where no copy may connect.",
            value=0 if watch is None else self._settings.min_in_sync_replicas,
        )
        yield GaugeMetricFamily(
            "mqstore_replication_wanted",
            "Replicas that the shard is to have, this leader included; 0 in a follower, and where "
            "no copy may connect.",
            value=0 if watch is None else wanted_replicas(self._settings),
        )
        yield GaugeMetricFamily(
            "mqstore_replication_unconfirmed_bytes",
            "Bytes of the log that not every copy in sync has on its disk.",
            value=0 if watch is None else watch.unconfirmed,
        )
        yield CounterMetricFamily(
            "mqstore_replication_sent_bytes",
            "Bytes of the log that were sent to slaves.",
            value=0 if server is None else server.sent_bytes,
        )
        yield CounterMetricFamily(
            "mqstore_replication_fetched_bytes",
            "Bytes of damaged records that were fetched from followers in sync.",
            value=0 if server is None else server.fetched_bytes,
        )
        yield CounterMetricFamily(
            "mqstore_replication_refused",
            "Connections that were closed because the slave cannot copy this log from its end, or "
            "does not follow the protocols, as the log of store-writer says.",
            value=self._leader.refused,
        )
        yield from self._of_follower(self._follower())
        yield from self._of_followed()

    def _of_slaves(self, slaves: Sequence[CopyState]) -> Iterable[Metric]:
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
        lag_s = GaugeMetricFamily(
            "mqstore_replication_lag_seconds",
            "For how long each slave has lacked a part of the log, by slave.",
            labels=["slave"],
        )
        for slave in slaves:
            acknowledged.add_metric([slave.name], slave.acknowledged)
            lag.add_metric([slave.name], slave.lag_bytes)
            if slave.lag_s is not None:
                lag_s.add_metric([slave.name], slave.lag_s)
        yield from (acknowledged, lag, lag_s)

    def _of_followed(self) -> Iterable[Metric]:
        messages = CounterMetricFamily(
            "mqstore_replication_messages",
            "Messages that a follower copied from its leader, by topic, as the statistics of a "
            "RocketMQ slave count them.",
            labels=["topic"],
        )
        size = CounterMetricFamily(
            "mqstore_replication_message_bytes",
            "Bytes of the records of those messages, by topic.",
            labels=["topic"],
        )
        for (topic, _), (count, bytes_) in self._followed.busiest().items():
            messages.add_metric([topic], count)
            size.add_metric([topic], bytes_)
        yield from (messages, size)

    def _of_follower(self, follower: Follower | None) -> Iterable[Metric]:
        follows = follower is not None and follower.link.state is LinkState.FOLLOWING
        yield GaugeMetricFamily(
            "mqstore_replication_following",
            "1 while this store copies the log of a leader that it is connected to.",
            value=float(follows),
        )
        yield CounterMetricFamily(
            "mqstore_replication_corrupt_frames",
            "Frames of the leader's log that arrived with another checksum than they were sent "
            "with, and were requested again.",
            value=0 if follower is None else follower.corrupt_frames,
        )
        yield GaugeMetricFamily(
            "mqstore_replication_behind_bytes",
            "Bytes of the leader's log that a follower lacks, as far as is known; 0 in a leader.",
            value=0 if follower is None else follower.lag,
        )
