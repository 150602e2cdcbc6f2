"""Consumers of shared groups: they receive ahead, renew leases, and acknowledge in batches.

``AsyncConsumer`` does the work, on an event loop; ``Consumer`` runs one in a thread of its own, for
applications without a loop. Their threads take messages and settle them without that loop, which
is woken when there is something to send or to receive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Final, Self

from pydantic import PrivateAttr

from mqstore.client import consumer_calls
from mqstore.client.changes import Changes
from mqstore.client.errors import ClientError, Unreachable
from mqstore.client.home_process import HomeProcess
from mqstore.client.leases import Leases, Outcome, Settlement
from mqstore.client.loop_thread import LoopThread
from mqstore.client.requests import Asynchronous, Call
from mqstore.client.retries import RetryBudget, is_transient
from mqstore.wire.consumers import LeasedMessage, ReceiptStatus, ReceivedMessages, WantedMessages
from mqstore.wire.limits import (
    COUNT_MAX,
    DELAY_LEVEL_MAX,
    DELAY_MAX_S,
    LEASE_DEFAULT_S,
    LEASE_MAX_S,
    POLL_S,
    PULL_COUNT_DEFAULT,
    PULL_WAIT_MAX_S,
    REASON_LENGTH_MAX,
)

log = logging.getLogger(__name__)

STOP_S: Final = 10.0
"""How long the end of a consumer waits for the service to take what became of its messages."""
LINGER_S: Final = 0.01
"""How long what became of a message waits for that of others, while more of them wait here."""
HANDLE_MAX_S: Final = 3_600.0
CONCURRENCY_MAX: Final = 10_000
_GONE: Final = (ReceiptStatus.EXPIRED, ReceiptStatus.DAMAGED)
_DEAD: Final = -1
"""The delay level that makes a dead letter."""


class ConsumedMessage(LeasedMessage):
    """A message that a consumer holds until ``ack``, ``nack`` or ``reject``.

    Each may be called by any thread, returns at once, and is sent in the background; the first one
    counts.
    """

    _settle: Callable[[str, Outcome], None] = PrivateAttr()
    _span: Any = PrivateAttr(None)
    """The span of its processing, where the client has traces."""

    def ack(self) -> None:
        """Acknowledge the message: the group gets it no more."""
        self._settle(self.receipt, Outcome())

    def nack(self, *, delay_s: float | None = None, delay_level: int = 0, reason: str = "") -> None:
        """Return the message: it is delivered again, and after the retries that the group allows it
        is a dead letter.

        It is delivered after ``delay_s`` seconds at least, or after a level of the store's
        messageDelayLevel, by default longer each time. The queue of an ordered consumer waits
        meanwhile, by default for 1 s. ``reason`` is kept with the message. Raises ValueError for a
        delay out of range, and for a reason that is long or has control characters.
        """
        if not 0 <= delay_level <= DELAY_LEVEL_MAX:
            raise ValueError(f"delay_level is {delay_level}; give 0 to {DELAY_LEVEL_MAX}")
        if delay_s is not None and not 0 <= delay_s <= DELAY_MAX_S:
            raise ValueError(f"delay_s is {delay_s}; give 0 to {DELAY_MAX_S}")
        self._settle(self.receipt, Outcome(delay_level, _checked_reason(reason), delay_s))

    def reject(self, *, reason: str = "") -> None:
        """Make the message a dead letter at once. Raises ValueError as ``nack``."""
        self._settle(self.receipt, Outcome(_DEAD, _checked_reason(reason)))


class _ConsumedMessages(ReceivedMessages):
    """A reply whose messages are decoded into what the application gets."""

    messages: tuple[ConsumedMessage, ...]


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """The messages that a consumer receives, and how: the parameters of ``consumer``."""

    group: str
    wanted: Mapping[str, WantedMessages]
    concurrency: int
    prefetch: int
    lease_s: float
    handle_max_s: float
    wait_s: float
    shard: int | None

    def __post_init__(self) -> None:
        """Raise ValueError for a value out of range."""
        for name, least, most in (
            ("concurrency", 1, CONCURRENCY_MAX),
            ("prefetch", 1, COUNT_MAX),
            ("wait_s", 0, PULL_WAIT_MAX_S),
            ("lease_s", 1, LEASE_MAX_S),
            ("handle_max_s", self.lease_s, inf),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}; give {least} to {most}")


def consumer(
    group: str,
    topics: str | Sequence[str] | Mapping[str, str | WantedMessages],
    *,
    concurrency: int = 1,
    prefetch: int = PULL_COUNT_DEFAULT,
    lease_s: float = LEASE_DEFAULT_S,
    handle_max_s: float = HANDLE_MAX_S,
    wait_s: float = POLL_S,
    shard: int | None = None,
) -> ConsumerSpec:
    """Consume messages of a shared group: each goes to one of its consumers.

    ``topics`` are names, or tags (``"paid || sent"``) or filters by name; all consumers of a group
    give the same. The application has at most ``concurrency`` messages at a time that it has
    neither acknowledged nor returned; up to ``prefetch`` more wait here. Leases are ``lease_s``
    seconds long: so long does the end of a killed consumer delay its messages. They are renewed
    until ``handle_max_s`` after the receipt of a message. A receive waits ``wait_s`` seconds for
    messages; at a leader that stops meanwhile it fails 5 s later at the latest.
    ``shard`` names one of several shards; by default all are consumed. Raises ValueError.
    """
    return ConsumerSpec(
        group, wanted_messages(topics), concurrency, prefetch, lease_s, handle_max_s, wait_s, shard
    )


class AsyncConsumer:
    """A consumer of a shared group, for asyncio. Use it on the event loop of its client; its
    messages may be settled on any thread.

    ::

        async with client.consumer("shipping", {"orders": "paid"}) as consumer:
            async for message in consumer:
                await ship(message)
                message.ack()

    Several tasks may iterate over one consumer. The loop ends when ``stop`` is called, and raises
    ClientError when the service rejects the consumer. While the service cannot be reached, the
    consumer tries again. At the end of the block, what became of messages is sent, and those that
    were neither acknowledged nor returned are released: they are delivered again at once.
    """

    def __init__(self, client: Asynchronous, spec: ConsumerSpec) -> None:
        """``client.consumer`` makes it."""
        self._client = client
        self._home = HomeProcess("consumer")
        self._spec = spec
        self._leases = Leases(spec.lease_s, spec.handle_max_s)
        self.tracing = client.tracing
        self._processing = None if self.tracing is None else self.tracing.of_group(spec.group)
        self._buffer: deque[ConsumedMessage] = deque()
        self._given: set[str] = set()
        """Receipts of messages that the application has."""
        self._changes = Changes()
        self._lock = threading.RLock()
        """Guards the fields above, and those of subclasses."""
        self._available = threading.Condition(self._lock)
        """Lets threads that are not the loop's wait for a message, or for the end."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._is_waking = False
        self._is_urgent = False
        """Whether ``flush`` waits: nothing lingers then."""
        self._stopping = False
        self._sending = False
        self._failure: Exception | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._home.require()
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        self._tasks = [asyncio.create_task(self._guarded(each)) for each in self._work()]
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._home.is_current:
            return
        receiving, settling, *others = self._tasks
        self.stop()
        receiving.cancel()
        await asyncio.wait({receiving})
        with self._lock:
            self._release()
            if self._processing is not None:
                self._processing.end_lost(self._leases)
            self._buffer.clear()
        self._changed()
        with contextlib.suppress(TimeoutError, ClientError):
            await asyncio.wait_for(self.flush(), STOP_S)
        for each in (settling, *others):
            each.cancel()
        await asyncio.wait({settling, *others})
        self._loop = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedMessage:
        self._home.require()
        while (message := self._next_now()) is None:
            await self._changes.until(self._may_go_on)
            if self._stopping and self._failure is None:
                raise StopAsyncIteration
        return message

    def wait_for_next(self) -> ConsumedMessage:
        """Return the next message, on a thread that is not the loop's. Raises StopIteration at the
        end, and what made the consumer fail."""
        self._home.require()
        with self._lock:
            while (message := self._next_now()) is None:
                if self._stopping:
                    raise StopIteration
                self._available.wait()
        return message

    def _next_now(self) -> ConsumedMessage | None:
        """Take the next message; None where there is none yet, and after ``stop``. Raises what made
        the consumer fail."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._stopping or not self._has_next:
                return None
            message = self._take_next()
            self._given.add(message.receipt)
            if self._processing is not None:
                message._span = self._processing.begin(message)
            if self._room == self._refill or not self._buffer:
                self._wake()
        return message

    def stop(self) -> None:
        """End the loops over this consumer; messages that the application has may be settled."""
        self._stopping = True
        self._changed()

    async def flush(self) -> None:
        """Return when the service has what became of each message that was settled before.

        Raises ClientError if the service rejects it.
        """
        self._home.require()
        self._is_urgent = True
        self._changes.notify()
        await self._changes.until(lambda: self._failure is not None or not self._is_sending)
        self._is_urgent = False
        if self._failure is not None:
            raise self._failure

    @property
    def _is_ended(self) -> bool:
        return self._stopping or self._failure is not None

    def _may_go_on(self) -> bool:
        with self._lock:
            return self._is_ended or self._has_next

    @property
    def _has_next(self) -> bool:
        return bool(self._buffer) and len(self._given) < self._spec.concurrency

    def _take_next(self) -> ConsumedMessage:
        return self._buffer.popleft()

    @property
    def _room(self) -> int:
        return self._spec.prefetch - len(self._buffer)

    @property
    def _refill(self) -> int:
        """The room at which the next receive begins: half of what waits here at most, so that few
        requests receive many messages, and the other half is handled meanwhile."""
        return (self._spec.prefetch + 1) // 2

    @property
    def _is_sending(self) -> bool:
        return self._leases.due > 0 or self._sending

    def _changed(self) -> None:
        """Let everything that waits look again; on the event loop."""
        with self._lock:
            self._available.notify_all()
        self._changes.notify()

    def _wake(self) -> None:
        """Let the loop's tasks look again; on any thread, with the lock."""
        if threading.get_ident() == self._thread_id:
            self._changes.notify()
        elif self._loop is not None and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon_threadsafe(self._woken)

    def _woken(self) -> None:
        self._is_waking = False
        self._changes.notify()

    # in the background --------------------------------------------------------------------

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        """The background work: receiving and settling first."""
        return [self._receive(), self._settle()]

    def _release(self) -> None:
        """Note that the messages that are held will not be handled."""
        self._leases.release_all()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do background work; what it raises, the application's loop raises."""
        try:
            await work
        except Exception as error:
            self._failure = error
            self._changed()

    async def _receive(self) -> None:
        """Receive until cancelled or rejected; a cancelled request leases nothing."""
        retries = RetryBudget(inf)
        while True:
            await self._changes.until(lambda: self._room >= self._refill)
            try:
                found = await self._client.send(self._next_call())
            except ClientError as error:
                pause_s = self._pause_s(retries, error)
                self._warn(error)
                await asyncio.sleep(pause_s)
            else:
                retries = RetryBudget(inf)
                with self._lock:
                    self._add(found.messages)
                self._changed()

    def _add(self, messages: Sequence[ConsumedMessage]) -> None:
        """Hold messages that were received."""
        self._leases.add(messages)
        for each in messages:
            each._settle = self.settle
        self._buffer += messages

    def _pause_s(self, retries: RetryBudget, error: ClientError) -> float:
        """Return the seconds until the next receive. Raises an error that is final."""
        return retries.pause_s(error)

    def _next_call(self, member: str | None = None) -> Call[Any]:
        """Return the request for the next messages, in an ordered group that of a member."""
        spec = self._spec
        call: Call[Any] = consumer_calls.receive(
            spec.group,
            spec.wanted,
            max_messages=self._room,
            wait_s=spec.wait_s,
            invisible_s=spec.lease_s,
            shard=spec.shard,
            member=member,
        )
        return replace(call, answer=_ConsumedMessages)

    def _warn(self, error: ClientError) -> None:
        log.warning("consumer of %s: %s; it tries again", self._spec.group, error)

    def settle(self, receipt: str, what: Outcome) -> None:
        """Note what became of a message, by its receipt; on any thread. Raises ClientError on
        another thread than the loop's after the end."""
        self._home.require()
        with self._lock:
            if self._loop is None and threading.get_ident() != self._thread_id:
                raise ClientError("the consumer has ended; the message is delivered again")
            is_full = len(self._given) >= self._spec.concurrency
            self._given.discard(receipt)
            if self._processing is not None:
                self._processing.settle(receipt, what)
            self._leases.settle(receipt, what)
            if is_full:
                self._available.notify()
            if is_full or self._leases.due == 1 or self._is_due:
                self._wake()

    @property
    def _is_due(self) -> bool:
        """Whether what became of messages is sent without waiting for more."""
        due = self._leases.due
        return due > 0 and (due >= self._refill or not self._buffer or self._is_urgent)

    async def _settle(self) -> None:
        """Send what became of messages, and renew leases, until cancelled or rejected."""
        retries = RetryBudget(inf)
        while True:
            await self._changes.until(lambda: self._leases.due > 0, self._renewal_wait_s)
            await self._linger()
            self._sending = True
            with self._lock:
                due = self._leases.take()
            failures = [await self._send(each) for each in due]
            self._sending = False
            self._forget_lost()
            self._changed()
            failure = next((each for each in failures if each is not None), None)
            if failure is None:
                retries = RetryBudget(inf)
            else:
                await asyncio.sleep(retries.pause_s(failure))

    def _renewal_wait_s(self) -> float | None:
        with self._lock:  # other threads settle messages meanwhile
            return self._leases.wait_s()

    async def _linger(self) -> None:
        """Wait for what becomes of other messages, for LINGER_S at most."""
        until = time.monotonic() + LINGER_S
        await self._changes.until(
            lambda: self._is_due or not self._leases.due,
            lambda: max(0.0, until - time.monotonic()),
        )

    async def _send(self, each: Settlement) -> ClientError | None:
        """Return why a part of it has to be sent again; None: nothing has to be."""
        try:
            reply = await self._client.send(each.call(self._spec.group, self._spec.lease_s))
        except ClientError as error:
            if not is_transient(error):
                raise
            self._warn(error)
            with self._lock:
                self._leases.repeat(each.what, each.receipts)
            return error
        with self._lock:
            lost, again = self._leases.note(each, reply)
        if refused := [found for found in reply.results if found.status is ReceiptStatus.REFUSED]:
            text = "consumer of %s: %d messages cannot be returned; they come when their lease ends"
            log.warning(text, self._spec.group, len(refused))
        if gone := [found for found in reply.results if found.status in _GONE]:
            text = "consumer of %s: %d returned messages expired or are damaged: nothing is retried"
            log.warning(text, self._spec.group, len(gone))
        if lost:
            log.warning("consumer of %s: %d messages go to others", self._spec.group, lost)
        return Unreachable("a shard does not reply") if again else None

    def _forget_lost(self) -> None:
        """Drop messages whose lease was lost: another consumer has them."""
        with self._lock:
            self._buffer = deque(each for each in self._buffer if each.receipt in self._leases)
            self._given = {each for each in self._given if each in self._leases}
            if self._processing is not None:
                self._processing.end_lost(self._leases)


