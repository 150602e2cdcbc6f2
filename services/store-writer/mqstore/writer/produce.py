"""Decodes and checks the bytes of a produce request and builds messages for the store.

Called from ``routes``. No function waits or reads the store's files.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Annotated, Final

import msgspec
from crc32c import crc32c

from mqstore.service import bodies, problems
from mqstore.service.problems import Problem
from mqstore.service.structs import struct_of
from mqstore.storage import topic_names
from mqstore.storage.errors import PropertyError, StorageError
from mqstore.storage.formats import (
    KEY_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    PROPERTY_DELAY,
    PROPERTY_DELIVER_AT,
    PROPERTY_KEYS,
    PROPERTY_SEPARATOR,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    Host,
    StoreFormat,
    decode_properties,
    encode_properties,
)
from mqstore.storage.puts import (
    EncodedBatch,
    JsonReader,
    LogEnd,
    Message,
    NameRules,
    QueueTurns,
    UniqueKeys,
    decode_batch,
)
from mqstore.storage.settings import DelayLevels
from mqstore.wire import produce as contract
from mqstore.wire.base import UINT32_MAX
from mqstore.wire.idempotency import unique_keys
from mqstore.wire.produce import Durability, NewMessage, ProduceRequest
from mqstore.writer.ordering import queue_of

CLIENT_PROPERTIES: Final = frozenset(
    {"KEYS", "TAGS", "UNIQ_KEY", "WAIT", "BUYER_ID", "INSTANCE_ID", "MSG_REGION", "TRACE_ON"}
    | {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "CLUSTER", "MSG_TYPE"}
)
"""Reserved names that RocketMQ's own clients put into a batch; the store does not act on them."""

JSON_TYPE: Final = b"application/json"

HEAVY_SIZE: Final = 512 << 10
HEAVY_VALUES: Final = 1_000
"""Maximum bytes, and JSON values, of a body decoded on the event loop, in about 3 ms."""
HEAVY_BATCH_SIZE: Final = 1 << 20
"""Maximum bytes of a body in RocketMQ's batch encoding decoded on the event loop."""
VALUES_MAX: Final = 400_000
"""Maximum number of JSON values of a request: 40 for each of 10,000 messages."""
MESSAGE_VALUES_MAX: Final = 20_000
"""Maximum number of JSON values of a message, more than 32 KiB of properties can hold."""


