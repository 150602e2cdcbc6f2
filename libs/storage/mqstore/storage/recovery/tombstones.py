"""Tombstones: valid records that replace unreadable stretches of the log.

RocketMQ's recovery cuts the log at the first record that it cannot read. So before anything is
appended to a store with such a place in its middle, the bytes there are quarantined, and one valid
record of the same size replaces them: with the original's topic, queue and queue offset where these
are known (its queue keeps its positions), else of rollback type, which belongs to no queue. Its
body is all zeros, and TOMBSTONE_MARK in its PREPAREDTRANSACTIONOFFSET distinguishes it from a
message; where there is room, ``PROPERTY_TOMBSTONE`` shows this to a broker's consumers.

``read_parts`` and ``cut_in_pieces`` read; ``compose`` makes the record that ``apply`` writes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Final, NamedTuple

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, size_of
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    CRC32_PROPERTY_SIZE,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    PROPERTY_CRC32,
    PROPERTY_SEPARATOR,
    PROPERTY_TOMBSTONE,
    QUEUED_TYPES,
    RECORD_FIXED_SIZE,
    RECORD_IPV6_EXTRA_SIZE,
    RECORD_V2_EXTRA_SIZE,
    TOMBSTONE_MARK,
    TOPIC_LENGTH_MAX_V1,
    TRANSACTION_MASK,
    StoreFormat,
    SysFlag,
)
from mqstore.storage.recovery.report import PlaceTombstone

SIZE_MIN: Final = RECORD_FIXED_SIZE + 1
"""Bytes of the smallest record: no body, a topic of one letter."""
PIECES_MAX: Final = 1_000
"""Maximum number of records into which one stretch is cut; the rest is one piece."""
_UNKNOWN_TOPIC: Final = "T"
_NO_HOST: Final = Host(bytes(4), 0)
_TO_BE_DECODED: Final = int(
    SysFlag.COMPRESSED
    | SysFlag.COMPRESSION_TYPE_MASK
    | SysFlag.INNER_BATCH
    | SysFlag.NEED_UNWRAP_INNER_BATCH
)
"""Flags by which a reader would decompress the body, which is zeros now."""
_HEAD: Final = struct.Struct(">12xiiqqiq")
"""QUEUEID, FLAG, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG, BORNTIMESTAMP."""
_TAIL: Final = struct.Struct(">iqi")
"""RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET, body length."""
_LONG: Final = struct.Struct(">q")
_HOST_SIZE: Final = 8
_MARKER: Final = (PROPERTY_TOMBSTONE + NAME_VALUE_SEPARATOR + "1").encode()
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_CRC_MARK: Final = (PROPERTY_CRC32 + NAME_VALUE_SEPARATOR).encode()


class QueuePlace(NamedTuple):
    """A record's queue and queue offset."""

    topic: bytes
    queue_id: int
    queue_offset: int


class EntryTarget(NamedTuple):
    """A record that a queue entry names."""

    offset: int
    size: int
    place: QueuePlace


class Piece(NamedTuple):
    """A part of an unreadable stretch, in physical offsets; ``places`` are the entries that name
    it."""

    start: int
    stop: int
    places: tuple[QueuePlace, ...]


class Parts(NamedTuple):
    """The fields of a record whose lengths add up; its size, magic and body may be damaged."""

    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    topic: bytes
    properties: bytes

    @property
    def place(self) -> QueuePlace | None:
        """The queue offset; None for prepared and rolled back records."""
        if self.sys_flag & TRANSACTION_MASK not in QUEUED_TYPES:
            return None
        return QueuePlace(self.topic, self.queue_id, self.queue_offset)


def read_parts(data: memoryview) -> Parts | None:
    """Decode an unreadable record that is exactly as long as ``data``; None when the lengths inside
    do not add up to that."""
    for topic_width in (1, 2):
        try:
            parts, end = _read_parts(data, topic_width)
        except (struct.error, IndexError, ValueError):
            continue
        if end == len(data):
            return parts
    return None


def _read_parts(data: memoryview, topic_width: int) -> tuple[Parts, int]:
    queue_id, flag, queue_offset, physical, sys_flag, born_ms = _HEAD.unpack_from(data)
    born_host, at = _read_host(data, _HEAD.size, bool(sys_flag & SysFlag.BORN_HOST_V6))
    (store_ms,) = _LONG.unpack_from(data, at)
    v6_store = bool(sys_flag & SysFlag.STORE_HOST_V6)
    store_host, at = _read_host(data, at + _LONG.size, v6_store)
    reconsume, _, body_length = _TAIL.unpack_from(data, at)
    if body_length < 0:
        raise ValueError(body_length)
    topic, at = _read_text(data, at + _TAIL.size + body_length, topic_width)
    properties, at = _read_text(data, at, 2)
    parts = Parts(
        queue_id,
        flag,
        queue_offset,
        physical,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume,
        topic,
        properties,
    )
    return parts, at


