"""Rejects messages that RocketMQ rejects, and those that it would store and then lose or misread.

Called from ``commit_log`` before anything is written. Sources: DefaultMessageStore.checkMessage,
checkMessages and MessageExtEncoder of 4.9.7 and 5.4.0; docs/formats.md (surprises 1 and 2).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.storage.codec.hosts import PORT_MAX
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    MessageInvalid,
    MessageTooLarge,
    PropertiesTooLong,
    PutRefused,
    TopicTooLong,
)
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    CRC32_PROPERTY_SIZE,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    PROPERTY_CRC32,
    PROPERTY_SEPARATOR,
    TOPIC_LENGTH_MAX_V1,
    TOPIC_LENGTH_MAX_V2,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    StoreFormat,
)

_INTEGERS: Final = struct.Struct(">iiiiqq")
_ADDRESS_LENGTHS: Final = (4, 16)
_NAME_VALUE: Final = NAME_VALUE_SEPARATOR.encode()
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_CRC: Final = PROPERTY_CRC32.encode() + _NAME_VALUE
BATCH_ITEM_FIXED_SIZE: Final = 22
"""Bytes of one message in RocketMQ's batch encoding besides its body and properties."""


@dataclass(frozen=True, slots=True)
class PutLimits:
    """The limits of records in one store; sizes in bytes."""

    body_size_max: int
    """maxMessageSize: of a body, and of a whole batch as RocketMQ's clients encode it."""
    record_size_max: int
    """The size of an empty segment without the reserve for its blank record."""
    long_topics: bool
    """Whether a topic over 127 characters gets a V2 record (5.x) or is rejected."""

    @classmethod
    def of(cls, config: StoreConfig, store_format: StoreFormat) -> PutLimits:
        """The limits of a store with these settings."""
        return cls(
            body_size_max=config.max_message_size,
            record_size_max=config.mapped_file_size_commit_log - BLANK_RECORD_SIZE,
            long_topics=store_format.writes_v2_records,
        )


def check_message(message: Message, limits: PutLimits) -> int:
    """Check a message; returns the record version (1 or 2) to store it as.

    Raises MessageTooLarge, PropertiesTooLong, TopicTooLong, MessageInvalid.
    """
    body = message.body
    if body is not None and len(body) > limits.body_size_max:
        raise MessageTooLarge(
            f"body of {len(body)} bytes is over maxMessageSize ({limits.body_size_max}); "
            "send less, or raise maxMessageSize"
        )
    if len(message.properties) > PROPERTIES_LENGTH_MAX:
        raise PropertiesTooLong(
            f"properties of {len(message.properties)} bytes are over {PROPERTIES_LENGTH_MAX}; "
            "send fewer or shorter properties"
        )
    if message.properties:
        check_properties(message.properties)
    if message.queue_id < 0:
        raise MessageInvalid(f"queue id {message.queue_id} is negative; send one from 0 up")
    topic = message.topic
    if 0 < len(topic) <= TOPIC_LENGTH_MAX_V1 and topic.isascii():
        return 1
    return _version_of_unusual_topic(topic, limits.long_topics)


def check_messages(messages: Sequence[Message], limits: PutLimits) -> list[int]:
    """Check messages; returns the record version of each.

    Raises as ``check_message``, with the ``index`` of the refused message of several.
    """
    versions: list[int] = []
    try:
        versions.extend(check_message(message, limits) for message in messages)
    except PutRefused as refused:
        refused.index = len(versions) if len(messages) > 1 else None
        raise
    return versions


def check_properties(encoded: bytes) -> None:
    """Check encoded properties (not empty); raises MessageInvalid where no writer of RocketMQ makes
    them.

    A record with them would be taken for a damaged one: every property contains 0x01, a lost sector
    leaves zeros, and a checksum is compared.
    """
    if _NAME_VALUE not in encoded:
        raise MessageInvalid("properties hold no name 0x01 value pair; encode them, or send none")
    if b"\0" in encoded:
        raise MessageInvalid("properties contain NUL; remove it")
    if has_record_crc(encoded):
        raise MessageInvalid(
            f"properties end with {PROPERTY_CRC32}, the checksum of a record; leave it out"
        )


