"""Requests and replies between mqstore's services."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import ComponentRequest, Offset, Reply
from mqstore.wire.examples import internal as examples
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.parameters import ListParameters

DAMAGE_MAX: Final = 1_024
"""Offsets of one report: as many blocks wait for the scrub at most."""


class DamageSpec(ComponentRequest):
    """Places of damage that look-ups found."""

    offsets: Annotated[
        list[Offset],
        Field(min_length=1, max_length=DAMAGE_MAX, description="Physical offsets in the log."),
    ]


class DamageReply(Reply):
    """The length of the scrub's queue of reported blocks."""

    waiting: Annotated[int, Field(description="Blocks that wait; 1,024 at most.")]


class AllOffsets(Reply):
    """A page of the committed offsets of all groups, from store-writer's memory."""

    offsets: Annotated[
        dict[str, dict[int, int]],
        Field(description="The next message to consume, by `TOPIC@GROUP` and queue id."),
    ]
    next: Annotated[str | None, Field(description="The cursor to go on with.")] = None


class PendingMessages(Reply):
    """Messages of a shared group in one queue that a receive has reached."""

    topic: str
    group: str
    queue_id: int
    leased: int
    done: Annotated[
        int, Field(description="Behind the group's offset, and acknowledged or filtered out.")
    ]


class ConsumerStates(Reply):
    """The states of the messages of shared groups, from store-writer's memory: a page of groups."""

    pending: Annotated[
        tuple[PendingMessages, ...], Field(description="Of queues with leases or returns.")
    ]
    delayed: Annotated[
        dict[str, int] | None,
        Field(
            description="By group, returned messages whose delay has not ended; null: too many"
            " delayed messages wait to count them."
        ),
    ]
    next: Annotated[str | None, Field(description="The cursor to go on with.")] = None


class StatesParameters(ListParameters):
    """A page of the states of groups."""

    group: Annotated[str | None, Field(description="Only this group.")] = None


CONSUMER_STATES: Final = Operation(
    name="consumer_states",
    targets=(Target.WRITER,),
    path="/v1/internal/consumer-states",
    role=Role.SYSTEM,
    summary="States of the messages of shared groups",
    tag="internal",
    query=StatesParameters,
    reply=ConsumerStates,
    example=examples.STATES,
    problems=(problems.GROUP_INVALID,),
)
ALL_OFFSETS: Final = Operation(
    name="offsets",
    targets=(Target.WRITER,),
    path="/v1/internal/offsets",
    role=Role.SYSTEM,
    summary="Committed offsets of all groups",
    tag="internal",
    query=ListParameters,
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
