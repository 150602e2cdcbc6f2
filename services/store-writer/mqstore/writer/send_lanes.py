"""Plain JSON requests to one topic, which the kernel stores in one call each.

Called from ``routes`` on the event loop, before its general way, which has every reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mqstore.storage import MessageStore
from mqstore.storage.admin import TopicConfig
from mqstore.storage.formats import Host
from mqstore.storage.puts import SendLane, Sent, UniqueKeys
from mqstore.storage.settings import FlushDiskType
from mqstore.writer import produce
from mqstore.writer.service import WriterService


class _Entry(NamedTuple):
    """A topic as it was when its lane was made."""

    topic: TopicConfig
    lane: SendLane


class SendLanes:
    """One lane for each topic, made at its first request and again when the topic changed."""

    def __init__(
        self, service: WriterService, keys: UniqueKeys, queues: produce.QueueChooser
    ) -> None:
        self._service = service
        self._keys = keys
        self._queues = queues
        self._entries: dict[str, _Entry] = {}

    def send(self, topic: TopicConfig, body: bytes, client: Host, *, stays: bool) -> Sent | None:
        """Store a plain request; None, and nothing is stored, leaves it to the general way.

        ``stays``: the client named this shard, so its keys need not belong to it.
        """
        service = self._service
        lane = self._lane(service.store, topic)
        if lane is None:
            return None
        if stays or service.shards.members.alone:
            return lane.send(body, client)
        keys = lane.read(body, client)
        if keys is None or not self._are_own(keys):
            return None
        return lane.put()

    def _are_own(self, keys: Sequence[str | None]) -> bool:
        """Return whether messages under these keys belong to this shard."""
        window_ms = self._service.store.config.unique_key_window
        routing = self._service.key_routing
        return not keys or routing.are_own(routing.parts(keys, window_ms))

    def _lane(self, store: MessageStore, topic: TopicConfig) -> SendLane | None:
        """Return the lane of a topic.

        None while the table of unique keys is not prepared, and for a store whose puts count only
        once they are committed.
        """
        entry = self._entries.get(topic.name)
        if entry is not None and entry.topic is topic:
            return entry.lane
        dedup = store.dedup
        if store.commits is not None or (dedup is not None and dedup.tables is None):
            return None
        lane = self._make(store, topic)
        self._entries[topic.name] = _Entry(topic, lane)
        return lane

    def _make(self, store: MessageStore, topic: TopicConfig) -> SendLane:
        dedup, metrics = store.dedup, self._service.metrics
        return SendLane(
            store.log.end,
            produce.json_reader(store.format, self._keys, self._service.settings.max_batch_count),
            topic.name,
            queues=topic.write_queues,
            turns=self._queues.turns(topic.name),
            store_host=store.host,
            keys=None if dedup is None else dedup.tables,
            lock=None if dedup is None else dedup.lock,
            shard=self._service.settings.shard,
            is_sync=store.config.flush_disk_type is FlushDiskType.SYNC,
            quote=produce.quote,
            traffic=metrics.traffic.of(topic.name, "normal"),
            put_s=metrics.put_seconds,
            record_size=metrics.message_size,
        )
