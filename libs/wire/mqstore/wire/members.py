"""Ordered consumer groups: members, and the queues that they hold."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import Milliseconds, NewerInteger, Reply, Request
from mqstore.wire.examples import members as examples
from mqstore.wire.limits import (
    MEMBER_LENGTH_MAX,
    SESSION_DEFAULT_S,
    SESSION_MAX_S,
    SESSION_MIN_S,
    TOPICS_MAX,
)
from mqstore.wire.operation import Nothing, Operation, Role, Target
from mqstore.wire.shards import OfShards

MEMBER_PATTERN: Final = f"^[a-zA-Z0-9._-]{{1,{MEMBER_LENGTH_MAX}}}$"


class MemberSpec(Request):
    """The topics that a member consumes; all members of a group name the same ones."""

    topics: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=TOPICS_MAX,
            description="The group's retry topic is consumed without being named.",
        ),
    ]
    session_s: Annotated[
        float,
        Field(
            ge=SESSION_MIN_S,
            le=SESSION_MAX_S,
            description="Seconds after which the member's queues go to others, unless it renews.",
        ),
    ] = SESSION_DEFAULT_S

    model_config = ConfigDict(json_schema_extra={"example": examples.MEMBER_SPEC})


class MemberQueue(Reply):
    """A queue that a member holds."""

    topic: str
    shard: NewerInteger = None
    queue_id: int
    epoch: Annotated[
        int,
        Field(
            description="Grows each time the queue goes to another member, over kills too. An"
            " offset is committed with it."
        ),
    ]


class LeavingQueue(Reply):
    """A queue that a member gives up."""

    topic: str
    shard: NewerInteger = None
    queue_id: int


class Member(OfShards, title="GroupMember"):
    """A member of an ordered group."""

    group: str
    member: str
    topics: tuple[str, ...]
    session_expires: Annotated[Milliseconds, Field(description="About when its session ends.")]
    queues: Annotated[
        tuple[MemberQueue, ...], Field(description="The queues that it receives from.")
    ]
    leaving: Annotated[
        tuple[LeavingQueue, ...],
        Field(
            description="Queues that it gets nothing new from, and that go to another member once"
            " its messages of them are settled."
        ),
    ]

    model_config = ConfigDict(json_schema_extra={"example": examples.MEMBER})


class Members(OfShards, title="GroupMembers"):
    """The members of an ordered group, by name."""

    group: str
    members: tuple[Member, ...]

    model_config = ConfigDict(json_schema_extra={"example": examples.MEMBERS})


_MEMBERS: Final = "/v1/groups/{group}/members"
_MEMBER: Final = _MEMBERS + "/{member}"
_UNWRITTEN: Final = (problems.STORE_READ_ONLY, problems.STORE_FAILED)

MEMBERS: Final = Operation(
    name="members",
    targets=(Target.WRITER,),
    path=_MEMBERS,
    role=Role.CONSUME,
    summary="The members of an ordered group",
    tag="consumers",
    reply=Members,
    example=examples.MEMBERS,
    problems=(problems.GROUP_INVALID,),
)
JOIN: Final = Operation(
    name="join",
    targets=(Target.WRITER,),
    method="PUT",
    path=_MEMBER,
    role=Role.CONSUME,
    summary="Join an ordered group, or renew a session",
    tag="consumers",
    request=MemberSpec,
    reply=Member,
    example=examples.MEMBER,
    problems=(
        problems.TOPIC_UNKNOWN,
        problems.GROUP_INVALID,
        problems.GROUP_UNKNOWN,
        problems.LIMIT_REACHED,
        problems.GROUP_DISABLED,
        problems.GROUP_SHARED,
        problems.MEMBERS_FULL,
        *_UNWRITTEN,
        *problems.WITH_BODY,
    ),
)
LEAVE: Final = Operation(
    name="leave",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_MEMBER,
    role=Role.CONSUME,
    summary="Leave an ordered group",
    tag="consumers",
    reply=Nothing,
    status=204,
    problems=(problems.GROUP_INVALID, *_UNWRITTEN),
)
