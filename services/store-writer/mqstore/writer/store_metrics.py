"""Metrics of store-writer's requests and of its store, read at each scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqstore.service.metrics import OTHER_TOPICS, Histogram, PacedValue, RocketmqNames, Traffic
from mqstore.storage import MessageStore, topic_names
from mqstore.storage.errors import Lack, StorageError
from mqstore.storage.formats import HALF_TOPIC
from mqstore.storage.puts import Placement, PutRefusal
from mqstore.storage.retention import GOING
from mqstore.storage.status import QuarantineService, Retention, ScrubProgress, StoreStatus
from mqstore.writer.clock_metrics import of_clock
from mqstore.writer.rebuild_metrics import of_index
from mqstore.writer.waits import REPLICA

PUT_BUCKETS_S: Final = (
    *(0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10),
)
PUT_TIMES: Final = {
    "0ms": 0.001,
    "0to10ms": 0.01,
    "10to50ms": 0.05,
    "50to100ms": 0.1,
    "100to200ms": 0.2,
    "200to500ms": 0.5,
    "500to1s": 1,
    "1to2s": 2,
    "2to3s": 3,
    "3to4s": 4,
    "4to5s": 5,
    "5to10s": 10,
}
"""RocketMQ's distribution of put times (putMessageDistributeTime), named as its exporter does:
each with its upper bound in seconds; all above is 10stomore."""
SIZE_BUCKETS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""Bounds in bytes of the buckets of rocketmq_message_size."""
PUT_REFUSALS: Final = (
    *("read-only", "failed", "closing", "paused", "disk-full"),
    *(lack.value for lack in Lack),
)
"""Each reason of ``PutRefusal``."""


DELIVERY_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600)


