"""Introductions of followers and leaders: read as written, refused otherwise."""

from __future__ import annotations

import pytest

from mqstore.storage.replication import ha_handover
from mqstore.storage.replication.ha_frames import HEADER, FrameInvalid
from mqstore.storage.replication.ha_handover import SIZE_MAX, FollowerIntroduction
from mqstore.storage.status import Epoch, LogHistory


def _read(data: bytes) -> FollowerIntroduction:
    text = ha_handover.take_text(bytearray(data))
    assert text is not None
    return ha_handover.decode_introduction(text, FollowerIntroduction)


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


def test_a_message_is_taken_once_it_is_complete_and_what_follows_stays() -> None:
    whole = HEADER.pack(-1, 2) + b"{}"
    for size in range(len(whole)):
        begun = bytearray(whole[:size])
        assert ha_handover.take_text(begun) is None
        assert begun == whole[:size]
    begun = bytearray(whole + b"behind")
    assert ha_handover.take_text(begun) == b"{}"
    assert begun == b"behind"
