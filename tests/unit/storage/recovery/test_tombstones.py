"""Tombstones, which replace unreadable records: size, kept fields, splitting, recognition."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec import properties, record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, encode_into, size_of
from mqstore.storage.errors import RecordTombstone
from mqstore.storage.layout import PROPERTY_TOMBSTONE, StoreFormat, SysFlag
from mqstore.storage.recovery.report import PlaceTombstone
from mqstore.storage.recovery.tombstones import (
    SIZE_MIN,
    EntryTarget,
    Piece,
    QueuePlace,
    compose,
    cut_in_pieces,
    read_parts,
    version_of,
)

V4 = Host.parse("10.0.0.1", 10911)
V6 = Host.parse("::1", 10911)
PLACE = QueuePlace(b"T", 1, 7)


def encoded(message: Message, offset: int = 0) -> bytearray:
    version = version_of(message.topic)
    data = bytearray(size_of(message, version))
    encode_into(
        data,
        0,
        message,
        version=version,
        queue_offset=7,
        physical_offset=offset,
        store_timestamp_ms=5,
    )
    return data


def tombstone_of(
    found: PlaceTombstone, original: bytes | bytearray, store_format: StoreFormat = StoreFormat.V4_9
) -> record.Record:
    message = compose(found, memoryview(original), store_format)
    data = bytearray(found.length)
    encode_into(
        data,
        0,
        message,
        version=version_of(message.topic),
        queue_offset=found.queue_offset,
        physical_offset=found.offset,
        store_timestamp_ms=found.store_timestamp_ms,
    )
    return record.decode(data, 0, len(data), physical_offset=found.offset)


messages = st.builds(
    Message,
    topic=st.text("abcT%-", min_size=1, max_size=200),
    queue_id=st.integers(0, 9),
    body=st.one_of(st.none(), st.binary(max_size=200)),
    properties=st.sampled_from([b"", b"KEYS\x01k", b"KEYS\x01k\x02", b"A\x01b\x02TAGS\x01t"]),
    born_host=st.sampled_from([V4, V6]),
    store_host=st.sampled_from([V4, V6]),
    born_timestamp_ms=st.integers(0, 2**40),
    flag=st.integers(-5, 5),
    sys_flag=st.sampled_from([0, 1, 0x101, 0x4, 0x8, 0xC]),
)


@given(messages, st.sampled_from(StoreFormat), st.binary(min_size=8, max_size=8))
def test_a_tombstone_has_the_size_and_the_header_of_the_original(
    message: Message, store_format: StoreFormat, junk: bytes
) -> None:
    original = encoded(message)
    original[:8] = junk  # neither size nor magic
    parts = read_parts(original_view := memoryview(original))
    assert parts is not None
    assert (parts.topic, parts.queue_id, parts.flag) == (
        message.topic.encode(),
        message.queue_id,
        message.flag,
    )
    found = PlaceTombstone(
        offset=0,
        length=len(original),
        defect="rotten",
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=parts.queue_offset,
        sys_flag=parts.sys_flag,
        store_timestamp_ms=5,
        keeps_header=True,
    )
    made = tombstone_of(found, original_view.tobytes(), store_format)
    assert made.size == len(original)
    assert made.is_tombstone
    assert (made.topic, made.queue_id, made.queue_offset) == (message.topic, message.queue_id, 7)
    assert (made.flag, made.born_host, made.store_host) == (
        message.flag,
        message.born_host,
        message.store_host,
    )
    assert not made.sys_flag & int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE_MASK)
    assert made.sys_flag & 0xC == message.sys_flag & 0xC
    room = len(message.body or b"") + len(message.properties)
    if room >= len(message.properties) + len(PROPERTY_TOMBSTONE) + 4:
        assert (made.properties or {})[PROPERTY_TOMBSTONE] == "1"
        kept = {k: v for k, v in (made.properties or {}).items() if k != PROPERTY_TOMBSTONE}
        assert kept == properties.decode(message.properties)


@given(st.integers(SIZE_MIN, 5000))
def test_where_nothing_is_known_it_is_in_no_queue(length: int) -> None:
    found = PlaceTombstone(
        offset=1000,
        length=length,
        defect="rotten",
        topic=None,
        sys_flag=int(SysFlag.TRANSACTION_ROLLBACK),
        store_timestamp_ms=5,
    )
    made = tombstone_of(found, bytes(length))
    assert (made.size, made.sys_flag & 0xC) == (length, 0xC)
    with pytest.raises(RecordTombstone) as error:
        record.message_of(made)
    assert error.value.topic is None


def test_properties_that_lost_bytes_are_not_kept() -> None:
    original = encoded(Message("T", 1, b"x" * 50, b"KEYS\x01k\0\0\0k", V4, V4, 0))
    found = PlaceTombstone(
        offset=0, length=len(original), defect="", topic="T", store_timestamp_ms=1,
        keeps_header=True,
    )  # fmt: skip
    assert tombstone_of(found, original).properties == {PROPERTY_TOMBSTONE: "1"}


def test_a_crc_over_the_original_goes() -> None:
    properties = b"KEYS\x01k\x02__CRC32#\x010123456789\x02"
    original = encoded(Message("T", 1, b"x" * 50, properties, V4, V4, 0))
    found = PlaceTombstone(
        offset=0, length=len(original), defect="", topic="T", store_timestamp_ms=1,
        keeps_header=True,
    )  # fmt: skip
    assert tombstone_of(found, original).properties == {"KEYS": "k", PROPERTY_TOMBSTONE: "1"}


def test_a_message_is_no_tombstone() -> None:
    found = record.decode(
        data := encoded(Message("T", 1, b"body", b"", V4, V4, 0)), 0, len(data), physical_offset=0
    )
    assert record.message_of(found) is found


@pytest.mark.parametrize("data", [b"", bytes(50), b"\xff" * 300, b"\xff" * 60])
def test_junk_has_no_parts(data: bytes) -> None:
    assert read_parts(memoryview(data)) is None


def test_a_stretch_is_cut_where_queue_entries_say() -> None:
    named = [EntryTarget(1200, 200, PLACE), EntryTarget(1400, 150, PLACE._replace(queue_offset=8))]
    assert cut_in_pieces(1000, 1700, named, is_last=False) == [
        Piece(1000, 1200, ()),
        Piece(1200, 1400, (PLACE,)),
        Piece(1400, 1550, (PLACE._replace(queue_offset=8),)),
        Piece(1550, 1700, ()),
    ]


def test_the_last_record_of_a_segment_keeps_its_entry_before_a_blank_record() -> None:
    """As long as a blank record behind it, it would be none that its entry names."""
    named = [EntryTarget(1000, 200, PLACE)]
    assert cut_in_pieces(1000, 1208, named, is_last=True) == [
        Piece(1000, 1200, (PLACE,)),
        Piece(1200, 1208, ()),
    ]
    assert cut_in_pieces(1000, 1208, named, is_last=False) == [Piece(1000, 1208, ())]


@given(
    st.integers(0, 400),
    st.integers(1, 3000),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 4000)), max_size=12),
)
def test_pieces_cover_a_stretch_and_none_is_too_short(
    start: int, length: int, entries: list[tuple[int, int]]
) -> None:
    stop = start + length
    named = sorted(EntryTarget(start + at, size, PLACE) for at, size in entries if at < length)
    pieces = cut_in_pieces(start, stop, named, is_last=False)
    assert [pieces[0].start, pieces[-1].stop] == [start, stop]
    assert all(a.stop == b.start for a, b in pairwise(pieces))
    assert len(pieces) == 1 or all(p.stop - p.start >= SIZE_MIN for p in pieces)
    for piece in pieces:
        for _ in piece.places:
            assert any(n.offset == piece.start for n in named)