class StoreMetrics(Collector):
    """Collects store-writer's metrics: counters of the event loop, and values of the store.

    Counters are plain numbers that only the event loop changes, except ``delivery_seconds``.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        names: RocketmqNames,
        topics_max: int,
        store: Callable[[], MessageStore | None],
        refused_openings: Callable[[], int],
    ) -> None:
        self.sync_seconds = Histogram()
        self.replica_seconds = Histogram()
        self.put_seconds = Histogram(PUT_BUCKETS_S)
        self.message_size = Histogram(SIZE_BUCKETS)
        self.delivery_seconds = Histogram(DELIVERY_BUCKETS_S)
        """Observed only by the thread that delivers delayed messages."""
        self.traffic = Traffic(topics_max)
        self.traffic_out = Traffic(topics_max, OTHER_TOPICS)
        """Messages that shared groups received."""
        self._names = names
        self._store = store
        self._refused_openings = refused_openings
        self._files = PacedValue(lambda: _mapped_files(store()))
        self._group_count = PacedValue(lambda: _group_count(store()))
        registry.register(self)

    def waits_of(self, waits: int) -> Histogram:
        """Return the times of waits for the disk, or for a slave and maybe the disk."""
        return self.replica_seconds if waits & REPLICA else self.sync_seconds

    def count_append(
        self, topic: str, placements: Sequence[Placement], *, delayed: bool, seconds: float
    ) -> None:
        """Count one append. ``seconds`` is the time from the request of the put lock to the end."""
        count = len(placements)
        size = placements[-1].end - placements[0].physical_offset
        self.put_seconds.observe(seconds)
        self.message_size.observe(size / count)
        self.traffic.count(topic, "delay" if delayed else "normal", count, size)

    def count_transaction_append(self, messages: Sequence[tuple[str, int]], seconds: float) -> None:
        """Count one append of transactions: half messages as a RocketMQ broker counts them, which
        is under their own topic, and the messages that a commit makes visible under theirs.

        ``messages`` are the topics and sizes of both.
        """
        self.put_seconds.observe(seconds)
        for topic, size in messages:
            if topic == HALF_TOPIC:
                self.message_size.observe(size)
            self.traffic.count(topic, "transaction", 1, size)

    def watch(self, store: MessageStore) -> None:
        """Observe the delays of the messages that this store delivers."""
        observe = self.delivery_seconds.observe
        store.delays.service.on_delivered = lambda late_ms: observe(late_ms / 1000)
        store.delays.timer.on_delivered = store.delays.service.on_delivered

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics; those of the store only while it is open."""
        store = self._store()
        yield from self._of_puts(store)
        once = None if store is None else store.dedup
        yield CounterMetricFamily(
            "mqstore_repeats",
            "Duplicate messages: already stored under their unique key, and replied to with the "
            "first one's offset.",
            value=0 if once is None else once.repeats,
        )
        yield GaugeMetricFamily(
            "mqstore_unique_keys_known",
            "Unique keys by which a duplicate is recognised now.",
            value=0 if once is None else once.count,
        )
        yield GaugeMetricFamily(
            "mqstore_store_open",
            "1 while the store is open. 0: it is being recovered, or the opening failed.",
            value=float(store is not None),
        )
        yield CounterMetricFamily(
            "mqstore_openings_refused",
            "Attempts to open the store that failed because the disk refused the recovery.",
            value=self._refused_openings(),
        )
        yield GaugeMetricFamily(
            "mqstore_store_read_only",
            "1 while the store is open read-only; an operator must act.",
            value=float(store is not None and store.read_only_reason is not None),
        )
        loss = None if store is None else store.recovery.plan.loss
        yield GaugeMetricFamily(
            "mqstore_durable_bytes_missing",
            "Bytes of the log that were synced and are absent. Above 0 the store is read-only.",
            value=0 if loss is None else loss.missing_bytes,
        )
        failed = store is not None and store.failure is not None
        yield GaugeMetricFamily(
            "mqstore_store_failed",
            "1 after the disk failed under the open store; the process ends.",
            value=float(failed),
        )
        if store is not None:
            status = store.status()
            yield from _of_store(status)
            yield from _of_files(store, self._files.get())
            yield from _of_refusal(store.put_refusal)
            yield from _of_retention(store.retention, status)
            yield from _of_scrub(store.scrub.progress)
            yield CounterMetricFamily(
                "mqstore_damage_reports",
                "Blocks of the log that look-ups of store-writer and query reported as damaged or "
                "unreadable; the scrub checks each.",
                value=store.scrub.report_count,
            )
            yield _of_quarantine(store.quarantine)
            yield from of_index(store)
            yield from of_clock(store, time.monotonic())
            yield from self._of_delays(store)
            yield from self._as_rocketmq(store, status)

    def _of_puts(self, store: MessageStore | None) -> Iterable[Metric]:
        yield HistogramMetricFamily(
            "mqstore_put_seconds",
            "Seconds from the request for the put lock until the messages are in log and queue.",
            self.put_seconds.buckets(),
            self.put_seconds.total,
        )
        yield HistogramMetricFamily(
            "mqstore_sync_wait_seconds",
            "Seconds that synchronous produces waited for their group commit.",
            self.sync_seconds.buckets(),
            self.sync_seconds.total,
        )
        yield HistogramMetricFamily(
            "mqstore_replica_wait_seconds",
            "Seconds that produces waited for a slave, and for the disk if they wait for both.",
            self.replica_seconds.buckets(),
            self.replica_seconds.total,
        )
        if store is not None:
            is_system = partial(topic_names.is_system_topic, store_format=store.format)
            yield from self._names.traffic("in", self.traffic, "message_type", is_system)
            yield from self._names.traffic("out", self.traffic_out, "consumer_group", is_system)
        text = "Bytes of a stored record; of a request with several messages, their mean."
        yield self._names.histogram("message_size", text, self.message_size)

    def _as_rocketmq(self, store: MessageStore, status: StoreStatus) -> Iterable[Metric]:
        stored, gauge = self._names.stored, self._names.gauge
        behind = status.max_offset - status.flushed_offset
        yield stored("storage_size", "Used bytes of the log's volume.", status.disk_used)
        text = "Bytes of the log that are not synced; a power failure loses them."
        yield stored("storage_flush_behind_bytes", text, behind)
        behind = status.max_offset - status.dispatched_offset
        text = "Bytes of the log that have no queue entries yet; consumers cannot see them."
        yield stored("storage_dispatch_behind_bytes", text, behind)
        earliest = _earliest_ms(store)
        if earliest is not None:
            age_ms = time.time() * 1000 - earliest
            text = "Age of the oldest message, in milliseconds."
            yield stored("storage_message_reserve_time", text, age_ms)
            yield GaugeMetricFamily(
                "rocketmq_brokeruntime_earliest_message_timestamp",
                "Store time of the oldest message, in milliseconds since 1970.",
                value=earliest,
            )
        yield gauge("topic_number", "Topics of the store.", status.topics)
        groups = self._group_count.get()
        yield gauge("consumer_group_number", "Consumer groups of the store.", groups)
        yield GaugeMetricFamily(
            "rocketmq_brokeruntime_pagecache_lock_time_mills",
            "Milliseconds that the put with the lock has waited for a segment. Above "
            "osPageCacheBusyTimeOutMills further puts are refused (page-cache-busy).",
            value=store.log.next_segment.waiting_ms,
        )
        yield from self._put_times()

    def _put_times(self) -> Iterable[Metric]:
        """Yield the put times like RocketMQ's exporter, but counted since the process started."""
        below = 0.0
        cumulative = dict(self.put_seconds.buckets())
        for name, bound in PUT_TIMES.items():
            up_to = cumulative[f"{bound:g}"]
            yield _put_time(name, up_to - below)
            below = up_to
        yield _put_time("10stomore", cumulative["+Inf"] - below)

    def _of_delays(self, store: MessageStore) -> Iterable[Metric]:
        labels = ["level", "delay"]
        pending = GaugeMetricFamily(
            "mqstore_delay_pending",
            "Delayed messages that wait, by level and its delay; level timer: those with a time.",
            labels=labels,
        )
        behind = GaugeMetricFamily(
            "mqstore_delay_behind_seconds",
            "Seconds since the first waiting message of a level was due, by level and its delay. "
            "Above a few seconds, delivery is behind.",
            labels=labels,
        )
        now_ms, total = time.time() * 1000, 0
        for each in store.delays.status():
            total += each.pending
            late_ms = 0.0 if each.next_due_ms is None else max(0.0, now_ms - each.next_due_ms)
            pending.add_metric([str(each.level), each.delay], each.pending)
            behind.add_metric([str(each.level), each.delay], late_ms / 1000)
        timed = store.delays.timer.status()
        late_ms = 0.0 if timed.next_due_ms is None else max(0.0, now_ms - timed.next_due_ms)
        pending.add_metric(["timer", ""], timed.pending)
        behind.add_metric(["timer", ""], late_ms / 1000)
        yield pending
        yield behind
        yield HistogramMetricFamily(
            "mqstore_delay_delivery_seconds",
            "Seconds from when a delayed message was due until its copy was stored.",
            self.delivery_seconds.buckets(),
            self.delivery_seconds.total,
        )
        yield self._names.gauge(
            "timing_messages",
            "Delayed messages that wait; topic is SCHEDULE_TOPIC_XXXX, where they are stored.",
            total,
            storage_type="local",
            storage_medium="disk",
            topic="SCHEDULE_TOPIC_XXXX",
        )