def _read_host(data: memoryview, at: int, v6: bool) -> tuple[Host, int]:
    end = at + _HOST_SIZE + (RECORD_IPV6_EXTRA_SIZE if v6 else 0)
    try:
        host = Host.unpack(bytes(data[at:end]))
    except ValueError:
        host = _NO_HOST
    return (host if 0 <= host.port <= 0xFFFF else _NO_HOST), end


def _read_text(data: memoryview, at: int, width: int) -> tuple[bytes, int]:
    if at + width > len(data):
        raise IndexError(at)
    start = at + width
    end = start + int.from_bytes(data[at:start])
    return bytes(data[start:end]), end


def cut_in_pieces(
    start: int, stop: int, named: Sequence[EntryTarget], *, is_last: bool
) -> list[Piece]:
    """Divide an unreadable stretch at the begins and ends of records that queue entries name.

    ``named`` is in the order of offsets. No piece is shorter than a record can be, unless the whole
    stretch is, or a blank record fits the rest of a stretch that ``is_last`` of its segment.
    """
    pieces: list[Piece] = []
    groups = islice(groupby(named, attrgetter("offset")), PIECES_MAX)
    places = {offset: list(group) for offset, group in groups}
    offsets = list(places)
    for number, (offset, here) in enumerate(places.items()):
        following = offsets[number + 1] if number + 1 < len(offsets) else stop
        _add(pieces, Piece(pieces[-1].stop if pieces else start, offset, ()))
        end = min(offset + max(each.size for each in here), following)
        _add(pieces, Piece(offset, end, tuple(each.place for each in here)))
    rest = Piece(pieces[-1].stop if pieces else start, stop, ())
    if is_last and can_close(rest) and pieces and pieces[-1].stop - pieces[-1].start >= SIZE_MIN:
        pieces.append(rest)
    else:
        _add(pieces, rest)
    return pieces


def _add(pieces: list[Piece], piece: Piece) -> None:
    """Add a piece; one that is too short for a record joins the one before."""
    if piece.stop <= piece.start:
        return
    if pieces and piece.stop - piece.start < SIZE_MIN:
        last = pieces[-1]
        # Now longer than its entry states, so the entry names another record.
        pieces[-1] = Piece(last.start, piece.stop, ())
    elif pieces and pieces[-1].stop - pieces[-1].start < SIZE_MIN:
        pieces[-1] = Piece(pieces[-1].start, piece.stop, ())
    else:
        pieces.append(piece)


def can_close(piece: Piece) -> bool:
    """Whether a blank record fits a piece at a segment's end."""
    return not piece.places and piece.stop - piece.start >= BLANK_RECORD_SIZE


def compose(found: PlaceTombstone, original: memoryview, store_format: StoreFormat) -> Message:
    """Compose the message whose record, of ``found.length`` bytes, replaces ``original``."""
    parts = read_parts(original) if found.keeps_header else None
    topic = found.topic if found.topic is not None else _UNKNOWN_TOPIC
    message = Message(
        topic=topic,
        queue_id=found.queue_id,
        body=None,
        properties=b"",
        born_host=_NO_HOST if parts is None else parts.born_host,
        store_host=_NO_HOST if parts is None else parts.store_host,
        born_timestamp_ms=found.store_timestamp_ms if parts is None else parts.born_timestamp_ms,
        sys_flag=found.sys_flag & ~_TO_BE_DECODED,
        prepared_transaction_offset=TOMBSTONE_MARK,
    )
    if parts is not None:
        message.flag = parts.flag
        message.reconsume_times = parts.reconsume_times
    room = found.length - size_of(message, version_of(topic))
    kept = b"" if parts is None else _readable(parts.properties)
    message.properties = _properties(kept, room, store_format)
    message.body = bytes(room - len(message.properties))
    return message


def closing_tombstone_size(topic: str) -> int:
    """Bytes of a tombstone that replaces no record: no body, and the marker."""
    version = version_of(topic)
    fixed = RECORD_FIXED_SIZE + (RECORD_V2_EXTRA_SIZE if version == 2 else 0)
    return fixed + len(topic.encode()) + len(_MARKER) + len(_SEPARATOR)


def version_of(topic: str) -> int:
    """The record version: 2 for a topic that no V1 record can name."""
    return 2 if len(topic.encode()) > TOPIC_LENGTH_MAX_V1 else 1


def _properties(kept: bytes, room: int, store_format: StoreFormat) -> bytes:
    """The properties that fit: all and the marker, or the marker, or the original ones."""
    end = _SEPARATOR if store_format.trailing_property_separator else b""
    joint = b"" if not kept or kept.endswith(_SEPARATOR) else _SEPARATOR
    for properties in (kept + joint + _MARKER + end, _MARKER + end, kept):
        if len(properties) <= min(room, PROPERTIES_LENGTH_MAX):
            return properties
    return b""


def _readable(properties: bytes) -> bytes:
    """The properties without ``__CRC32#``, which covered the original; none when bytes of them were
    lost."""
    if b"\0" in properties or NAME_VALUE_SEPARATOR.encode() not in properties:
        return b""
    if properties[-CRC32_PROPERTY_SIZE:].startswith(_CRC_MARK):
        return properties[:-CRC32_PROPERTY_SIZE]
    return properties
