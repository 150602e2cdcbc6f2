"""The hand-over of a follower of mqstore and its leader, before RocketMQ's HA protocol.

The follower requests it by a report of -1, which no slave of RocketMQ sends. A leader of mqstore
introduces itself at once. The follower then introduces itself, and goes on with reports of offsets.
A master of RocketMQ takes -1 for a slave that has not reported yet: it sends nothing, and the
follower's next report begins RocketMQ's protocol on the same connection. Before the leader's
introduction a follower must send nothing else: a master takes any 8 bytes for an acknowledgement.

An introduction is a header as of a frame, of offset -1, and as many bytes of JSON.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

import msgspec

from mqstore.service.ha_frames import HEADER, FrameInvalid, encode_report

OFFSET: Final = -1
"""Offset of the request, and in the header of an introduction."""
REQUEST: Final = encode_report(OFFSET)
SIZE_MAX: Final = 256 << 10
"""Maximum bytes of an introduction's JSON."""


class LeaderIntroduction(msgspec.Struct, frozen=True, rename="camel"):
    """The introduction of a leader of mqstore and of its log."""

    store_id: str


class FollowerIntroduction(msgspec.Struct, frozen=True, rename="camel"):
    """The introduction of a follower of mqstore and of its log."""

    store_id: str
    name: str
    """Its ``replicaName``."""


Introduction = TypeVar("Introduction", LeaderIntroduction, FollowerIntroduction)


def encode(introduction: LeaderIntroduction | FollowerIntroduction) -> bytes:
    """Return the bytes of an introduction."""
    text = msgspec.json.encode(introduction)
    assert len(text) <= SIZE_MAX
    return HEADER.pack(OFFSET, len(text)) + text


async def read(reader: asyncio.StreamReader, kind: type[Introduction]) -> Introduction:
    """Read an introduction. Raises FrameInvalid, IncompleteReadError (an EOFError), OSError."""
    offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
    if offset != OFFSET or not 0 <= size <= SIZE_MAX:
        raise FrameInvalid(f"{size} bytes at offset {offset} came instead of an introduction")
    try:
        return msgspec.json.decode(await reader.readexactly(size), type=kind)
    except msgspec.MsgspecError as error:
        raise FrameInvalid(f"the other side's introduction is invalid: {error}") from None
