"""Requests and replies between mqstore's services."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire.base import INT64_MAX, Reply, Request

DAMAGE_MAX: Final = 1_024
"""Offsets of one report: as many blocks wait for the scrub at most."""


class DamageSpec(Request):
    """Places of damage that look-ups found."""

    offsets: Annotated[
        list[Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]],
        Field(min_length=1, max_length=DAMAGE_MAX, description="Physical offsets in the log."),
    ]


class DamageReply(Reply):
    """The length of the scrub's queue of reported blocks."""

    waiting: Annotated[int, Field(description="Blocks that wait; 1,024 at most.")]


class AllOffsets(Reply):
    """The committed offsets of all groups, from store-writer's memory."""

    offsets: Annotated[
        dict[str, dict[int, int]],
        Field(description="The next message to consume, by `TOPIC@GROUP` and queue id."),
    ]
