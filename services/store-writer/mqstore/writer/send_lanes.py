"""Plain requests to one topic, which the kernel stores in one call each.

Called from ``routes`` on the event loop, before its general way, which has every reply.
"""

from __future__ import annotations

from typing import NamedTuple

from mqstore.storage import MessageStore
from mqstore.storage.admin import TopicConfig
from mqstore.storage.formats import Host
from mqstore.storage.puts import SendLane, StoredSend, UniqueKeys
from mqstore.writer import produce
from mqstore.writer.ordering import queue_of
from mqstore.writer.service import WriterService


class _Entry(NamedTuple):
    """A topic and a store as they were when their lane was made."""

    topic: TopicConfig
    store: MessageStore
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

    def send(
        self, topic: TopicConfig, body: bytes, client: Host, *, stays: bool
    ) -> bytes | StoredSend | None:
        """Store a plain request in JSON, and return the body of its reply.

        None, and nothing is stored, leaves it to the general way. ``stays``: the client named this
        shard, so its keys need not belong to it.
        """
        lane = self._lane(topic)
        if lane is None or not lane.read(body, client):
            return None
        return lane.put() if stays or self._is_own(lane) else None

    def send_batch(
        self,
        topic: TopicConfig,
        body: bytes,
        client: Host,
        queue_id: int | None,
        *,
        waits: int,
        stays: bool,
    ) -> bytes | StoredSend | None:
        """Store a request in RocketMQ's batch encoding, as ``send``."""
        lane = self._lane(topic)
        number = -1 if queue_id is None else queue_id
        if lane is None or not lane.read_batch(body, client, number, waits):
            return None
        return lane.put() if stays or self._is_own(lane) else None

    def _is_own(self, lane: SendLane) -> bool:
        """Return whether the messages that a lane has read belong to this shard."""
        service = self._service
        if service.shards.members.alone:
            return True
        keys: list[str | None] = [*lane.given_keys]
        ordering = lane.ordering_key  # of all messages
        if ordering is not None:
            keys = keys or [None]
        routing, window_ms = service.key_routing, service.store.config.unique_key_window
        parts = routing.parts(keys, window_ms, None if ordering is None else [ordering] * len(keys))
        return routing.are_own(parts)

    def _lane(self, topic: TopicConfig) -> SendLane | None:
        """Return the lane of a topic.

        None while the table of unique keys is not prepared, and for a store whose puts count only
        once they are committed.
        """
        store = self._service.store
        entry = self._entries.get(topic.name)
        if entry is not None and entry.topic is topic and entry.store is store:
            return entry.lane
        dedup = store.dedup
        if store.commits is not None or (dedup is not None and dedup.tables is None):
            return None
        lane = self._make(store, topic)
        self._entries[topic.name] = _Entry(topic, store, lane)
        return lane

    def _make(self, store: MessageStore, topic: TopicConfig) -> SendLane:
        dedup, metrics = store.dedup, self._service.metrics
        count_max = self._service.settings.max_batch_count
        return SendLane(
            store.log.end,
            produce.json_reader(store.format, self._keys, count_max),
            produce.lane_rules(store.format),
            topic.name,
            queues=topic.write_queues,
            turns=self._queues.turns(topic.name),
            queue_of=queue_of,
            store_host=store.host,
            keys=None if dedup is None else dedup.tables,
            lock=None if dedup is None else dedup.lock,
            shard=self._service.settings.shard,
            waits=self._service.default_waits,
            traffic=metrics.traffic.of(topic.name, "normal"),
            put_s=metrics.put_seconds,
            record_size=metrics.message_size,
        )
