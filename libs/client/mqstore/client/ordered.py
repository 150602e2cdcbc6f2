"""Consumers of ordered groups: each is a member that holds queues, and gets the messages of a queue
one after the other.

``AsyncOrderedConsumer`` does the work, on an event loop; ``OrderedConsumer`` runs one in a thread
of its own. The rest is as for consumers of shared groups.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Final, NamedTuple

from mqstore.client import consumer_calls
from mqstore.client.consumers import (
    HANDLE_MAX_S,
    STOP_S,
    AsyncConsumer,
    ConsumedMessage,
    Consumer,
    ConsumerSpec,
    wanted_messages,
)
from mqstore.client.errors import ClientError, ProblemError
from mqstore.client.leases import Outcome, Release
from mqstore.client.requests import Asynchronous, Call
from mqstore.client.retries import PAUSE_S, RetryBudget
from mqstore.wire.consumers import LeasedMessage, WantedMessages
from mqstore.wire.limits import (
    LEASE_DEFAULT_S,
    POLL_S,
    PULL_COUNT_DEFAULT,
    SESSION_DEFAULT_S,
    SESSION_MAX_S,
    SESSION_MIN_S,
)
from mqstore.wire.members import Member
from mqstore.wire.problems import MEMBER_UNKNOWN

log = logging.getLogger(__name__)

RENEWED_AFTER: Final = 1 / 3
"""Part of a session after which it is renewed."""


class _Queue(NamedTuple):
    shard: int | None
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class OrderedSpec(ConsumerSpec):
    """The parameters of ``ordered_consumer``."""

    member: str
    session_s: float

    def __post_init__(self) -> None:
        """Raise ValueError for a value out of range."""
        ConsumerSpec.__post_init__(self)
        if not SESSION_MIN_S <= self.session_s <= SESSION_MAX_S:
            raise ValueError(
                f"session_s is {self.session_s}; give {SESSION_MIN_S} to {SESSION_MAX_S}"
            )


def ordered_consumer(
    group: str,
    topics: str | Sequence[str] | Mapping[str, str | WantedMessages],
    *,
    member: str | None = None,
    session_s: float = SESSION_DEFAULT_S,
    concurrency: int = 1,
    prefetch: int = PULL_COUNT_DEFAULT,
    lease_s: float = LEASE_DEFAULT_S,
    handle_max_s: float = HANDLE_MAX_S,
    wait_s: float = POLL_S,
) -> OrderedSpec:
    """Consume messages of an ordered group: each queue goes to one of its consumers, which gets its
    messages one after the other.

    The consumer is a member under the name ``member``, by default a new one for each consumer. Its
    queues go to others when it ends, or ``session_s`` seconds after it was killed. At most
    ``concurrency`` messages are handled at a time, each of another queue. The other parameters are
    those of ``consumer``. Raises ValueError.
    """
    name = member or f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(4)}"
    wanted = wanted_messages(topics)
    return OrderedSpec(
        *(group, wanted, concurrency, prefetch, lease_s, handle_max_s, wait_s, None),
        *(name, session_s),
    )


class AsyncOrderedConsumer(AsyncConsumer):
    """A consumer of an ordered group, for asyncio. Use it on the event loop of its client.

    ::

        async with client.ordered_consumer("billing", "orders") as consumer:
            async for message in consumer:
                await bill(message)
                message.ack()

    It is an ``AsyncConsumer`` whose messages come in the order of their queues. It renews its
    session in the background, and leaves the group at the end of the block.
    """

    def __init__(self, client: Asynchronous, spec: OrderedSpec) -> None:
        """``client.ordered_consumer`` makes it."""
        super().__init__(client, spec)
        self._member = spec
        self._busy: dict[_Queue, str] = {}
        """Receipts of the messages that the application has, by queue."""
        self._joined = asyncio.Event()
        self._rejoin = asyncio.Event()

    async def __aexit__(self, *given: object) -> None:
        await super().__aexit__(*given)
        if not self._home.is_current:
            return
        spec = self._member
        with contextlib.suppress(TimeoutError, ClientError):
            await asyncio.wait_for(
                self._client.send(consumer_calls.leave(spec.group, spec.member)), STOP_S
            )

    def settle(self, receipt: str, what: Outcome) -> None:
        """See ``AsyncConsumer``."""
        with self._lock:
            for queue in [each for each, given in self._busy.items() if given == receipt]:
                del self._busy[queue]
                if what.delay_level is not None and what.delay_level >= 0:
                    self._give_up({queue})  # they follow the returned message again
            super().settle(receipt, what)
            if self._has_next:
                self._available.notify()
                self._wake()

    @property
    def _has_next(self) -> bool:
        return len(self._given) < self._spec.concurrency and self._next() is not None

    def _next(self) -> ConsumedMessage | None:
        return next((each for each in self._buffer if _queue_of(each) not in self._busy), None)

    def _take_next(self) -> ConsumedMessage:
        message = self._next()
        assert message is not None
        self._buffer.remove(message)
        self._busy[_queue_of(message)] = message.receipt
        return message

    def _add(self, messages: Sequence[ConsumedMessage]) -> None:
        self._drop({_queue_of(each) for each in messages})  # what the service delivers anew
        super()._add(messages)

    def _give_up(self, queues: set[_Queue]) -> None:
        """Give messages of queues back that wait here."""
        for each in self._buffer:
            if _queue_of(each) in queues:
                self._leases.settle(each.receipt, Release())
        self._drop(queues)

    def _drop(self, queues: set[_Queue]) -> None:
        """Drop messages of queues that wait here."""
        dropped = [each for each in self._buffer if _queue_of(each) in queues]
        self._buffer = deque(each for each in self._buffer if _queue_of(each) not in queues)
        self._leases.forget(each.receipt for each in dropped)

    # in the background --------------------------------------------------------------------

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._work(), self._renew()]

    def _release(self) -> None:
        """Leave the messages to the end of the membership, which is no failure of theirs."""
        self._leases.forget([each.receipt for each in self._buffer])

    async def _receive(self) -> None:
        await self._joined.wait()
        await super()._receive()

    def _next_call(self, member: str | None = None) -> Call[Any]:
        return super()._next_call(self._member.member)

    def _pause_s(self, retries: RetryBudget, error: ClientError) -> float:
        if isinstance(error, ProblemError) and error.type == MEMBER_UNKNOWN.name:
            self._rejoin.set()
            return PAUSE_S
        return super()._pause_s(retries, error)

    async def _renew(self) -> None:
        """Join, and renew the session, until cancelled or rejected."""
        spec = self._member
        until, retries = time.monotonic() + spec.session_s, RetryBudget(inf)
        while True:
            self._rejoin.clear()
            sent = time.monotonic()
            try:
                call = consumer_calls.join(
                    spec.group, spec.member, list(spec.wanted), session_s=spec.session_s
                )
                self._note_member(await self._client.send(call))
            except ClientError as error:
                wait_s = retries.pause_s(error)
                log.warning("member %s of %s: %s; it tries again", spec.member, spec.group, error)
                if time.monotonic() >= until:
                    with self._lock:
                        self._drop({_queue_of(each) for each in self._buffer})
            else:
                until, retries = sent + spec.session_s, RetryBudget(inf)
                wait_s = spec.session_s * RENEWED_AFTER
                self._joined.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rejoin.wait(), wait_s)

    def _note_member(self, member: Member) -> None:
        """Give messages back whose queues go to other members."""
        leaving = {_Queue(each.shard, each.topic, each.queue_id) for each in member.leaving}
        with self._lock:
            self._give_up(leaving)
        self._changed()


class OrderedConsumer(Consumer):
    """A consumer of an ordered group, for applications without an event loop. Thread-safe.

    ::

        with client.ordered_consumer("billing", "orders") as consumer:
            for message in consumer:
                bill(message)
                message.ack()

    It is an ``AsyncOrderedConsumer`` in a thread of its own. With ``run`` and ``concurrency`` it
    handles several queues at a time.
    """

    _worker: ClassVar[type[AsyncConsumer]] = AsyncOrderedConsumer

    def __init__(self, make_client: Callable[[], Asynchronous], spec: OrderedSpec) -> None:
        """``client.ordered_consumer`` makes it."""
        super().__init__(make_client, spec)


def _queue_of(message: LeasedMessage) -> _Queue:
    return _Queue(message.shard, message.topic, message.queue_id)
