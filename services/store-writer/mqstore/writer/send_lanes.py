"""Plain JSON requests to one topic, which the kernel stores in one call each.

Called from ``routes`` on the event loop, before its general way, which has every reply.
"""

from __future__ import annotations

from typing import NamedTuple

from mqstore.storage import MessageStore
from mqstore.storage.admin import TopicConfig
from mqstore.storage.puts import SendLane, UniqueKeys
from mqstore.storage.settings import FlushDiskType
from mqstore.writer import produce
from mqstore.writer.store_metrics import StoreMetrics


class _Entry(NamedTuple):
    """A topic as it was when its lane was made."""

    topic: TopicConfig
    lane: SendLane


class SendLanes:
    """One lane for each topic, made at its first request and again when the topic changed."""

    def __init__(
        self,
        keys: UniqueKeys,
        queues: produce.QueueChooser,
        metrics: StoreMetrics,
        *,
        shard: int,
        count_max: int,
    ) -> None:
        self._keys = keys
        self._queues = queues
        self._metrics = metrics
        self._shard = shard
        self._count_max = count_max
        self._entries: dict[str, _Entry] = {}

    def get(self, store: MessageStore, topic: TopicConfig) -> SendLane | None:
        """Return the lane of a topic; None while the table of unique keys is not prepared, and where what
        is put counts only once it is committed."""
        entry = self._entries.get(topic.name)
        if entry is not None and entry.topic is topic:
            return entry.lane
        if store.commits is not None or (store.dedup is not None and store.dedup.tables is None):
            return None
        lane = self._make(store, topic)
        self._entries[topic.name] = _Entry(topic, lane)
        return lane

    def _make(self, store: MessageStore, topic: TopicConfig) -> SendLane:
        dedup = store.dedup
        return SendLane(
            store.log.end,
            produce.json_reader(store.format, self._keys, self._count_max),
            topic.name,
            queues=topic.write_queues,
            turns=self._queues.turns(topic.name),
            store_host=store.host,
            keys=None if dedup is None else dedup.tables,
            lock=None if dedup is None else dedup.lock,
            shard=self._shard,
            is_sync=store.config.flush_disk_type is FlushDiskType.SYNC,
            quote=produce.quote,
            traffic=self._metrics.traffic.of(topic.name, "normal"),
            put_s=self._metrics.put_seconds,
            record_size=self._metrics.message_size,
        )
