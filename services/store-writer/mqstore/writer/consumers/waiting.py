"""The shared groups of an open store, and their receives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mqstore.service import logs
from mqstore.service.arrivals import WriterArrivals
from mqstore.service.limits import Budget
from mqstore.storage import MessageStore
from mqstore.storage.errors import StorageError
from mqstore.storage.host import Seams
from mqstore.storage.shared_groups import (
    DeadLetters,
    PopRevival,
    Received,
    SharedGroups,
    Subscription,
)
from mqstore.writer.consumers.lines import Lines
from mqstore.writer.consumers.receiving import Receiving
from mqstore.writer.ordering import queue_of

log = logs.get(__name__)


class SharedConsumers:
    """Made once the store is open for writing. Used on the event loop only; ``engine`` and
    ``dead_letters`` may be used from any thread."""

    def __init__(
        self,
        store: MessageStore,
        seams: Seams,
        shard: int,
        polls: Budget,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Receives that wait count towards ``polls``. ``failed`` is called by any thread when
        acknowledgements cannot be saved any more."""
        self.engine = SharedGroups(store, seams, shard)
        self.dead_letters = DeadLetters(store, seams, queue_of)
        self.arrivals = WriterArrivals(_Queues(store), asyncio.get_running_loop())
        self.lines = Lines(self.arrivals, polls)
        self._undoing: set[asyncio.Future[None]] = set()
        self._saving = seams.scheduler.start(self.engine, failed)
        self._reviving = seams.scheduler.start(PopRevival(store, seams), failed)
        self.arrivals.start()

    def receive(
        self,
        group: str,
        subscriptions: Sequence[Subscription],
        *,
        count: int,
        max_bytes: int,
        invisible_s: float,
        member: str | None,
        wait_s: float,
        client: str,
        check: Callable[[], None],
    ) -> Receiving:
        """Begin to lease messages; wait up to ``wait_s`` seconds for the first one.

        ``check`` is called before each look; it raises the Problem of a token that was removed.
        The result raises it, Problem (429, 503) while too many receives wait, also of one
        ``client``, and as ``SharedGroups.receive``.
        """
        limits: dict[str, Any] = {
            "count": count,
            "max_bytes": max_bytes,
            "invisible_s": invisible_s,
        }
        engine = self.engine
        in_memory = partial(engine.receive_in_memory, group, subscriptions, **limits)
        lease = partial(engine.receive, group, subscriptions, member=member, **limits)
        topics = frozenset([each.topic for each in subscriptions])
        if member is not None:
            topics |= {f"member {member}"}  # an arrival is for the member that holds its queue
        receiving = Receiving(
            self.lines,
            group,
            topics,
            look_in_memory=in_memory if member is None else _in_thread_only,
            look_in_thread=partial(self._lease, group, lease),
            wait_s=wait_s,
            client=client,
            check=check,
        )
        receiving.start()
        return receiving

    def end(self) -> None:
        """The service is shutting down: no receive waits any longer."""
        self.arrivals.interrupt()

    async def stop(self) -> None:
        """Save, and return when nothing uses the engine. Before the store is closed."""
        if self._undoing:
            await asyncio.wait(self._undoing)
        self.arrivals.stop()
        await asyncio.to_thread(self._leave)

    async def _lease(self, group: str, lease: Callable[[], Received]) -> Received:
        """Lease messages in a thread; when cancelled, undo the leases once they are made."""
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
                self.lines.wake(group, only_full=False)
        except (OSError, StorageError) as error:  # the leases expire
            log.warning("leases of a cancelled receive stay", group=group, error=str(error))

    def _leave(self) -> None:
        self._reviving.stop()
        self._saving.stop()
        try:
            self.engine.save()
        except (OSError, StorageError) as error:  # the messages are delivered again
            log.warning("acknowledgements cannot be saved", error=str(error))


def _in_thread_only() -> None:
    """Leave a look to a thread."""


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
