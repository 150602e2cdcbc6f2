"""The messages of one producer that wait to be sent, and the bounds of their number and size.

Does no input or output. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mqstore.client.changes import Changes
from mqstore.client.errors import ProblemError
from mqstore.client.new_message import NewMessage
from mqstore.wire.problems import BODY_TOO_LARGE
from mqstore.wire.produce import MessagePlace

BATCH_BYTES_MAX: Final = 192 << 10
"""Bytes of the messages of a request, about; store-writer is fastest below 256 KiB of JSON."""
MESSAGE_OVERHEAD: Final = 200
"""Bytes that a message has in a request besides its texts, about."""


class LaneKey(NamedTuple):
    """The messages whose order is kept among each other."""

    topic: str
    queue_id: int | None
    is_ordered: bool


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message to send. ``future`` gets its place."""

    topic: str
    message: NewMessage
    future: Any
    """A Future of asyncio or of concurrent.futures."""
    since: float
    size: int = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.size = size_of(self.message)

    @property
    def lane(self) -> LaneKey:
        """The messages among which its order is kept."""
        message = self.message
        return LaneKey(self.topic, message.queue_id, message.ordering_key is not None)

    @property
    def is_keyed(self) -> bool:
        """Whether it has a key by which its shard is chosen."""
        return self.message.uniq_key is not None or self.message.ordering_key is not None

    def begin(self) -> bool:
        """Note that it is being sent; False if the application cancelled it before."""
        if isinstance(self.future, Future):
            return self.future.set_running_or_notify_cancel()
        return not self.future.cancelled()

    def settle(self, place: MessagePlace | None, error: Exception | None) -> None:
        """Complete the future, unless the application cancelled it meanwhile."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(place)
        else:
            self.future.set_exception(error)
            self.future.exception()  # otherwise asyncio logs an error that is not retrieved


def size_of(message: NewMessage) -> int:
    """Return the bytes of a message in a request, about."""
    texts = [message.body or message.body_base64 or "", message.tags or "", *message.keys]
    for name, value in message.properties.items():
        texts += (name, value)
    return sum(map(len, texts)) + MESSAGE_OVERHEAD


class Lane:
    """Messages of one topic that are sent in their order, one request at a time."""

    def __init__(self) -> None:
        self.changes = Changes()
        self._waiting: deque[Outgoing] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Outgoing:
        """The oldest message."""
        return self._waiting[0]

    def add(self, message: Outgoing) -> None:
        """Add a message at the end."""
        self._waiting.append(message)
        self._size += message.size

    def is_full(self, batch_max: int) -> bool:
        """Return whether there is a whole request."""
        return len(self._waiting) >= batch_max or self._size >= BATCH_BYTES_MAX

    def take(self, batch_max: int) -> list[Outgoing]:
        """Take the messages of the next request, one at least.

        They all have a key that chooses a shard, or none has: a request whose messages have keys
        may be stored in parts by several shards, and needs the same keys in each attempt.
        """
        taken: list[Outgoing] = []
        size = 0
        while self._waiting and len(taken) < batch_max:
            message = self.first
            if taken and (
                size + message.size > BATCH_BYTES_MAX or message.is_keyed != taken[0].is_keyed
            ):
                break
            taken.append(self._waiting.popleft())
            size += message.size
        self._size -= size
        return taken


class Room:
    """The bounds of the messages that a producer holds: their number, and bytes. Thread-safe."""

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._size = size
        self._held = 0
        self._held_size = 0
        self._change = threading.Condition()

    def take(self, size: int) -> bool:
        """Take room for a message; False if there is none now."""
        with self._change:
            return self._take(size)

    def wait(self, size: int) -> None:
        """Take room for a message, once there is some."""
        with self._change:
            self._change.wait_for(lambda: self._take(size))

    def release(self, size: int) -> None:
        """Give the room of a message back."""
        with self._change:
            self._held -= 1
            self._held_size -= size
            self._change.notify_all()

    def _take(self, size: int) -> bool:
        """A message that is larger than all the room has it alone."""
        if self._held and (self._held == self._messages or self._held_size + size > self._size):
            return False
        self._held += 1
        self._held_size += size
        return True


class Refusal(NamedTuple):
    """The messages of a refused request: those that failed, and the requests to send instead."""

    failed: Sequence[Outgoing]
    rest: Sequence[list[Outgoing]]


def divide(batch: list[Outgoing], error: Exception) -> Refusal:
    """Divide a request that was refused for good.

    A problem with an index is that of one message. A request that is too large is sent in halves.
    """
    if isinstance(error, ProblemError):
        index = error.problem.get("index")
        if isinstance(index, int) and 0 <= index < len(batch):
            others = batch[:index] + batch[index + 1 :]
            return Refusal([batch[index]], [others] if others else [])
        if error.type == BODY_TOO_LARGE.name and len(batch) > 1:
            middle = len(batch) // 2
            return Refusal([], [batch[:middle], batch[middle:]])
    return Refusal(batch, [])
