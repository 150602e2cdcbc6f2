"""Frames of the HA protocol: bytes as RocketMQ 4.9.7 writes them, in pieces of any size."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.ha_frames import (
    BODY_SIZE_MAX,
    HEADER,
    Confirmation,
    Frame,
    FrameCorrupt,
    FrameInvalid,
    FrameReader,
    ReportReader,
    encode_confirmation,
    encode_frame,
    encode_header,
    encode_report,
)

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
    "header", [HEADER.pack(-1, 0), HEADER.pack(0, -1), HEADER.pack(0, BODY_SIZE_MAX + 1)]
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