def _put_time(name: str, count: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        f"rocketmq_brokeruntime_pmdt_{name}",
        "Puts since the start of the process that took a time in the range of the name. A broker's "
        "value is that of the last minute.",
        value=count,
    )


def _earliest_ms(store: MessageStore) -> int | None:
    try:
        return store.lookups.by_physical_offset(store.log.min_offset).store_timestamp_ms
    except StorageError:
        return None


def _of_store(status: StoreStatus) -> Iterable[Metric]:
    offsets = GaugeMetricFamily(
        "mqstore_store_offset",
        "Offsets of the log in bytes, by bound: min, max, flushed, dispatched, indexed.",
        labels=["bound"],
    )
    offsets.add_metric(["min"], status.min_offset)
    offsets.add_metric(["max"], status.max_offset)
    offsets.add_metric(["flushed"], status.flushed_offset)
    offsets.add_metric(["dispatched"], status.dispatched_offset)
    offsets.add_metric(["indexed"], status.index_offset)
    yield offsets
    disk = GaugeMetricFamily(
        "mqstore_disk_bytes",
        "Bytes of the log's volume, by kind: total, used, free.",
        labels=["kind"],
    )
    disk.add_metric(["total"], status.disk_total)
    disk.add_metric(["used"], status.disk_used)
    disk.add_metric(["free"], status.disk_free)
    yield disk
    yield GaugeMetricFamily("mqstore_queues", "Consume queues of the store.", value=status.queues)
    yield CounterMetricFamily(
        "mqstore_damaged_stretches",
        "Ranges of the log that dispatch could not read since the start. Above 0, messages are "
        "missing in their queues.",
        value=status.damaged_stretches,
    )


def _group_count(store: MessageStore | None) -> int:
    return 0 if store is None else store.groups.count()


def _mapped_files(store: MessageStore | None) -> dict[str, tuple[int, int]]:
    """The number of mapped files, and their bytes, by kind."""
    if store is None:
        return {}
    queues = store.queues.opened()
    units = [queue.ext for queue in queues if queue.ext is not None]
    sizes = {
        "commitlog": [file.size for file in store.log.files.files],
        "consumequeue": [size for queue in queues for size in queue.files.mapped_sizes()],
        "consumequeue_ext": [size for ext in units for size in ext.files.mapped_sizes()],
        "index": [file.mapped.size for file in store.index.files],
    }
    return {kind: (len(found), sum(found)) for kind, found in sizes.items()}