class _Outline(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A ``ProduceRequest`` with undecoded messages."""

    messages: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
    durability: Durability | None = None


_Request: Final = struct_of(ProduceRequest)
_decoder = msgspec.json.Decoder(_Request)
_MEMBERS: Final = (b'"messages"', b'"durability"')
"""Members of a large request; those of its messages are looked at with each."""
_outline_decoder = msgspec.json.Decoder(_Outline)
_message_decoder = msgspec.json.Decoder(struct_of(NewMessage))
_MESSAGE_PATH: Final = re.compile(r"`\$\.messages\[(\d+)\]")
"""A message's place in the text of a validation error."""
quote: Final = msgspec.json.Encoder().encode
"""Encode a text as JSON."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The fields that all messages of a request share: its client and its queue."""

    topic: str
    queue_id: int
    """The queue of messages without an ordering key."""
    born_host: Host
    store_host: Host
    born_timestamp_ms: int
    queues: int = 1
    """Write queues of the topic, of which an ordering key chooses one."""

    def message(
        self, body: bytes, encoded_properties: bytes, flag: int, ordering_key: str | None = None
    ) -> Message:
        """Return a message of this request."""
        return Message(
            self.topic,
            queue_of(ordering_key, self.queues) if ordering_key else self.queue_id,
            body,
            encoded_properties,
            self.born_host,
            self.store_host,
            self.born_timestamp_ms,
            flag,
        )


class QueueChooser:
    """Chooses write queues of a topic in rotation. Thread-safe."""

    def __init__(self) -> None:
        self._turns: dict[str, QueueTurns] = {}

    def turns(self, topic: str) -> QueueTurns:
        """The turns of a topic's queues."""
        found = self._turns.get(topic)
        return self._turns.setdefault(topic, QueueTurns()) if found is None else found

    def choose(self, topic: str, queues: int, requested: int | None) -> int:
        """Return the queue for one request. Raises Problem if the requested one does not exist."""
        if requested is None:
            return self.turns(topic).take(queues)
        if requested >= queues:
            raise Problem(
                problems.MESSAGE_INVALID,
                f"topic {topic} has {queues} write queues, from 0; queueId {requested} is no such "
                "queue",
            )
        return requested


def is_heavy(body: bytes, *, is_json: bool) -> bool:
    """Return whether a thread must decode a body, since it would block the event loop too long."""
    if not is_json:
        return len(body) > HEAVY_BATCH_SIZE
    return len(body) > HEAVY_SIZE or (len(body) > HEAVY_VALUES and body.count(b",") > HEAVY_VALUES)


def decode_request(body: bytes, max_count: int) -> ProduceRequest:
    """Decode a JSON body.

    Raises Problem: 400 for invalid JSON, 422 for a body that does not match the schema, 413 for too
    many messages.
    """
    if is_heavy(body, is_json=True):
        return _decode_heavy(body, max_count)
    try:
        request = bodies.decode(_decoder, body)
    except Problem as problem:
        if found := _MESSAGE_PATH.search(problem.detail):
            problem.extra["index"] = int(found[1])
        raise
    check_count(len(request.messages), max_count)
    return request


def _decode_heavy(body: bytes, max_count: int) -> ProduceRequest:
    """Decode a large request message by message, so that other threads run in between.

    Raises what ``decode_request`` raises.
    """
    bodies.check_values(body, VALUES_MAX)
    outline = bodies.decode(_outline_decoder, body, is_distinct=True)
    if any(body.count(name) > 1 for name in _MEMBERS):
        bodies.require_distinct(body)
    check_count(len(outline.messages), max_count)
    messages = []
    for number, raw in enumerate(outline.messages):
        text = bytes(raw)
        bodies.check_values(text, MESSAGE_VALUES_MAX)
        try:
            messages.append(bodies.decode(_message_decoder, text))
        except Problem as problem:
            detail = f"message {number}: {problem.detail}"
            raise Problem(problem.kind, detail, extra={"index": number}) from None
    return _Request(messages=messages, durability=outline.durability)


def check_count(count: int, max_count: int) -> None:
    """Raises Problem (413) for more messages than a request may have."""
    if count > max_count:
        raise Problem(
            problems.BODY_TOO_LARGE,
            f"{count} messages are over maxBatchCount ({max_count}); send fewer at a time",
        )


def requested_queue(messages: Sequence[NewMessage]) -> int | None:
    """Return the queue that a request names, None for none.

    Raises Problem if it names several, or one for a message with an ordering key.
    """
    named: int | None = None
    for index, message in enumerate(messages):
        if message.queue_id is None:
            continue
        if message.ordering_key is not None:
            raise _both_named(index)
        if named is not None and named != message.queue_id:
            raise Problem(
                problems.MESSAGE_INVALID,
                "messages of one request go to one queue; send one request per queueId",
                extra={"index": index},
            )
        named = message.queue_id
    return named


def _both_named(index: int) -> Problem:
    return Problem(
        problems.MESSAGE_INVALID,
        "an ordering key chooses the queue; give queueId or the ordering key, not both",
        extra={"index": index},
    )


def build_all(
    messages: Sequence[NewMessage],
    origin: Origin,
    unique_keys: UniqueKeys,
    store_format: StoreFormat,
    levels: DelayLevels,
) -> list[tuple[Message, str]]:
    """Return what ``build`` makes of each message.

    Raises as ``build``, with the ``index`` of the message.
    """
    built: list[tuple[Message, str]] = []
    try:
        built.extend(build(each, origin, unique_keys, store_format, levels) for each in messages)
    except Problem as problem:
        problem.extra["index"] = len(built)
        raise
    except StorageError as error:
        error.index = len(built)
        raise
    return built


def build(
    message: NewMessage,
    origin: Origin,
    unique_keys: UniqueKeys,
    store_format: StoreFormat,
    levels: DelayLevels,
) -> tuple[Message, str]:
    """Return the message for the store, and its unique key. Raises Problem, PropertyError."""
    if message.delay_level > levels.max_level:
        named = ", ".join(f"{level} ({name})" for level, name in enumerate(levels.names, 1))
        raise Problem(
            problems.MESSAGE_INVALID,
            f"delayLevel {message.delay_level} is no level of this store: send 0, or {named}",
        )
    uniq_key = message.uniq_key
    if uniq_key is None:
        uniq_key = unique_keys.next()
    else:
        topic_names.check_key(uniq_key)
    try:
        deliver_ms = contract.delivery_time(message, origin.born_timestamp_ms)
    except ValueError as error:
        raise Problem(problems.MESSAGE_INVALID, str(error)) from None
    found = _properties(message, uniq_key, store_format)
    if deliver_ms is not None:
        found[PROPERTY_DELIVER_AT] = str(deliver_ms)
    encoded = _encode(found, store_format.trailing_property_separator)
    body = body_bytes(message.body, message.body_base64)
    if message.crc32c is not None:
        check_crc32c(body, message.crc32c, f"the body of message {uniq_key}")
    return origin.message(body, encoded, message.flag, message.ordering_key), uniq_key


def json_reader(store_format: StoreFormat, keys: UniqueKeys, count_max: int) -> JsonReader:
    """Reads plain JSON requests into what ``build`` makes of their messages."""
    rules = topic_names.property_rules((), store_format)
    trailing = store_format.trailing_property_separator
    return JsonReader(rules, keys.generated, trailing, count_max)


def build_batch(
    body: bytes,
    origin: Origin,
    store_format: StoreFormat,
    max_count: int,
    idempotency_key: str | None = None,
    *,
    has_queue: bool = False,
) -> tuple[list[Message], list[str], list[str | None] | None]:
    """Return the messages of a body in RocketMQ's batch encoding, their unique keys, and their
    ordering keys (None if none has one). ``has_queue``: the request names a queue.

    A message without a unique key has "", unless the request's Idempotency-Key gives it one.

    Raises MessageInvalid, PropertiesTooLong, PropertyError, with the ``index`` of the message, and
    Problem.
    """
    template = origin.message(b"", b"", 0)
    messages = decode_batch(body, template, store_format=store_format)
    check_count(len(messages), max_count)
    keys: list[str] = []
    ordering: list[str | None] = []
    try:
        for each in messages:
            found = _check_encoded(each.properties, store_format)
            keys.append(found.get(PROPERTY_UNIQ_KEY, ""))
            ordering.append(found.get(PROPERTY_SHARDING_KEY) or None)
    except StorageError as error:
        error.index = len(keys)
        raise
    if idempotency_key is not None:
        for number, key in enumerate(unique_keys(idempotency_key, len(messages))):
            if not keys[number]:
                keys[number] = key
                messages[number] = _with_key(messages[number], origin, key)
    first = next((number for number, each in enumerate(ordering) if each), None)
    if first is None:
        return messages, keys, None
    if has_queue:
        raise _both_named(first)
    messages = [
        origin.message(each.body or b"", each.properties, each.flag, ordering_key)
        for each, ordering_key in zip(messages, ordering, strict=True)
    ]
    return messages, keys, ordering


def read_batch(
    body: bytes, origin: Origin, end: LogEnd, store_format: StoreFormat, max_count: int
) -> EncodedBatch | None:
    """Return the batch if the kernel accepts it as it is, None if ``build_batch`` must check it."""
    batch = end.read_batch(origin.message(b"", b"", 0), body, batch_rules(store_format))
    return batch if batch is not None and len(batch) <= max_count else None


@cache
def batch_rules(store_format: StoreFormat) -> NameRules:
    """Return the rules of properties in RocketMQ's batch encoding."""
    return topic_names.property_rules(CLIENT_PROPERTIES, store_format)


@cache
def lane_rules(store_format: StoreFormat) -> NameRules:
    """Return ``batch_rules`` for a lane, which chooses the queue of an ordering key."""
    return topic_names.property_rules(CLIENT_PROPERTIES | {PROPERTY_SHARDING_KEY}, store_format)


def check_crc32c(body: bytes, given: int, what: str) -> None:
    """Raises Problem if the CRC-32C of a body is not the given one."""
    if (found := crc32c(body)) != given:
        raise Problem(
            problems.CHECKSUM_MISMATCH,
            f"{what} came with CRC-32C {found}, not {given}: send it again, or mend the checksum",
        )


def crc32c_of(header: bytes) -> int:
    """Parse the header X-Mqstore-Crc32c. Raises Problem (400)."""
    if header.isdigit() and len(header) <= 10 and int(header) <= UINT32_MAX:
        return int(header)
    raise Problem(
        problems.BAD_PARAMETER, f"X-Mqstore-Crc32c is a decimal number from 0 to {UINT32_MAX}"
    )


@lru_cache(maxsize=4096)
def client_host(address: str, port: int) -> Host:
    """Return the address of a client as a host. Cached, since each request needs it."""
    return Host(_packed(address), port)


def now_ms() -> int:
    """Return the current Unix time in ms."""
    return time.time_ns() // 1_000_000


def _properties(message: NewMessage, uniq_key: str, store_format: StoreFormat) -> dict[str, str]:
    found = message.properties
    for name, value in found.items():
        topic_names.check_user_property(name, value, store_format)
    if message.keys:
        for key in message.keys:
            topic_names.check_key(key)
        found[PROPERTY_KEYS] = KEY_SEPARATOR.join(message.keys)
    found[PROPERTY_UNIQ_KEY] = uniq_key
    if message.tags:
        topic_names.check_tag(message.tags)
        found[PROPERTY_TAGS] = message.tags
    if message.delay_level:
        found[PROPERTY_DELAY] = str(message.delay_level)
    if message.ordering_key:
        topic_names.check_property_text("orderingKey", message.ordering_key)
        found[PROPERTY_SHARDING_KEY] = message.ordering_key
    return found


def _encode(found: dict[str, str], trailing_separator: bool) -> bytes:
    """Encode properties. Checks each name and value only if the text has an odd character."""
    parts = [f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in found.items()]
    text = PROPERTY_SEPARATOR.join(parts)
    odd = (
        text.count(NAME_VALUE_SEPARATOR) != len(parts)
        or text.count(PROPERTY_SEPARATOR) != len(parts) - 1
        or "\0" in text
        or "" in found
        or "" in found.values()
    )
    if odd:
        return encode_properties(found, trailing_separator=trailing_separator)
    return (text + PROPERTY_SEPARATOR if trailing_separator else text).encode()


def body_bytes(text: str | None, encoded: str | None) -> bytes:
    """Return the bytes of a body given as text or in base64. Raises Problem."""
    try:
        return contract.body_bytes(text, encoded)
    except ValueError as error:
        raise Problem(problems.BODY_INVALID, str(error)) from None


def _with_key(message: Message, origin: Origin, uniq_key: str) -> Message:
    encoded = f"{PROPERTY_UNIQ_KEY}{NAME_VALUE_SEPARATOR}{uniq_key}".encode()
    if message.properties:
        encoded += PROPERTY_SEPARATOR.encode() + message.properties
    return origin.message(message.body or b"", encoded, message.flag)


def _check_encoded(encoded: bytes, store_format: StoreFormat) -> dict[str, str]:
    """Decode the properties of a message in a batch.

    Raises PropertyError for a property that only the store may set.
    """
    if b"\0" in encoded:
        raise PropertyError("a property contains NUL, remove it")
    found = decode_properties(encoded)
    for name, value in found.items():
        if name not in CLIENT_PROPERTIES and name != PROPERTY_SHARDING_KEY:
            topic_names.check_user_property(name, value, store_format)
    return found


def _packed(address: str) -> bytes:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).packed
