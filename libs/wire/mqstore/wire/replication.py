"""Replication of a shard: a follower's copy of its leader's store, and its promotion."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Milliseconds, Reply, Request
from mqstore.wire.examples import replication as examples
from mqstore.wire.operation import Operation, Role, Target


class Following(Reply):
    """A follower's copy of its leader's log and tables. Offsets are physical, in bytes."""

    leader: Annotated[str, Field(description="`host:port` of the leader's HA port.")]
    state: Annotated[
        str,
        Field(
            description="`connecting`, `following`, `diverged`: a tail that the leader lacks is "
            "being cut; or `refused`: the leader's log does not continue this one, and an operator "
            "must act."
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


class Replica(Reply):
    """A connected copy of a leader's log. Offsets are physical, in bytes."""

    name: Annotated[
        str, Field(description="Its `replicaName`; the address of a slave of RocketMQ.")
    ]
    address: str
    kind: Annotated[
        str,
        Field(
            description="`replica`: a follower of mqstore, which may be in sync; `slave`: one of "
            "RocketMQ."
        ),
    ]
    acknowledged_offset: Annotated[
        int,
        Field(
            description="Everything below is on its disk; in its page cache, if it is a `slave` or "
            "its `haFlushDiskType` is ASYNC_FLUSH."
        ),
    ]
    lag_bytes: Annotated[int, Field(description="Bytes that it has not acknowledged.")]
    lag_ms: Annotated[
        int | None,
        Field(description="For how long it has lacked a part of the log; null before it had all."),
    ]
    bytes_per_second: Annotated[int, Field(description="What it acknowledged lately.")]
    in_sync: Annotated[bool, Field(description="Whether it may become the leader.")]
    connected_since_ms: Milliseconds
    in_sync_since_ms: int | None


class Leading(Reply):
    """A leader, and the copies of its store. Offsets are physical, in bytes."""

    end_offset: Annotated[int, Field(description="End of the log.")]
    confirmed_offset: Annotated[
        int, Field(description="All copies that are in sync have everything below on their disks.")
    ]
    in_sync: Annotated[
        tuple[str, ...],
        Field(description="Names of the copies that are in sync, the leader's included."),
    ]
    min_in_sync_replicas: Annotated[
        int, Field(description="With fewer, messages that are to wait for replicas are refused.")
    ]
    replicas: Annotated[tuple[Replica, ...], Field(description="The connected copies, by name.")]


class Election(Reply):
    """A replica's view of the election of its shard's leader."""

    name: Annotated[str, Field(description="Name of this replica: `replicaName` and its store.")]
    leader: Annotated[str | None, Field(description="Name of the leader; null: none is known.")]
    leader_url: Annotated[str | None, Field(description="URL of the leader's store-writer.")]
    epoch: Annotated[int, Field(description="Number of the leader; each later one has a higher.")]
    in_sync: Annotated[
        tuple[str, ...],
        Field(description="Replicas that may lead: they have all that is acknowledged."),
    ]
    reason: Annotated[str | None, Field(description="Why this replica does not lead.")]


class SwitchoverSpec(Request):
    """The replica that is to lead."""

    to: Annotated[
        str | None,
        Field(max_length=300, description="Its `replicaName`; null: the one that has most."),
    ] = None


class Switchover(Reply):
    """A lead that was handed over."""

    successor: Annotated[str, Field(description="Name of the replica that leads now.")]


class Replication(Reply):
    """The role of a store among its copies."""

    role: Annotated[
        str,
        Field(description="`leader`: it takes messages; `follower`: it copies a leader's store."),
    ]
    epoch: Annotated[
        int,
        Field(
            description="Newest epoch of the log: each leader begins one. 0 in a store that never "
            "led with followers."
        ),
    ]
    following: Annotated[
        Following | None, Field(description="The copy of the leader's store; null in a leader.")
    ]
    leading: Annotated[
        Leading | None,
        Field(
            description="The copies of this store; null in a follower, and where none may connect."
        ),
    ] = None
    election: Annotated[
        Election | None,
        Field(description="The election of the leader; null where settings name it."),
    ] = None


REPLICATION: Final = Operation(
    name="replication",
    targets=(Target.WRITER,),
    path="/v1/store/replication",
    role=Role.CONSUME,
    summary="The store's role, its copies, and how far it is behind its leader",
    tag="store",
    reply=Replication,
    example=examples.LEADER,
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
    problems=(problems.STORE_FAILED, problems.SWITCHOVER_REFUSED),
)
SWITCH_OVER: Final = Operation(
    name="switch_over",
    targets=(Target.WRITER,),
    method="POST",
    path="/v1/store/replication:switch-over",
    role=Role.ADMIN,
    summary="Hand the lead of the shard over to another replica",
    tag="store",
    request=SwitchoverSpec,
    reply=Switchover,
    example=examples.SWITCHOVER,
    problems=(*problems.WITH_BODY, problems.SWITCHOVER_REFUSED),
)