def _of_files(store: MessageStore, mapped: Mapping[str, tuple[int, int]]) -> Iterable[Metric]:
    kinds = "commitlog, consumequeue, consumequeue_ext, index"
    files = GaugeMetricFamily(
        "mqstore_mapped_files", f"Mapped files, by kind: {kinds}.", labels=["kind"]
    )
    size = GaugeMetricFamily(
        "mqstore_mapped_bytes", f"Bytes of the mapped files, by kind: {kinds}.", labels=["kind"]
    )
    for kind, (count, total) in mapped.items():
        files.add_metric([kind], count)
        size.add_metric([kind], total)
    yield files
    yield size
    yield GaugeMetricFamily(
        "mqstore_recovery_seconds",
        "Seconds that the opening of the store took, recovery included.",
        value=store.recovery.duration_ms / 1000,
    )


def _of_refusal(refusal: PutRefusal | None) -> Iterable[Metric]:
    refused = GaugeMetricFamily(
        "mqstore_puts_refused",
        f"1 while messages are refused, by reason: {', '.join(PUT_REFUSALS)}. disk-full is a ratio "
        "of the volume, no-room the next file.",
        labels=["reason"],
    )
    for reason in PUT_REFUSALS:
        refused.add_metric([reason], float(refusal is not None and refusal.reason == reason))
    yield refused
    yield GaugeMetricFamily(
        "mqstore_puts_refused_disk",
        "1 while messages are refused for lack of room: disk-full or no-room.",
        value=float(refusal is not None and refusal.is_for_room),
    )


def _of_retention(retention: Retention, status: StoreStatus) -> Iterable[Metric]:
    disks = retention.disks
    for volume in disks.volumes:
        # Under the names of RocketMQ's exporter, whose dashboards have them.
        yield GaugeMetricFamily(
            f"rocketmq_brokeruntime_{volume.name}_disk_ratio",
            f"Used part of the volume of {volume.name}, 0 to 1.",
            value=volume.used_percent / 100,
        )
    segments = CounterMetricFamily(
        "mqstore_segments_deleted",
        "Segments that retention deleted, by why: expired, forced (the disk was too full), reader "
        "(deleted although a process still read it).",
        labels=["why"],
    )
    for why in sorted(GOING):
        segments.add_metric([why.value], retention.deleted[why])
    yield segments
    derived = CounterMetricFamily(
        "mqstore_derived_files_deleted",
        "Files that retention deleted after their segments, by kind: consumequeue, index.",
        labels=["kind"],
    )
    derived.add_metric(["consumequeue"], retention.removal.queue_files)
    derived.add_metric(["index"], retention.removal.index_files)
    yield derived
    yield GaugeMetricFamily(
        "mqstore_pins",
        "Leases of ranges of the log, which retention keeps for backups, jobs and readers.",
        value=len(retention.pins()),
    )
    mark = retention.archive
    yield GaugeMetricFamily(
        "mqstore_archive_mark_seconds",
        "Unix time of the last report of the archive job; 0: retention waits for no archive.",
        value=0 if mark is None else mark.marked_ms / 1000,
    )
    yield GaugeMetricFamily(
        "mqstore_archive_behind_bytes",
        "Bytes of the log that are not archived; 0 where retention waits for no archive.",
        value=0 if mark is None else max(0, status.max_offset - mark.offset),
    )


def _of_quarantine(quarantine: QuarantineService) -> Metric:
    return GaugeMetricFamily(
        "mqstore_quarantine_bytes",
        "Bytes that recoveries and repairs set aside in the store directory; "
        "GET /v1/store/quarantine lists them.",
        value=sum(entry.length for entry in quarantine.entries()),
    )


def _of_scrub(progress: ScrubProgress) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "mqstore_scrub_findings",
        "Places of the log that differ from what was written; GET /v1/store/scrub lists them.",
        value=progress.finding_count,
    )
    repairs = CounterMetricFamily(
        "mqstore_log_repairs",
        "Places of the log that were repaired, by kind: restored (as they were written) or "
        "tombstone (the message is lost).",
        labels=["kind"],
    )
    repairs.add_metric(["restored"], progress.repair_count - progress.tombstone_count)
    repairs.add_metric(["tombstone"], progress.tombstone_count)
    yield repairs
    yield GaugeMetricFamily(
        "mqstore_scrub_last_pass_seconds",
        "Unix time at which the last whole scrub of the log ended; 0: none yet.",
        value=(progress.last_pass_ended_at_ms or 0) / 1000,
    )
    yield GaugeMetricFamily(
        "mqstore_scrub_checked_bytes",
        "Bytes that the running pass of the scrub, or the last one, has compared with checksums.",
        value=progress.checked_bytes,
    )
