"""What the query service answers about one message's way through the store."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta

from mqstore.query.group_models import OffsetsSourceView, OneShard
from mqstore.query.models import CheckedBy, Milliseconds, OfShards, UnreadableView


class GroupStandView(msgspec.Struct, rename="camel", gc=False):
    """Whether a group is past a copy."""

    group: str
    committed: Annotated[
        int | None, Meta(description="Its offset in the copy's queue; null without one.")
    ]
    consumed: Annotated[
        bool,
        Meta(
            description="The committed offset is past it: the group is done with it, or has sent "
            "it back, which its own copies in %RETRY%GROUP show."
        ),
    ]


class CopyView(msgspec.Struct, rename="camel", gc=False):
    """One record of the message."""

    kind: Annotated[
        str,
        Meta(
            description="message: in its own topic; delayed; half; set-aside: a half that was "
            "checked too often; retry, dead-letter: sent back by `group`."
        ),
    ]
    state: Annotated[
        str,
        Meta(
            description="stored; of delayed ones waiting, delivered; of halves pending, committed, "
            "rolled-back, set-aside, renewed (a later copy counts)."
        ),
    ]
    why: Annotated[str, Meta(description="What the state was told from.")]
    group: Annotated[str | None, Meta(description="The consumer group that sent it back.")]
    due_at: Annotated[Milliseconds | None, Meta(description="Of a delayed one.")]
    topic: str
    shard: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    offset_msg_id: str
    origin_message_id: Annotated[
        str | None, Meta(description="Of one that was sent back: the copy that a group got first.")
    ]
    store_timestamp: Milliseconds
    store_host: str
    reconsume_times: int
    segment: Annotated[str | None, Meta(description="The log's file; null: expired just now.")]
    in_queue: Annotated[bool, Meta(description="Its queue names this very record.")]
    groups: Annotated[
        list[GroupStandView], Meta(description="Groups that have an offset in the copy's topic.")
    ]
    checked_by: CheckedBy = UNSET


class TraceView(msgspec.Struct, rename="camel", gc=False):
    """All copies of one message that are in the log, oldest first."""

    topic: str
    uniq_key: str | None
    keys: list[str]
    tags: str | None
    born_timestamp: Milliseconds
    born_host: str
    copies: list[CopyView]
    unreadable: list[UnreadableView]
    complete: Annotated[bool, Meta(description="No copy that is in the log is missing.")]


class MessageTraceView(msgspec.Struct, rename="camel", gc=False):
    """One message's way, and where groups' offsets come from."""

    trace: TraceView
    offsets: OffsetsSourceView
    shard: OneShard
    shards: OfShards = UNSET


class TracesView(msgspec.Struct, rename="camel", gc=False):
    """The ways of messages with a key, newest first."""

    traces: list[TraceView]
    next: Annotated[str | None, Meta(description="The cursor to go on with.")]
    complete: bool
    offsets: OffsetsSourceView
    shard: OneShard
    shards: OfShards = UNSET


SCHEMAS: Final = (MessageTraceView, TracesView)
