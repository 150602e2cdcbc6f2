"""The requests to each topic: the rules of their messages, and what encodes and puts these.

Called from ``produce_route``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import msgspec

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage import MessageStore, topic_names
from mqstore.storage.admin import TopicConfig
from mqstore.storage.errors import PropertyError, StorageError
from mqstore.storage.formats import (
    PROPERTY_DELAY,
    PROPERTY_DELIVER_AT,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    StoreFormat,
    decode_properties,
    encode_properties,
)
from mqstore.storage.puts import (
    NameRules,
    QueueTurns,
    Sends,
    UniqueKeys,
    check_encoding,
)
from mqstore.wire import produce as contract
from mqstore.wire.produce import Content, NewMessage
from mqstore.writer import produce
from mqstore.writer.ordering import queue_of
from mqstore.writer.service import WriterService

CLIENT_PROPERTIES: Final = frozenset(
    {"KEYS", "TAGS", "UNIQ_KEY", "WAIT", "BUYER_ID", "INSTANCE_ID", "MSG_REGION", "TRACE_ON"}
    | {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "CLUSTER", "MSG_TYPE", PROPERTY_SHARDING_KEY}
)
"""Reserved names that RocketMQ's own clients put into a batch; the store does not act on them."""

quote: Final = msgspec.json.Encoder().encode
"""Encode a text as JSON."""


class Checks:
    """The rules of the messages of requests (``SendChecks`` of the kernel).

    Each method raises the error, with the ``index`` of the message.
    """

    def __init__(self, store: MessageStore, topic: str, max_count: int) -> None:
        self._topic = topic
        self._format = store.format
        self._levels = store.delays.levels
        self._max_count = max_count
        self.limits = store.log.check

    def message(
        self, number: int, message: NewMessage, key: str, now_ms: int
    ) -> tuple[bytes, bytes]:
        """Return the body, and the property of the delay. Raises Problem, PropertyError."""
        try:
            return self._message(message, key, now_ms)
        except Problem as problem:
            problem.extra["index"] = number
            raise
        except StorageError as error:
            error.index = number
            raise

    def _message(self, message: NewMessage, key: str, now_ms: int) -> tuple[bytes, bytes]:
        levels, delay = self._levels, {}
        if message.delay_level > levels.max_level:
            named = ", ".join(f"{level} ({name})" for level, name in enumerate(levels.names, 1))
            raise Problem(
                problems.MESSAGE_INVALID,
                f"delayLevel {message.delay_level} is no level of this store: send 0, or {named}",
            )
        topic_names.check_key(key)
        try:
            deliver_ms = contract.delivery_time(message, now_ms)
        except ValueError as error:
            raise Problem(problems.MESSAGE_INVALID, str(error)) from None
        check_properties(message, self._format)
        if message.ordering_key:
            topic_names.check_property_text("orderingKey", message.ordering_key)
        if message.delay_level:
            delay[PROPERTY_DELAY] = str(message.delay_level)
        if deliver_ms is not None:
            delay[PROPERTY_DELIVER_AT] = str(deliver_ms)
        try:
            body = contract.body_bytes(message.body, message.body_base64)
        except ValueError as error:
            raise Problem(problems.BODY_INVALID, str(error)) from None
        if message.crc32c is not None:
            produce.check_crc32c(body, message.crc32c, f"the body of message {key}")
        return body, encode_properties(delay, trailing_separator=False)

    def encoded(self, number: int, properties: bytes) -> None:
        """Raises PropertyError for a property that only the store may set."""
        try:
            if b"\0" in properties:
                raise PropertyError("a property contains NUL, remove it")
            for name, value in decode_properties(properties).items():
                if name not in CLIENT_PROPERTIES:
                    topic_names.check_user_property(name, value, self._format)
        except PropertyError as error:
            error.index = number
            raise

    def malformed(self, data: bytes) -> None:
        """Raises MessageInvalid."""
        check_encoding(data)

    def count(self, count: int) -> None:
        """Raises Problem."""
        produce.check_count(count, self._max_count)

    def queue(self, queue_id: int, queues: int) -> None:
        """Raises Problem."""
        raise Problem(
            problems.MESSAGE_INVALID,
            f"topic {self._topic} has {queues} write queues, from 0; queueId {queue_id} is no such "
            "queue",
        )

    def queues(self, messages: Sequence[NewMessage]) -> None:
        """Raises Problem."""
        named: int | None = None
        for index, message in enumerate(messages):
            if message.queue_id is None:
                continue
            if message.ordering_key is not None:
                self.both_named(index)
            if named is not None and named != message.queue_id:
                raise Problem(
                    problems.MESSAGE_INVALID,
                    "messages of one request go to one queue; send one request per queueId",
                    extra={"index": index},
                )
            named = message.queue_id

    def both_named(self, number: int) -> None:
        """Raises Problem."""
        raise Problem(
            problems.MESSAGE_INVALID,
            "an ordering key chooses the queue; give queueId or the ordering key, not both",
            extra={"index": number},
        )


def check_properties(message: Content, store_format: StoreFormat) -> None:
    """Check properties, keys and tags. Raises PropertyError."""
    for name, value in message.properties.items():
        topic_names.check_user_property(name, value, store_format)
    for key in message.keys:
        topic_names.check_key(key)
    table = dict(message.properties)
    if message.tags:
        topic_names.check_tag(message.tags)
        table[PROPERTY_TAGS] = message.tags
    encode_properties(table, trailing_separator=False)


class _Entry(NamedTuple):
    """A topic and a store as they were when their sends were made."""

    topic: TopicConfig
    store: MessageStore
    sends: Sends


class TopicSends:
    """The sends of each topic, made at its first request and again when the topic changed. Any
    thread."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._keys = UniqueKeys(service.seams)
        self._turns: dict[str, QueueTurns] = {}
        self._entries: dict[str, _Entry] = {}

    def of(self, topic: TopicConfig) -> Sends:
        """Return the sends of a topic."""
        store = self._service.store
        entry = self._entries.get(topic.name)
        if entry is None or entry.topic is not topic or entry.store is not store:
            entry = _Entry(topic, store, self._make(store, topic))
            self._entries[topic.name] = entry
        return entry.sends

    def _make(self, store: MessageStore, topic: TopicConfig) -> Sends:
        metrics, settings = self._service.metrics, self._service.settings
        return Sends(
            store.log.end,
            topic.name,
            checks=Checks(store, topic.name, settings.max_batch_count),
            keys=self._keys,
            rules=_rules(store.format, is_encoded=False),
            encoded_rules=_rules(store.format, is_encoded=True),
            trailing_separator=store.format.trailing_property_separator,
            count_max=settings.max_batch_count,
            queues=topic.write_queues,
            turns=self._turns.setdefault(topic.name, QueueTurns()),
            queue_of=queue_of,
            store_host=store.host,
            dedup=store.dedup,
            shard=settings.shard,
            quote=quote,
            traffic=metrics.traffic.of(topic.name, "normal"),
            put_s=metrics.put_seconds,
            record_size=metrics.message_size,
        )


@cache
def _rules(store_format: StoreFormat, *, is_encoded: bool) -> NameRules:
    """Return the rules of properties in JSON, or in RocketMQ's batch encoding."""
    return topic_names.property_rules(CLIENT_PROPERTIES if is_encoded else (), store_format)
