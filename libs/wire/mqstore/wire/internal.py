"""Requests and replies between mqstore's services."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import INT64_MAX, Reply, Request
from mqstore.wire.examples import internal as examples
from mqstore.wire.operation import Operation, Role, Target

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


ALL_OFFSETS: Final = Operation(
    name="offsets",
    targets=(Target.WRITER,),
    path="/v1/internal/offsets",
    role=Role.CONSUME,
    summary="Committed offsets of all groups",
    tag="internal",
    reply=AllOffsets,
    example=examples.OFFSETS,
)
REPORT_DAMAGE: Final = Operation(
    name="damage",
    targets=(Target.WRITER,),
    method="POST",
    path="/v1/internal/damage",
    role=Role.SYSTEM,
    summary="Report damage of the log",
    tag="internal",
    request=DamageSpec,
    reply=DamageReply,
    example=examples.DAMAGE,
    status=202,
    problems=problems.WITH_BODY,
)
