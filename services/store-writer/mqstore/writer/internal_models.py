"""What the internal routes read and answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field

from mqstore.storage.own.fences import EPOCH_MAX, NAME, Fence
from mqstore.wire.base import INT32_MAX, INT32_MIN, INT64_MAX

if TYPE_CHECKING:
    from mqstore.wire.produce import Placed
else:
    from mqstore.service.structs import struct_of
    from mqstore.wire import produce

    Placed = struct_of(produce.Placed)

Int32 = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
QueueId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)]

ABSENT_MAX: Final = 10_000
"""Keys of one conditional append: each is one lookup in the index on the event loop."""
KEYS_MAX: Final = 1_000
"""Keys of one lookup: some ten microseconds each, in a thread."""
KINDS_EXAMPLE: Final[dict[str, Any]] = {"kinds": [[8], []], "complete": True}
DAMAGE_MAX: Final = 1_024
"""Offsets of one report: as many blocks wait for the scrub at most."""
DAMAGE_EXAMPLE: Final[dict[str, Any]] = {"waiting": 1}
FENCE_EXAMPLE: Final[dict[str, Any]] = {"name": "coordinator", "epoch": 7}
OFFSETS_EXAMPLE: Final[dict[str, Any]] = {"offsets": {"orders@billing": {"0": 42, "1": 40}}}
APPEND_EXAMPLE: Final[dict[str, Any]] = {
    "fence": FENCE_EXAMPLE,
    "records": [
        {
            "topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "queueId": 0,
            "body": "12",
            "properties": {"TAGS": "d"},
        }
    ],
    "durability": "sync",
}


class FenceAt(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Who appends. A higher epoch than the present one raises the fence first."""

    name: Annotated[str, Meta(pattern=f"^{NAME.pattern}$", description="Of the fence.")]
    epoch: Annotated[int, Meta(ge=0, le=EPOCH_MAX)]


class NewRecord(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """One record as it is to stand in the log. Give ``body`` or ``bodyBase64``, or neither."""

    topic: Annotated[str, Meta(min_length=1, description="System topics, too.")]
    queue_id: QueueId
    body: str | None = None
    body_base64: bytes | None = None
    properties: Annotated[dict[str, str], Meta(description="RocketMQ's own names, too.")] = {}
    flag: Int32 = 0
    sys_flag: Annotated[
        int,
        Meta(ge=0, le=0x7FFF, description="Transaction bits: 4 prepared, 8 commit, 12 rollback."),
    ] = 0
    born_timestamp: Annotated[Int64, Meta(description="Default: now.")] | None = None
    born_host: Annotated[str, Meta(description="address:port; default: the caller.")] | None = None
    reconsume_times: Int32 = 0
    prepared_transaction_offset: Int64 = 0


class KeyOf(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A key of a topic's records: UNIQ_KEY, or one of KEYS."""

    topic: Annotated[str, Meta(min_length=1, description="System topics, too.")]
    key: Annotated[str, Meta(min_length=1)]


class AppendRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """Records of any topics and queues: one contiguous append, all or none."""

    fence: FenceAt
    records: Annotated[list[NewRecord], Meta(min_length=1)]
    durability: Literal["sync", "async"] | None = None
    absent: Annotated[
        list[KeyOf],
        Meta(
            max_length=ABSENT_MAX,
            description="Keys that no record may have: else nothing is stored (409 keys-known).",
        ),
    ] = []


class AppendReply(msgspec.Struct, rename="camel", gc=False):
    """In the order of the request."""

    records: list[Placed]
    readable: Annotated[bool, Meta(description="Whether queues and index have all of it already.")]


class DamageSpec(BaseModel):
    """Where look-ups met damage."""

    model_config = ConfigDict(extra="forbid")

    offsets: Annotated[
        list[Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]],
        Field(min_length=1, max_length=DAMAGE_MAX, description="Physical offsets in the log."),
    ]


class DamageReply(BaseModel):
    """The length of the scrub's queue of reported blocks."""

    waiting: Annotated[int, Field(description="Blocks that wait; 1,024 at most.")]


class KeySpec(BaseModel):
    """A unique key of a topic's records."""

    model_config = ConfigDict(extra="forbid")

    topic: Annotated[str, Field(min_length=1, description="System topics, too.")]
    key: Annotated[str, Field(min_length=1)]


class KeyList(BaseModel):
    """Unique keys to look up."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"keys": [{"topic": "orders", "key": "order-1"}]}},
    )

    keys: Annotated[list[KeySpec], Field(max_length=KEYS_MAX)]


class KeyKinds(BaseModel):
    """In the order of the request."""

    kinds: Annotated[
        list[list[int]],
        Field(description="Transaction bits of SYSFLAG (4, 8, 12; 0: none) of each key's records."),
    ]
    complete: Annotated[bool, Field(description="False while the index does not cover the log.")]


class FenceSpec(BaseModel):
    """Where a fence should stand."""

    epoch: Annotated[int, Field(ge=0, le=EPOCH_MAX, strict=True)]

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"epoch": 7}})


class AllOffsets(msgspec.Struct, gc=False):
    """The committed offsets of all groups, from store-writer's memory."""

    offsets: Annotated[
        dict[str, dict[int, int]],
        Meta(description="The next message to consume, by `TOPIC@GROUP` and queue id."),
    ]


class FenceList(BaseModel):
    """By name."""

    fences: list[Fence]
