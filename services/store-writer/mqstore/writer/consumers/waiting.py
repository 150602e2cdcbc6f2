"""The shared groups of an open store, and receives that wait for a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from mqstore.service import logs, problems
from mqstore.service.arrivals import WriterArrivals
from mqstore.service.problems import Problem
from mqstore.storage import MessageStore
from mqstore.storage.errors import StorageError
from mqstore.storage.host import Seams
from mqstore.storage.shared_groups import DeadLetters, Received, SharedGroups, Subscription
from mqstore.writer.ordering import queue_of

log = logs.get(__name__)

EMPTY_STEPS_MAX: Final = 1_000
"""Reads in a row that found no message, of 10,000 filtered entries each, before a receive replies
without one: a filter that matches nothing keeps no thread for long."""


@dataclass(slots=True)
class _Line:
    """Receives of one group and the same topics that wait. The first one watches the queues for
    all: when it has ended, the next one reads, and watches once it finds nothing."""

    watcher: asyncio.Future[None] | None = None
    is_full: bool = False
    """Whether a queue was full for the watcher."""
    others: dict[asyncio.Future[None], None] = field(default_factory=dict)
    """In the order of their coming."""

    def join(self, woken: asyncio.Future[None], *, is_full: bool) -> None:
        """Add a receive."""
        if self.watcher is None:
            self.watcher, self.is_full = woken, is_full
        else:
            self.others[woken] = None

    def leave(self, woken: asyncio.Future[None]) -> None:
        """Remove a receive."""
        if self.watcher is woken:
            self.watcher = None
        self.others.pop(woken, None)

    def pass_on(self) -> None:
        """Wake the next receive where none watches."""
        if self.watcher is None and self.others:
            woken = next(iter(self.others))
            del self.others[woken]
            if not woken.done():
                woken.set_result(None)


@dataclass(slots=True)
class _Receives:
    """The receives of one group that are in progress."""

    count: int = 0
    lines: dict[frozenset[str], _Line] = field(default_factory=dict)
    """Those that wait, by topics, in an ordered group also by member."""


@dataclass(slots=True)
class Look:
    """The result of a receive that did not wait, with the numbers of changes before it."""

    found: Received
    ended: int
    acknowledged: int


class SharedConsumers:
    """Made once the store is open for writing. Used on the event loop only; ``engine`` and
    ``dead_letters`` may be used from any thread."""

    def __init__(
        self,
        store: MessageStore,
        seams: Seams,
        shard: int,
        polls_max: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        """At most ``polls_max`` receives wait at one time. ``failed`` is called by any thread when
        acknowledgements cannot be saved any more."""
        self.engine = SharedGroups(store, seams, shard)
        self.dead_letters = DeadLetters(store, seams, queue_of)
        self.arrivals = WriterArrivals(_Queues(store), asyncio.get_running_loop())
        self._polls_max = polls_max
        self._receives: dict[str, _Receives] = {}
        """By group."""
        self._ended = 0
        """Number of requests so far that ended leases or let them end at another time."""
        self._acknowledged = 0
        """Number of requests so far that made room in queues that may be full."""
        self._undoing: set[asyncio.Future[None]] = set()
        self._saving = seams.scheduler.start(self.engine, failed)
        self.arrivals.start()

    async def receive(
        self,
        group: str,
        subscriptions: Sequence[Subscription],
        *,
        count: int,
        max_bytes: int,
        invisible_s: float,
        member: str | None,
        wait_s: float,
        look: Look | None = None,
    ) -> Received:
        """Lease messages; wait up to ``wait_s`` seconds for the first one.

        ``look`` is what this receive found at once. A receive that is cancelled leases nothing.
        Raises Problem (503) while too many receives wait, and as ``SharedGroups.receive``.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        lease = partial(
            self._lease,
            group,
            subscriptions,
            member,
            count=count,
            max_bytes=max_bytes,
            invisible_s=invisible_s,
        )
        before, topics = Received(), frozenset([each.topic for each in subscriptions])
        if member is not None:
            topics |= {f"member {member}"}  # an arrival is for the member that holds its queue
        with self._receiving(group, topics) as receives:
            for _ in range(EMPTY_STEPS_MAX):
                if look is None:
                    look = Look(Received(), self._ended, self._acknowledged)
                    look.found = await lease()
                found = look.found
                found.unreadable[:0] = before.unreadable
                found.expired += before.expired
                found.dead += before.dead
                left = until - loop.time()
                if found.messages or left <= 0 or self.arrivals.interrupted:
                    break
                if not self._has_changed(look):
                    await self._await_change(receives.lines[topics], found, left)
                before, look = found, None
            return found

    def receive_at_once(
        self,
        group: str,
        subscriptions: Sequence[Subscription],
        *,
        count: int,
        max_bytes: int,
        invisible_s: float,
    ) -> Look | None:
        """Lease messages that are in memory; None where the disk must be read. Raises as
        ``receive``."""
        found = self.engine.receive_in_memory(
            group, subscriptions, count=count, max_bytes=max_bytes, invisible_s=invisible_s
        )
        return None if found is None else Look(found, self._ended, self._acknowledged)

    def wake(self, group: str, *, only_full: bool) -> None:
        """Have waiting receives of a group look again: leases ended, or full queues have room.

        ``only_full``: only those that found a full queue.
        """
        self._acknowledged += 1
        self._ended += not only_full
        receives = self._receives.get(group)
        if receives is None:
            return
        lines = [each for each in receives.lines.values() if each.is_full or not only_full]
        self.arrivals.wake([each.watcher for each in lines if each.watcher is not None])

    def end(self) -> None:
        """The service is shutting down: no receive waits any longer."""
        self.arrivals.interrupt()

    async def stop(self) -> None:
        """Save, and return when nothing uses the engine. Before the store is closed."""
        if self._undoing:
            await asyncio.wait(self._undoing)
        self.arrivals.stop()
        await asyncio.to_thread(self._leave)

    async def _lease(
        self,
        group: str,
        subscriptions: Sequence[Subscription],
        member: str | None,
        **limits: Any,
    ) -> Received:
        """Lease messages here from memory, else in a thread; when cancelled, undo the leases once
        they are made."""
        if member is None:
            found = self.engine.receive_in_memory(group, subscriptions, **limits)
            if found is not None:
                return found
        lease = partial(self.engine.receive, group, subscriptions, member=member, **limits)
        leasing = asyncio.ensure_future(asyncio.to_thread(lease))
        try:
            return await asyncio.shield(leasing)
        except asyncio.CancelledError:
            undoing = asyncio.ensure_future(self._undo(group, leasing))
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)
            raise

    async def _undo(self, group: str, leasing: asyncio.Future[Received]) -> None:
        try:
            if messages := (await leasing).messages:
                await asyncio.to_thread(self.engine.undo, group, messages)
                self.wake(group, only_full=False)
        except (OSError, StorageError) as error:  # the leases expire
            log.warning("leases of a cancelled receive stay", group=group, error=str(error))

    def _has_changed(self, look: Look) -> bool:
        """Whether a request since a look matters to its receive."""
        is_full = look.found.is_full
        return self._ended != look.ended or (is_full and self._acknowledged != look.acknowledged)

    @contextmanager
    def _receiving(self, group: str, topics: frozenset[str]) -> Iterator[_Receives]:
        receives = self._receives.setdefault(group, _Receives())
        receives.count += 1
        line = receives.lines.setdefault(topics, _Line())
        try:
            yield receives
        finally:
            line.pass_on()
            receives.count -= 1
            if not receives.count:
                del self._receives[group]

    async def _await_change(self, line: _Line, found: Received, seconds: float) -> None:
        """Wait for a message behind what was read, or for the end of a lease; behind another
        receive, for its end."""
        if len(self.arrivals) >= self._polls_max:
            raise Problem(problems.OVERLOADED, "too many receives wait; try again later")
        loop = asyncio.get_running_loop()
        is_first = line.watcher is None
        if is_first:
            seconds = min(seconds, max(0.0, found.next_deadline - loop.time()))
        with self.arrivals.watch(*(found.ends if is_first else ())) as woken:
            line.join(woken, is_full=found.is_full)
            try:
                await asyncio.wait({woken}, timeout=seconds)
            finally:
                line.leave(woken)

    def _leave(self) -> None:
        self._saving.stop()
        try:
            self.engine.save()
        except (OSError, StorageError) as error:  # the messages are delivered again
            log.warning("acknowledgements cannot be saved", error=str(error))


class _Queues:
    """The queues of the store, as ``WrittenQueues``."""

    def __init__(self, store: MessageStore) -> None:
        self._queue = store.queues.get
        self._range = None if store.reads is store.lookups else store.reads.queue_range
        """The bounds of a queue, where consumers may not see all of it."""
        self.notify = store.state.notify

    def end_of(self, topic: str, queue_id: int) -> int:
        """See ``Queues``; 0 for a queue without messages."""
        queue = self._queue(topic, queue_id)
        if queue is None:
            return 0
        return queue.max_index if self._range is None else self._range(topic, queue_id).max_offset
