"""Frames of the HA protocol: bytes as RocketMQ 4.9.7 writes them, in pieces of any size."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.formats import crc32c
from mqstore.storage.replication import ha_frames
from mqstore.storage.replication.ha_frames import (
    CHECKSUM,
    FETCH_SIZE_MAX,
    HEADER,
    Confirmation,
    Fetch,
    Frame,
    FrameCorrupt,
    FrameInvalid,
    FrameReader,
    ReportReader,
    Tables,
    encode_confirmation,
    encode_fetch,
    encode_fetched,
    encode_frame,
    encode_header,
    encode_report,
    encode_tables,
    encode_tables_report,
)
from mqstore.storage.service_settings import HA_BODY_SIZE_MAX

OFFSETS = st.integers(0, (1 << 63) - 1)
FRAMES = st.lists(st.tuples(OFFSETS, st.binary(max_size=100)), max_size=8)
CUTS = st.lists(st.integers(0, 1000), max_size=10)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


def test_frames_have_the_bytes_of_rocketmq() -> None:
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))
    assert encode_header(258, 3) == bytes([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3])


@given(FRAMES, CUTS)
def test_frames_are_read_from_pieces_of_any_size(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(encode_header(offset, len(body)) + body for offset, body in frames)
    reader = FrameReader()
    read = [frame for piece in _pieces(data, cuts) for frame in reader.feed(piece)]
    assert read == [Frame(offset, body) for offset, body in frames]


@given(st.lists(OFFSETS, max_size=8), CUTS)
def test_the_newest_whole_report_counts(offsets: list[int], cuts: list[int]) -> None:
    reader = ReportReader()
    data = b"".join(map(encode_report, offsets))
    end = 0
    for piece in _pieces(data, cuts):
        before, end = end // 8, end + len(piece)
        newest = offsets[end // 8 - 1] if end // 8 > before else None
        assert reader.feed(piece) == newest


@pytest.mark.parametrize(
    "header", [HEADER.pack(-1, 0), HEADER.pack(0, -1), HEADER.pack(0, HA_BODY_SIZE_MAX + 1)]
)
def test_a_frame_that_the_protocol_does_not_have_is_an_error(header: bytes) -> None:
    with pytest.raises(FrameInvalid):
        list(FrameReader().feed(header))


def test_frames_before_an_invalid_one_are_read() -> None:
    frames = FrameReader().feed(encode_header(5, 1) + b"x" + HEADER.pack(-1, 0))
    assert next(frames) == Frame(5, b"x")
    with pytest.raises(FrameInvalid):
        next(frames)


def test_a_negative_report_is_an_error() -> None:
    with pytest.raises(FrameInvalid):
        ReportReader().feed(b"\xff" * 8)


@given(FRAMES, CUTS)
def test_frames_with_checksums_are_read_from_pieces_of_any_size(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(encode_frame(*frame, has_checksum=True) for frame in frames)
    reader = FrameReader(has_checksum=True)
    read = [frame for piece in _pieces(data, cuts) for frame in reader.feed(piece)]
    assert read == [Frame(offset, body) for offset, body in frames]


@given(OFFSETS, st.binary(max_size=100), st.data())
def test_no_changed_bit_passes_for_the_frame_that_was_sent(
    offset: int, body: bytes, data: st.DataObject
) -> None:
    sent = bytearray(encode_frame(offset, body, has_checksum=True))
    bit = data.draw(st.integers(0, 8 * len(sent) - 1))
    sent[bit // 8] ^= 1 << bit % 8
    reader = FrameReader(has_checksum=True)
    try:
        assert list(reader.feed(bytes(sent))) == []  # its size has grown
    except FrameInvalid:
        return
    assert 64 <= bit < 96


@given(FRAMES, CUTS, st.lists(st.integers(0, 1 << 62), min_size=1, max_size=5))
def test_the_newest_confirmation_is_kept_between_frames(
    frames: list[tuple[int, bytes]], cuts: list[int], confirmed: list[int]
) -> None:
    sent = [encode_frame(*frame, has_checksum=True) for frame in frames]
    for number, offset in enumerate(confirmed):
        sent.insert(2 * number, encode_confirmation(Confirmation(offset, number)))
    reader = FrameReader(has_checksum=True)
    read = [frame for piece in _pieces(b"".join(sent), cuts) for frame in reader.feed(piece)]
    assert read == [Frame(offset, body) for offset, body in frames]
    assert reader.confirmation == Confirmation(confirmed[-1], len(confirmed) - 1)


def test_a_confirmation_that_changed_on_the_way_is_corrupt() -> None:
    sent = encode_confirmation(Confirmation(7, 2))
    with pytest.raises(FrameCorrupt):
        list(FrameReader(has_checksum=True).feed(sent[:-1] + bytes([sent[-1] ^ 1])))
    with pytest.raises(FrameInvalid):
        list(FrameReader().feed(sent))


def test_a_frame_that_changed_on_the_way_is_corrupt() -> None:
    sent = encode_frame(7, b"log", has_checksum=True)
    with pytest.raises(FrameCorrupt, match="3 bytes at offset 7"):
        list(FrameReader(has_checksum=True).feed(sent[:-1] + b"x"))


def test_a_frame_without_checksum_has_the_bytes_of_rocketmq() -> None:
    assert encode_frame(258, b"abc", has_checksum=False) == encode_header(258, 3) + b"abc"


def test_a_text_of_tables_comes_in_parts_between_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_frames, "TABLES_PART_SIZE", 3)
    parts = [*encode_tables(b"12345678")]
    frame = encode_frame(7, b"log", has_checksum=True)
    data = parts[0] + frame + parts[1] + encode_confirmation(Confirmation(5, 2)) + parts[2] + frame
    reader = FrameReader(has_checksum=True)
    found = [each for start in range(len(data)) for each in reader.feed(data[start : start + 1])]
    assert found == [Frame(7, b"log"), Tables(b"12345678"), Frame(7, b"log")]


def test_tables_that_changed_on_the_way_are_an_error() -> None:
    (data,) = encode_tables(b"text")
    with pytest.raises(FrameCorrupt):
        list(FrameReader(has_checksum=True).feed(data[:-1] + b"x"))


def test_too_long_a_text_of_tables_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_frames, "TABLES_SIZE_MAX", 3)
    header = HEADER.pack(ha_frames.TABLES_PART, 4)
    frame = header + CHECKSUM.pack(crc32c(b"text", crc32c(header))) + b"text"
    with pytest.raises(FrameInvalid, match="tables of more than 3 bytes"):
        list(FrameReader(has_checksum=True).feed(frame))


def test_a_broker_sends_no_tables() -> None:
    (data,) = encode_tables(b"text")
    with pytest.raises(FrameInvalid):
        list(FrameReader().feed(data))


def test_reports_of_tables_stand_between_those_of_offsets() -> None:
    reader = ReportReader(has_tables=True)
    data = encode_report(5) + encode_tables_report(3) + encode_report(6) + encode_tables_report(4)
    assert (reader.feed(data), reader.tables) == (6, 4)
    assert (reader.feed(encode_tables_report(9)), reader.tables) == (None, 9)
    with pytest.raises(FrameInvalid):
        ReportReader().feed(encode_tables_report(1))
    with pytest.raises(FrameInvalid):
        reader.feed(encode_report(0)[:7] + b"\0" + b"\xff" * 8)


@given(st.lists(st.tuples(OFFSETS, st.binary(max_size=50)), max_size=4), CUTS)
def test_ranges_of_a_follower_are_read_from_pieces_of_any_size(
    ranges: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    parts = [encode_report(7) + encode_fetched(*each) + encode_tables_report(3) for each in ranges]
    reader = ReportReader(has_tables=True)
    newest = [reader.feed(piece) for piece in _pieces(b"".join(parts), cuts)]
    assert reader.fetched == [Frame(*each) for each in ranges]
    assert (7 in newest, reader.tables) == ((True, 3) if ranges else (False, 0))


def test_a_range_that_changed_on_the_way_is_an_error() -> None:
    data = encode_fetched(5, b"bytes")
    with pytest.raises(FrameCorrupt):
        ReportReader(has_tables=True).feed(data[:-1] + b"x")
    for header in (HEADER.pack(-5, 1), HEADER.pack(0, -1), HEADER.pack(0, FETCH_SIZE_MAX + 1)):
        with pytest.raises(FrameInvalid):
            ReportReader(has_tables=True).feed(data[:8] + header + bytes(4))


def test_a_request_for_a_range_is_read() -> None:
    data = encode_fetch(5, 7)
    assert [*FrameReader(has_checksum=True).feed(data)] == [Fetch(5, 7)]
    for invalid in (encode_fetch(-1, 7), encode_fetch(5, 0), encode_fetch(5, FETCH_SIZE_MAX + 1)):
        with pytest.raises(FrameInvalid):
            list(FrameReader(has_checksum=True).feed(invalid))
