"""Encodes and decodes records of the commit log.

The layout is RocketMQ's (docs/formats.md): V1 and, in 5.x stores, V2 with a two-byte topic length.
``_kernel`` does the work per byte; this module adds types and names the defects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from isal import isal_zlib

from mqstore.storage import _kernel
from mqstore.storage._kernel import Defect, StoredRecord
from mqstore.storage._kernel import Message as Message
from mqstore.storage.codec import message_id, properties
from mqstore.storage.codec.java_text import decode_utf8
from mqstore.storage.errors import (
    MessageInvalid,
    PropertiesTooLong,
    RecordBodyCorrupt,
    RecordCrcMismatch,
    RecordError,
    RecordHostInvalid,
    RecordLengthsDisagree,
    RecordMagicUnknown,
    RecordMisplaced,
    RecordPropertiesMalformed,
    RecordSizeWrong,
    RecordTombstone,
    RecordTopicInvalid,
    RecordTruncated,
    TopicTooLong,
)
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    BODY_CRC_MASK,
    CRC32_PROPERTY_SIZE,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    PROPERTY_CRC32,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    RECORD_FIXED_SIZE,
    RECORD_IPV6_EXTRA_SIZE,
    RECORD_V2_EXTRA_SIZE,
    TOMBSTONE_MARK,
    TOPIC_LENGTH_MAX_V1,
    TOPIC_LENGTH_MAX_V2,
    TRANSACTION_MASK,
    SysFlag,
)

Buffer = memoryview | bytes | bytearray

ANY_OFFSET: Final = -1
"""For ``decode``: do not compare the physical offset inside the record."""
_CRC_MARK: Final = (PROPERTY_CRC32 + NAME_VALUE_SEPARATOR).encode()
_OVERHEAD_MAX: Final = (
    RECORD_FIXED_SIZE + RECORD_V2_EXTRA_SIZE + 2 * RECORD_IPV6_EXTRA_SIZE + TOPIC_LENGTH_MAX_V2
)
"""Bytes of the longest record without a body and properties."""


class Blank(NamedTuple):
    """A blank record: it fills a segment from ``offset`` to its end, ``size`` bytes."""

    offset: int
    size: int


class Record(StoredRecord):
    """One decoded record: integers are signed, text is decoded as Java does. See StoredRecord."""

    __slots__ = ()

    def __repr__(self) -> str:
        place = f"{self.topic!r} queue {self.queue_id} offset {self.queue_offset}"
        return f"Record({place}, {self.size} bytes at {self.physical_offset})"

    @property
    def topic(self) -> str:
        """The topic name."""
        text = self.utf8_topic()
        return decode_utf8(self.raw_topic) if text is None else text

    def odd_properties(self) -> dict[str, str]:
        """Decode properties that are malformed UTF-8, as Java does."""
        return properties.decode(self.raw_properties)

    def _property(self, name: str) -> str | None:
        return (self.properties or {}).get(name)

    @property
    def tags(self) -> str | None:
        """The property TAGS, or None."""
        return self._property(PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        """The property KEYS, or None."""
        return self._property(PROPERTY_KEYS)

    @property
    def uniq_key(self) -> str | None:
        """The property UNIQ_KEY, or None."""
        return self._property(PROPERTY_UNIQ_KEY)

    @property
    def tags_code(self) -> int:
        """String.hashCode of TAGS, 0 without. (Queues of the delay topic hold another code.)"""
        return properties.tags_code(self.tags)

    @property
    def is_tombstone(self) -> bool:
        """Whether the record replaces an unreadable one (``errors.RecordTombstone``)."""
        is_marked = self.prepared_transaction_offset == TOMBSTONE_MARK
        return is_marked and not self.body.strip(b"\0")

    @property
    def offset_message_id(self) -> str:
        """The offset message id, from store host and physical offset."""
        return message_id.encode(self.store_host, self.physical_offset)

    @property
    def is_self_checked(self) -> bool:
        """Whether the checksum of its block does not match, so that only its own checks passed."""
        return False

    @property
    def has_crc_property(self) -> bool:
        """Whether ``__CRC32#`` covers the whole record, as in records of 5.x."""
        return self.raw_properties[-CRC32_PROPERTY_SIZE:].startswith(_CRC_MARK)


class SelfCheckedRecord(Record):
    """A record in a damaged block of the log; see ``lookup.own_checks``."""

    __slots__ = ()

    @property
    def is_self_checked(self) -> bool:
        """Always true."""
        return True


_DEFECTS: Final[dict[int, tuple[type[RecordError], str]]] = {
    Defect.TRUNCATED: (RecordTruncated, "the bytes end before the record does"),
    Defect.MAGIC_UNKNOWN: (RecordMagicUnknown, "neither a V1, V2 nor a blank record"),
    Defect.SIZE_WRONG: (RecordSizeWrong, "negative or less than its fixed fields need"),
    Defect.LENGTHS_DISAGREE: (RecordLengthsDisagree, "total size is not the sum of the parts"),
    Defect.MISPLACED: (RecordMisplaced, "the record states another physical offset"),
    Defect.HOST_INVALID: (RecordHostInvalid, "a port is not between 0 and 65535"),
    Defect.TOPIC_INVALID: (RecordTopicInvalid, "empty, too long, or with a NUL inside"),
    Defect.PROPERTIES_MALFORMED: (
        RecordPropertiesMalformed,
        "negative length, no separator at all, or zeros where a torn write leaves them",
    ),
    Defect.BODY_CORRUPT: (RecordBodyCorrupt, "the body is not what was stored"),
    Defect.CRC_MISMATCH: (RecordCrcMismatch, "the record is not what was stored"),
}