def has_record_crc(encoded: bytes) -> bool:
    """Whether encoded properties end with ``__CRC32#`` as 5.x appends it.

    It covers the record that they were read from: any other record with it would read as damaged.
    """
    end = encoded[-CRC32_PROPERTY_SIZE:]
    return len(end) == CRC32_PROPERTY_SIZE and end.startswith(_CRC) and end.endswith(_SEPARATOR)


def check_batch(messages: Sequence[Message], limits: PutLimits) -> None:
    """Check RocketMQ's rules for a batch, besides those for each of its messages.

    One topic and queue, no transaction types, and maxMessageSize holds for the batch as clients
    encode it. Raises MessageInvalid, MessageTooLarge.
    """
    if not messages:
        raise MessageInvalid("batch is empty; send one message or more")
    topic, queue_id = messages[0].topic, messages[0].queue_id
    for message in messages:
        if message.topic != topic or message.queue_id != queue_id:
            raise MessageInvalid(
                f"batch for {topic} queue {queue_id} has a message for {message.topic} queue "
                f"{message.queue_id}; send one batch a queue"
            )
        if message.sys_flag & TRANSACTION_MASK != TRANSACTION_NONE:
            raise MessageInvalid("batch has a transactional message; send it alone")
    check_batch_size(messages, limits.body_size_max)


def check_batch_size(messages: Sequence[Message], size_max: int) -> None:
    """Check the size of a batch as RocketMQ's clients encode it.

    Raises MessageTooLarge, with the ``index`` of a message that is too large alone.
    """
    sizes = [len(message.body or b"") + len(message.properties) for message in messages]
    size = sum(sizes) + BATCH_ITEM_FIXED_SIZE * len(messages)
    if size > size_max:
        too_large = MessageTooLarge(
            f"batch of {size} bytes is over maxMessageSize ({size_max}); "
            "send fewer messages at a time, or raise maxMessageSize"
        )
        too_large.index = next((n for n, each in enumerate(sizes) if each > size_max), None)
        raise too_large


def check_fields(message: Message) -> None:
    """Check that numbers and hosts fit into a record's fields. Raises MessageInvalid."""
    try:
        _INTEGERS.pack(
            message.queue_id,
            message.flag,
            message.sys_flag,
            message.reconsume_times,
            message.born_timestamp_ms,
            message.prepared_transaction_offset,
        )
        for host in (message.born_host, message.store_host):
            if len(host.address) not in _ADDRESS_LENGTHS or not 0 <= host.port <= PORT_MAX:
                raise MessageInvalid(f"host {host!r} is no address and port; correct it")
    except struct.error as error:
        raise MessageInvalid(f"a field cannot be stored: {error}; correct it") from error


def check_size(size: int, limits: PutLimits) -> None:
    """Check that a record, or a batch of them, fits into a segment. Raises MessageTooLarge.

    RocketMQ 4.9.7 and 5.4.0 return PUT_OK for such a record and lose it.
    """
    if size > limits.record_size_max:
        raise MessageTooLarge(
            f"{size} bytes of log fit no segment (at most {limits.record_size_max}); "
            "send less, or make a store with a larger mappedFileSizeCommitLog"
        )


def _version_of_unusual_topic(topic: str, long_topics: bool) -> int:
    try:
        length = len(topic.encode())
    except UnicodeEncodeError as error:
        raise MessageInvalid("topic has an unpaired surrogate; send valid UTF-8") from error
    if length == 0:
        raise MessageInvalid("topic is empty; name one")
    characters = len(topic.encode("utf-16-le")) // 2  # as Java's String.length counts
    version = 2 if long_topics and characters > TOPIC_LENGTH_MAX_V1 else 1
    length_max = TOPIC_LENGTH_MAX_V2 if version == 2 else TOPIC_LENGTH_MAX_V1
    if length > length_max:
        raise TopicTooLong(
            f"topic of {length} UTF-8 bytes is over {length_max}; choose a shorter name"
        )
    return version