class Consumer:
    """A consumer of a shared group, for applications without an event loop. Thread-safe.

    ::

        with client.consumer("shipping", {"orders": "paid"}) as consumer:
            for message in consumer:
                ship(message)
                message.ack()

    It is an ``AsyncConsumer`` in a thread of its own, which says how it ends and what it raises.
    Several threads may iterate over one consumer; ``run`` starts them.
    """

    _worker: ClassVar[type[AsyncConsumer]] = AsyncConsumer

    def __init__(self, make_client: Callable[[], Asynchronous], spec: ConsumerSpec) -> None:
        """``client.consumer`` makes it. ``make_client`` is called on the consumer's thread."""
        self._spec = spec
        self._thread = LoopThread(
            "consumer",
            f"consumer of {spec.group}",
            make_client,
            lambda client: self._worker(client, spec),
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.end()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumedMessage:
        return self._thread.running.wait_for_next()

    def run(self, handle: Callable[[ConsumedMessage], object]) -> None:
        """Call ``handle`` with each message, in as many threads as ``concurrency``, until ``stop``.

        A message is acknowledged when ``handle`` returns, unless it was settled before; if it
        raises, the message is returned, to be delivered again. Raises ClientError as the loop does.
        """
        threads = self._spec.concurrency
        with ThreadPoolExecutor(threads, thread_name_prefix=self._spec.group) as pool:
            working = [pool.submit(self._handle_all, handle) for _ in range(threads)]
            try:
                for each in working:
                    each.result()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End the loops over this consumer. A signal handler may call it, which a fork of the
        process inherits: it does nothing there."""
        if self._thread.is_in_fork:
            return
        with contextlib.suppress(RuntimeError):
            self._thread.call(self._thread.running.stop)

    def flush(self) -> None:
        """Return when the service has what became of each message that was settled before.

        Raises ClientError if the service rejects it.
        """
        self._thread.wait(self._thread.running.flush())

    def _handle_all(self, handle: Callable[[ConsumedMessage], object]) -> None:
        for message in self:
            try:
                with self._processing(message):
                    handle(message)
            except Exception as error:
                log.exception("a message of %s could not be handled", self._spec.group)
                message.nack(reason=_reason_of(error))
            else:
                message.ack()

    def _processing(self, message: ConsumedMessage) -> AbstractContextManager[object]:
        """Let the span of a message be the current one, where the client has traces."""
        tracing = self._thread.running.tracing
        return contextlib.nullcontext() if tracing is None else tracing.processing(message)


def wanted_messages(
    topics: str | Sequence[str] | Mapping[str, str | WantedMessages],
) -> Mapping[str, WantedMessages]:
    """Return the filters by topic."""
    if isinstance(topics, str):
        topics = [topics]
    if not isinstance(topics, Mapping):
        return {topic: WantedMessages() for topic in topics}
    return {
        topic: WantedMessages(tags=wanted) if isinstance(wanted, str) else wanted
        for topic, wanted in topics.items()
    }


def _checked_reason(reason: str) -> str:
    """Return the reason of a return. Raises ValueError."""
    if len(reason) > REASON_LENGTH_MAX or not reason.isprintable():
        raise ValueError(
            f"reason {reason[:50]!r}: give at most {REASON_LENGTH_MAX} printable characters"
        )
    return reason


def _reason_of(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]
    return "".join(each if each.isprintable() else " " for each in text)
