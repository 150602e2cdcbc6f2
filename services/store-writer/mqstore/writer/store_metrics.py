"""What store-writer counts, and the store's bounds, read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqstore.service.metrics import Latency
from mqstore.storage.message_store import MessageStore, StoreStatus
from mqstore.storage.retention.cleaner import Retention
from mqstore.storage.retention.plan import GOING


class StoreMetrics(Collector):
    """Counters are plain numbers that the event loop adds to."""

    def __init__(
        self,
        registry: CollectorRegistry,
        store: Callable[[], MessageStore | None],
        refused_openings: Callable[[], int],
    ) -> None:
        self.messages = 0
        self.bytes = 0
        self.sync_seconds = Latency()
        self._store = store
        self._refused_openings = refused_openings
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "mqstore_messages_stored", "Messages appended", value=self.messages
        )
        yield CounterMetricFamily(
            "mqstore_bytes_stored", "Bytes of their records", value=self.bytes
        )
        yield HistogramMetricFamily(
            "mqstore_sync_wait_seconds",
            "Time that sync requests waited for their group commit",
            self.sync_seconds.buckets(),
            self.sync_seconds.total,
        )
        store = self._store()
        yield GaugeMetricFamily(
            "mqstore_store_open", "Whether the store is open", value=float(store is not None)
        )
        yield CounterMetricFamily(
            "mqstore_openings_refused",
            "Attempts to open the store that the disk refused",
            value=self._refused_openings(),
        )
        yield GaugeMetricFamily(
            "mqstore_store_read_only",
            "Whether the store is open and takes no messages",
            value=float(store is not None and store.read_only_reason is not None),
        )
        failed = store is not None and store.failure is not None
        yield GaugeMetricFamily(
            "mqstore_store_failed",
            "Whether the disk failed under the open store, which ends the process",
            value=float(failed),
        )
        if store is not None:
            yield from _of_store(store.status())
            yield from _of_retention(store.retention)


def _of_store(status: StoreStatus) -> Iterable[Metric]:
    offsets = GaugeMetricFamily("mqstore_store_offset", "Bounds of the log", labels=["bound"])
    offsets.add_metric(["min"], status.min_offset)
    offsets.add_metric(["max"], status.max_offset)
    offsets.add_metric(["flushed"], status.flushed_offset)
    offsets.add_metric(["dispatched"], status.dispatched_offset)
    yield offsets
    disk = GaugeMetricFamily("mqstore_disk_bytes", "The store's volume", labels=["kind"])
    disk.add_metric(["total"], status.disk_total)
    disk.add_metric(["used"], status.disk_used)
    disk.add_metric(["free"], status.disk_free)
    yield disk
    yield GaugeMetricFamily("mqstore_segments", "Commit log files", value=status.segments)
    yield GaugeMetricFamily("mqstore_queues", "Consume queues", value=status.queues)


def _of_retention(retention: Retention) -> Iterable[Metric]:
    disks = retention.disks
    for volume in disks.volumes:
        # Under the names of RocketMQ's exporter, whose dashboards have them.
        yield GaugeMetricFamily(
            f"rocketmq_brokeruntime_{volume.name}_disk_ratio",
            f"Used part of the volume of {volume.name}, 0 to 1",
            value=volume.used_percent / 100,
        )
    yield GaugeMetricFamily(
        "mqstore_puts_refused_disk",
        "Whether puts are refused for want of room",
        value=float(disks.refuses),
    )
    segments = CounterMetricFamily(
        "mqstore_segments_deleted", "Commit log files deleted", labels=["why"]
    )
    for why in sorted(GOING):
        segments.add_metric([why.value], retention.deleted[why])
    yield segments
    derived = CounterMetricFamily(
        "mqstore_derived_files_deleted", "Queue and index files deleted", labels=["kind"]
    )
    derived.add_metric(["consumequeue"], retention.removal.queue_files)
    derived.add_metric(["index"], retention.removal.index_files)
    yield derived