def defect_error(defect: Defect, offset: int, size: int = 0) -> RecordError:
    """Build the error that names a defect of the record at ``offset``."""
    error, why = _DEFECTS[defect]
    return error(offset, why, size)


def message_of(found: Record) -> Record:
    """Return the record itself. Raises RecordTombstone where it replaces a lost one."""
    if found.prepared_transaction_offset == TOMBSTONE_MARK and found.is_tombstone:
        raise tombstone_error(found)
    return found


def tombstone_error(found: Record) -> RecordTombstone:
    """Build the error that describes the record that a tombstone replaces."""
    offset, size = found.physical_offset, found.size
    if found.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
        return RecordTombstone(offset, size, None)
    return RecordTombstone(offset, size, found.topic, found.queue_id, found.queue_offset)


def body_crc(body: bytes | None) -> int:
    """Compute BODYCRC: CRC-32 without its sign bit; 0 for no body and for an empty one."""
    return isal_zlib.crc32(body) & BODY_CRC_MASK if body else 0


def size_of(message: Message, version: int) -> int:
    """Compute the size in bytes of the record that ``message`` becomes.

    Raises TopicTooLong and PropertiesTooLong where a length exceeds its field; MessageInvalid for a
    topic that is empty or invalid Unicode.
    """
    size = RECORD_FIXED_SIZE + _topic_length(message.topic, version) + len(message.properties)
    if message.body is not None:
        size += len(message.body)
    if version == 2:
        size += RECORD_V2_EXTRA_SIZE
    if len(message.properties) > PROPERTIES_LENGTH_MAX:
        raise PropertiesTooLong(
            f"properties of {len(message.properties)} bytes: at most {PROPERTIES_LENGTH_MAX}"
        )
    v6_hosts = message.born_host.is_v6 + message.store_host.is_v6
    return size + v6_hosts * RECORD_IPV6_EXTRA_SIZE


def _topic_length(topic: str, version: int) -> int:
    try:
        length = len(topic) if topic.isascii() else len(topic.encode())
    except UnicodeEncodeError:
        raise MessageInvalid("the topic holds half a surrogate pair: send valid text") from None
    limit = TOPIC_LENGTH_MAX_V2 if version == 2 else TOPIC_LENGTH_MAX_V1
    if length > limit:
        raise TopicTooLong(f"topic of {length} bytes: a V{version} record holds at most {limit}")
    if length == 0:
        raise MessageInvalid("the topic is empty: name one")
    return length


def encode_into(
    view: memoryview | bytearray,
    position: int,
    message: Message,
    *,
    version: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp_ms: int,
) -> int:
    """Write one record at ``position`` of ``view``; returns its size in bytes.

    Raises ValueError when it does not fit there, or when ``size_of`` would have rejected it.
    """
    return _kernel.encode_record(
        view, position, message, version, queue_offset, physical_offset, store_timestamp_ms
    )


def write_blank(view: memoryview | bytearray, position: int, size: int) -> None:
    """Write the 8-byte blank record that closes a segment with ``size`` bytes left (at least 8)."""
    _kernel.write_blank(view, position, size)


def decode(
    view: Buffer,
    position: int,
    end: int,
    *,
    physical_offset: int,
    verify_body: bool = True,
    with_body: bool = True,
) -> Record:
    """Decode the record at ``position`` strictly; raises the RecordError of its first defect.

    ``physical_offset`` is the offset that the record must state, or ANY_OFFSET. ``verify_body``
    compares BODYCRC and, where a 5.x record has one, ``__CRC32#``. Without ``with_body``, ``body``
    is empty. A blank record raises RecordMagicUnknown. Bytes are copied: the Record outlives the
    view.
    """
    found = _kernel.decode_record(
        Record, view, position, end, physical_offset, verify_body, with_body
    )
    if isinstance(found, Record):
        return found
    defect, size = found
    offset = position if physical_offset == ANY_OFFSET else physical_offset
    if defect == Defect.BLANK:
        raise RecordMagicUnknown(offset, "a blank record, not a message", size)
    raise defect_error(defect, offset, size)


def decode_self_checked(
    view: Buffer, position: int, end: int, *, physical_offset: int
) -> SelfCheckedRecord:
    """Decode a record whose block has no matching checksum; its body checksum is compared.

    Errors as ``decode``.
    """
    found = _kernel.decode_record(
        SelfCheckedRecord, view, position, end, physical_offset, True, True
    )
    if isinstance(found, SelfCheckedRecord):
        return found
    raise defect_error(Defect(found[0]), physical_offset, found[1])


def decode_leniently(view: Buffer) -> Record:
    """Decode the first record of ``view`` without its body, ignoring defects of its fields.

    Raises the RecordError of a record whose lengths do not add up.
    """
    found = _kernel.decode_record(Record, view, 0, len(view), ANY_OFFSET, False, False, True)
    if isinstance(found, Record):
        return found
    defect, size = found
    raise defect_error(defect, 0, size)


def scan(
    view: Buffer, position: int, end: int, base: int, *, verify_body: bool = True
) -> Iterator[Record | Blank | RecordError]:
    """Yield everything from ``position`` to ``end`` in order; ``base`` is the offset of
    ``view[0]``.

    A defect is yielded, not raised. The scan continues after a defect or a blank record whose size
    is known, and ends at one whose lengths do not add up.
    """
    while position < end:
        found = _kernel.decode_record(
            Record, view, position, end, base + position, verify_body, True
        )
        if isinstance(found, Record):
            yield found
            position += found.size
            continue
        defect, size = found
        offset = base + position
        if defect == Defect.BLANK:
            yield Blank(offset, size)
        else:
            yield defect_error(defect, offset, size)
        if size < BLANK_RECORD_SIZE:
            return
        position += size
