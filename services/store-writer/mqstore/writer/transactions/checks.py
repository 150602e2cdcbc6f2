"""Due checks for the coordinators: each is leased to one of them at a time.

A request may wait until a check is due: what can make one available (the engine's schedule, a
producer that registers or has rested) wakes all requests that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from mqstore.service.transaction_structs import (
    CallableProducer,
    CheckReport,
    LeaseChecks,
    LeasedCheck,
    Transaction,
)
from mqstore.storage.errors import TransactionUnknown
from mqstore.storage.transactions import CheckSent, TransactionEngine, TransactionSnapshot
from mqstore.writer.transactions.producers import Producers
from mqstore.writer.transactions.views import view

PRODUCERS_OF_A_CHECK: Final = 10
"""Producers in the answer for one check, the one that answered last at the end."""


class Bell:
    """Wakes all coroutines that wait. Used on the event loop, but for ``ring_from_thread``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake all coroutines that listen now."""
        self._rung.set()
        self._rung = asyncio.Event()

    def ring_from_thread(self) -> None:
        """May be called from any thread, also while the loop ends."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.ring)

    def listen(self) -> Callable[[float], Awaitable[bool]]:
        """From now on: a function that waits for at most so many seconds; True if it has rung."""
        rung = self._rung

        async def wait(seconds: float) -> bool:
            """Wait up to so many seconds; return whether it rang."""
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), seconds)
            return rung.is_set()

        return wait


class Checks:
    """The due checks of an open store. Used on the event loop only."""

    def __init__(self, engine: TransactionEngine, shard: int, producers: Producers) -> None:
        self._engine = engine
        self._shard = shard
        self._producers = producers
        self._loop = asyncio.get_running_loop()
        self._is_ending = False
        self.bell = Bell()
        engine.on_due = self.bell.ring_from_thread

    def end(self) -> None:
        """The service is shutting down: no request waits any longer."""
        self._is_ending = True
        self.bell.ring()

    async def lease(
        self, request: LeaseChecks, is_gone: Callable[[], bool] = lambda: False
    ) -> list[LeasedCheck]:
        """Due checks, which no other caller gets for ``lease_seconds``; waits up to ``wait`` for
        the first. ``is_gone``: whether the caller has disconnected, and nothing is to be leased.

        Raises StorageError.
        """
        until = self._loop.time() + request.wait
        while True:
            # Both before the look: what ends or rings meanwhile ends the wait behind it.
            wait, rest_s = self.bell.listen(), self._next_rest_s(request)
            if found := await self._leased(request):
                return found
            left = until - self._loop.time()
            if left <= 0 or self._is_ending:
                return []
            await wait(left if rest_s is None else min(left, rest_s))
            if is_gone():
                return []

    async def report(self, report: CheckReport, keys: dict[str, str]) -> list[str]:
        """Count the checks that were sent, and make the released ones due again. ``keys`` are those
        of the report's transaction ids. Returns the ids that were counted. Raises StorageError."""
        for each in report.producers:
            producer = self._producers.find(each.group, each.name)
            if producer is not None and each.failure is None:
                self._producers.answered(producer)
            elif producer is not None:
                self._producers.failed(producer, each.failure or "")
        if report.producers:
            self.bell.ring()
        if report.released:
            await asyncio.to_thread(self._engine.release, [keys[each] for each in report.released])
        if not report.checks:
            return []
        sent = [
            CheckSent(keys[each.transaction_id], each.by, each.answer) for each in report.checks
        ]
        counted = set(await asyncio.to_thread(self._engine.count_checks, sent))
        return [
            each.transaction_id for each in report.checks if keys[each.transaction_id] in counted
        ]

    async def _leased(self, request: LeaseChecks) -> list[LeasedCheck]:
        """Due checks now."""
        groups = self._groups(request)
        if groups is not None and not groups:
            return []
        engine, count, seconds = self._engine, request.max, request.lease_seconds
        snapshots = await asyncio.to_thread(engine.lease, groups, count, seconds)
        if snapshots and request.by is not None:
            snapshots = await asyncio.to_thread(self._counted, snapshots, request.by)
        return [
            LeasedCheck(
                transaction=self._view(each),
                producers=tuple(self._producers_of(request, each.group)),
            )
            for each in snapshots
        ]

    def _groups(self, request: LeaseChecks) -> list[str] | None:
        """The groups whose checks are requested; None: all."""
        if not request.registered:
            return None if request.group is None else [request.group]
        wanted = self._engine.due_groups() if request.group is None else [request.group]
        return self._producers.able_groups(wanted)

    def _producers_of(self, request: LeaseChecks, group: str) -> list[CallableProducer]:
        if not request.registered:
            return []
        able = self._producers.able(group)[:PRODUCERS_OF_A_CHECK]
        return [each.as_callable() for each in able]

    def _counted(self, snapshots: list[TransactionSnapshot], by: str) -> list[TransactionSnapshot]:
        """Count the checks as sent: their snapshots as they are then. In a thread."""
        counted = self._engine.count_checks([CheckSent(each.key, by, None) for each in snapshots])
        found = []
        for key in counted:
            with contextlib.suppress(TransactionUnknown):  # decided, and forgotten since
                found.append(self._engine.find(key))
        return found

    def _next_rest_s(self, request: LeaseChecks) -> float | None:
        """Seconds until a producer has rested that may be called for these checks; None: no wait
        for one."""
        return self._producers.rest_s(request.group) if request.registered else None

    def _view(self, snapshot: TransactionSnapshot) -> Transaction:
        return view(self._shard, snapshot)
