"""The hand-over of a follower of mqstore and its leader, before RocketMQ's HA protocol.

The follower requests it by a report of -1, which no slave of RocketMQ sends. A leader of mqstore
introduces itself at once. The follower then introduces itself, and goes on with reports of offsets.
A master of RocketMQ takes -1 for a slave that has not reported yet: it sends nothing, and the
follower's next report begins RocketMQ's protocol on the same connection. Before the leader's
first message a follower must send nothing else: a master takes any 8 bytes for an acknowledgement.
A leader that has a secret sends a challenge first (``ha_proof``).

A message is a header as of a frame, of offset -1, and as many bytes of JSON.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from mqstore.storage.metadata.log_history import Epoch, LogHistory
from mqstore.storage.replication.ha_frames import HEADER, FrameInvalid, encode_report

OFFSET: Final = -1
"""Offset of the request, and in the header of an introduction."""
REQUEST: Final = encode_report(OFFSET)
SIZE_MAX: Final = 256 << 10
"""Maximum bytes of an introduction's JSON."""


class LeaderIntroduction(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A leader of mqstore and its log."""

    store_id: str
    log_id: str | None
    epochs: tuple[Epoch, ...]
    start: int
    end: int

    @property
    def history(self) -> LogHistory:
        """The epochs and bounds of its log."""
        return LogHistory(self.log_id, self.epochs, self.start, self.end)


class FollowerIntroduction(LeaderIntroduction, frozen=True, rename="camel", kw_only=True):
    """A follower of mqstore and its log, which has no bytes that the leader's lacks."""

    name: str
    """Its ``replicaName``."""


Introduction = TypeVar("Introduction", LeaderIntroduction, FollowerIntroduction)
Message = TypeVar("Message", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    """Return the bytes of an introduction, or of a message before it."""
    text = msgspec.json.encode(message)
    assert len(text) <= SIZE_MAX
    return HEADER.pack(OFFSET, len(text)) + text


def take_text(data: bytearray, size_max: int = SIZE_MAX) -> bytes | None:
    """Take the JSON of a message from the begin of what has come; None while it is not all here.

    Raises FrameInvalid.
    """
    if len(data) < HEADER.size:
        return None
    offset, size = HEADER.unpack_from(data)
    if offset != OFFSET or not 0 <= size <= size_max:
        raise FrameInvalid(f"{size} bytes at offset {offset} came instead of an introduction")
    end = HEADER.size + size
    if len(data) < end:
        return None
    text = bytes(data[HEADER.size : end])
    del data[:end]
    return text


def decode(text: bytes, kind: type[Message]) -> Message:
    """Return the message of a JSON text. Raises FrameInvalid."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise FrameInvalid(f"the other side's introduction is invalid: {error}") from None


def decode_introduction(text: bytes, kind: type[Introduction]) -> Introduction:
    """Return the introduction of a JSON text. Raises FrameInvalid."""
    found = decode(text, kind)
    if not found.epochs or found.epochs != tuple(sorted(found.epochs)) or found.end < found.start:
        raise FrameInvalid("the other side's introduction has no epochs, or none in order")
    return found


def fields_of(store_id: str, history: LogHistory) -> dict[str, Any]:
    """Return the fields of an introduction that describe a store and its log."""
    return {
        "store_id": store_id,
        "log_id": history.log_id,
        "epochs": history.epochs,
        "start": history.start,
        "end": history.end,
    }
