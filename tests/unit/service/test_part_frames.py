"""A part of an index rebuild, as its job sends it and as store-writer reads it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.client import part_frames
from mqstore.storage.errors import IndexRebuildInvalid
from mqstore.storage.index.build import ITEM_SIZE
from mqstore.writer.part_frames import FRAME_MAX, HEAD, LAST, FrameReader

chunks = st.lists(
    st.tuples(
        st.integers(0, LAST - 1),
        st.integers(1, 3).flatmap(
            lambda items: st.binary(min_size=items * ITEM_SIZE, max_size=items * ITEM_SIZE)
        ),
    ),
    max_size=4,
)


def _read(sent: bytes, piece: int) -> tuple[list[tuple[int, bytes]], int | None]:
    reader = FrameReader()
    found = [
        frame for at in range(0, len(sent), piece) for frame in reader.feed(sent[at : at + piece])
    ]
    return found, reader.items


@given(chunks, st.integers(1, 200))
def test_frames_are_read_as_they_were_sent_however_they_are_cut(
    sent: list[tuple[int, bytes]], piece: int
) -> None:
    items = sum(len(content) for _, content in sent) // ITEM_SIZE
    assert _read(b"".join(part_frames(sent)), piece) == (sent, items)


@given(chunks, st.integers(1, 200), st.data())
def test_items_that_changed_on_the_way_are_never_taken(
    sent: list[tuple[int, bytes]], piece: int, data: st.DataObject
) -> None:
    whole = bytearray(b"".join(part_frames(sent)))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found, _ = _read(bytes(whole), piece)
    except IndexRebuildInvalid:
        return
    assert [content for _, content in found] == [content for _, content in sent][: len(found)]


@pytest.mark.parametrize("length", [0, 1, ITEM_SIZE + 1, FRAME_MAX + ITEM_SIZE, 2**32 - 1])
def test_a_frame_of_an_impossible_length_is_refused_before_it_is_held(length: int) -> None:
    with pytest.raises(IndexRebuildInvalid, match="no whole items, or more than"):
        list(FrameReader().feed(HEAD.pack(0, length, 0)))


def test_nothing_comes_behind_the_last_frame() -> None:
    whole = b"".join(part_frames([]))
    reader = FrameReader()
    assert list(reader.feed(whole)) == [] and reader.items == 0
    with pytest.raises(IndexRebuildInvalid, match="bytes follow the last frame"):
        list(reader.feed(struct.pack("B", 0)))
