"""Replication of a shard: a follower's copy of its leader's store, and its promotion."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Milliseconds, Reply
from mqstore.wire.examples import replication as examples
from mqstore.wire.operation import Operation, Role, Target


class Following(Reply):
    """A follower's copy of its leader's log and tables. Offsets are physical, in bytes."""

    leader: Annotated[str, Field(description="`host:port` of the leader's HA port.")]
    state: Annotated[
        str,
        Field(
            description="`connecting`, `following`, or `refused`: the leader's log does not "
            "continue this one, and an operator must act."
        ),
    ]
    reason: Annotated[
        str | None, Field(description="Why there is no connection, or the leader is refused.")
    ]
    since_ms: Annotated[Milliseconds, Field(description="Time of the last change of `state`.")]
    received_offset: Annotated[int, Field(description="Everything below is received.")]
    durable_offset: Annotated[
        int, Field(description="Everything below is on disk, and acknowledged to the leader.")
    ]
    leader_offset: Annotated[int, Field(description="Greatest known end of the leader's log.")]
    lag_bytes: Annotated[
        int, Field(description="Bytes of the leader's log not yet here as whole messages.")
    ]
    damaged_records: Annotated[
        int, Field(description="Records that were copied although the leader has them damaged.")
    ]
    tables_copied_at_ms: Annotated[
        int | None,
        Field(description="When topics, groups and offsets were copied last; null: never."),
    ]
    tables_reason: Annotated[
        str | None, Field(description="Why the last copy of topics, groups and offsets failed.")
    ]


class Replication(Reply):
    """The role of a store among its copies."""

    role: Annotated[
        str,
        Field(description="`leader`: it takes messages; `follower`: it copies a leader's store."),
    ]
    following: Annotated[
        Following | None, Field(description="The copy of the leader's store; null in a leader.")
    ]


REPLICATION: Final = Operation(
    name="replication",
    targets=(Target.WRITER,),
    path="/v1/store/replication",
    role=Role.CONSUME,
    summary="The store's role, and how far it is behind its leader",
    tag="store",
    reply=Replication,
    example=examples.FOLLOWER,
)
PROMOTE: Final = Operation(
    name="promote",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path="/v1/store/replication:promote",
    role=Role.ADMIN,
    summary="Stop following, and take messages",
    tag="store",
    reply=Replication,
    example=examples.PROMOTED,
    problems=(problems.STORE_FAILED,),
)
