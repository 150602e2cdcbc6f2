"""The shared groups of an open store, and receives that wait for a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from mqstore.service import logs, problems
from mqstore.service.arrivals import Arrivals
from mqstore.service.problems import Problem
from mqstore.storage import MessageStore
from mqstore.storage.errors import QueueUnknown, StorageError
from mqstore.storage.host import Seams
from mqstore.storage.shared_groups import Received, SharedGroups, Subscription

log = logs.get(__name__)

EMPTY_STEPS_MAX: Final = 1_000
"""Reads in a row that found no message, of 10,000 filtered entries each, before a receive replies
without one: a filter that matches nothing keeps no thread for long."""


class SharedConsumers:
    """Made once the store is open for writing. Used on the event loop only; ``engine`` may be used
    from any thread."""

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
        self.arrivals = Arrivals(_Arrivals(store), asyncio.get_running_loop())
        self._polls_max = polls_max
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
        wait_s: float,
    ) -> Received:
        """Lease messages; wait up to ``wait_s`` seconds for the first one.

        Raises Problem (503) while too many receives wait, and as ``SharedGroups.receive``.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        for _ in range(EMPTY_STEPS_MAX):
            found = await asyncio.to_thread(
                self.engine.receive,
                group,
                subscriptions,
                count=count,
                max_bytes=max_bytes,
                invisible_s=invisible_s,
            )
            left = until - loop.time()
            if found.messages or left <= 0 or self.arrivals.interrupted:
                break
            await self._await_change(found, left)
        return found

    def wake(self) -> None:
        """Have waiting receives look again: leases ended, or a full queue has room."""
        if len(self.arrivals):
            self.arrivals.wake()

    def end(self) -> None:
        """The service is shutting down: no receive waits any longer."""
        self.arrivals.interrupt()

    async def stop(self) -> None:
        """Save, and return when nothing uses the engine. Before the store is closed."""
        await asyncio.to_thread(self._leave)

    async def _await_change(self, found: Received, seconds: float) -> None:
        """Wait for a message behind what was read, or for the end of a lease."""
        if len(self.arrivals) >= self._polls_max:
            raise Problem(problems.OVERLOADED, "too many receives wait; try again later")
        loop = asyncio.get_running_loop()
        seconds = min(seconds, max(0.0, found.next_deadline - loop.time()))
        with self.arrivals.watch(*found.ends) as arrival:
            await asyncio.wait({arrival}, timeout=seconds)

    def _leave(self) -> None:
        self.arrivals.stop()
        self._saving.stop()
        try:
            self.engine.save()
        except (OSError, StorageError) as error:  # the messages are delivered again
            log.warning("acknowledgements cannot be saved", error=str(error))


class _Arrivals:
    """The store as an ``ArrivalSource``."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def arrival_count(self) -> int:
        """See ``ArrivalSource``."""
        return self._store.state.arrivals

    def wait_for_arrival(self, seen: int, timeout_s: float) -> None:
        """See ``ArrivalSource``."""
        self._store.state.wait(seen, timeout_s)

    def end_of(self, topic: str, queue_id: int) -> int:
        """See ``ArrivalSource``; 0 for a queue without messages."""
        try:
            return self._store.lookups.queue_range(topic, queue_id).max_offset
        except QueueUnknown:
            return 0
