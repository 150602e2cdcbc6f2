"""Queues: their bounds, and messages pulled from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mqstore.wire.base import Milliseconds, Reply
from mqstore.wire.messages import Message, UnreadableMessage
from mqstore.wire.shards import OfShards


class Pull(Reply, title="PullView"):
    """Messages of one queue, ascending."""

    messages: tuple[Message, ...]
    unreadable: tuple[UnreadableMessage, ...]
    next: Annotated[int, Field(description="The queue offset to go on with.")]
    min_offset: int
    max_offset: int
    status: Annotated[str, Field(description="RocketMQ's GetMessageStatus.")]
    shard: int


class Queue(Reply, title="QueueView"):
    """The bounds of one queue: its first offset, and the next one to be written."""

    queue_id: int
    min_offset: int
    max_offset: int
    shard: int


class Queues(OfShards, title="QueuesView"):
    """A topic's queues."""

    topic: str
    queues: tuple[Queue, ...]


class QueueOffset(Reply, title="OffsetView"):
    """The first queue offset stored at or after a time; maxOffset when there is none."""

    topic: str
    queue_id: int
    timestamp: Milliseconds
    offset: int
    min_offset: int
    max_offset: int
    shard: int
