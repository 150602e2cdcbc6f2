"""Introductions of followers and leaders: read as written, refused otherwise."""

from __future__ import annotations

import asyncio

import pytest

from mqstore.service import ha_handover
from mqstore.service.ha_frames import HEADER, FrameInvalid
from mqstore.service.ha_handover import SIZE_MAX, FollowerIntroduction
from mqstore.storage.status import Epoch, LogHistory


def _read(data: bytes) -> FollowerIntroduction:
    async def read() -> FollowerIntroduction:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await ha_handover.read(reader, FollowerIntroduction)

    return asyncio.run(read())


def test_the_request_is_no_offset_of_a_slave() -> None:
    assert ha_handover.REQUEST == b"\xff" * 8


def test_introductions_are_read_as_written() -> None:
    history = LogHistory("cd" * 16, (Epoch(0, 0), Epoch(7, 500)), 100, 900)
    fields = ha_handover.fields_of("ab" * 16, history)
    follower = FollowerIntroduction(**fields, name="mqstore-0-1")
    assert _read(ha_handover.encode(follower)) == follower
    assert follower.history == history


@pytest.mark.parametrize("epochs", [(), (Epoch(2, 0), Epoch(1, 5))])
def test_epochs_that_are_not_in_order_are_refused(epochs: tuple[Epoch, ...]) -> None:
    fields = ha_handover.fields_of("ab" * 16, LogHistory(None, epochs, 0, 9))
    with pytest.raises(FrameInvalid):
        _read(ha_handover.encode(FollowerIntroduction(**fields, name="a")))


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(0, 2) + b"{}",
        HEADER.pack(-1, SIZE_MAX + 1),
        HEADER.pack(-1, -1),
        HEADER.pack(-1, 2) + b"{}",
        HEADER.pack(-1, 2) + b"{]",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FrameInvalid):
        _read(data)


def test_an_introduction_that_ends_early_is_an_end() -> None:
    with pytest.raises(EOFError):
        _read(HEADER.pack(-1, 50) + b"{")
