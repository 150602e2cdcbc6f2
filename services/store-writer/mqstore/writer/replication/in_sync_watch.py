"""Runs the ``InSyncLook`` of a leader: timers and syncs, publications, events.

Called from ``leader``. The set is looked at after each report of a slave, and many times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mqstore.service import logs
from mqstore.service.events import Events
from mqstore.storage import MessageStore
from mqstore.storage.puts import OffsetRequest
from mqstore.storage.replication import Connections, InSyncLook, InSyncSet, LeaderSession

log = logs.get(__name__)

Publish = Callable[[frozenset[str]], Awaitable[None]]
"""Makes a set the published one; an exception leaves open whether it is."""

LOOK_INTERVAL_S: Final = 0.02
RETRY_S: Final = 1.0
"""Pause after a publication that failed."""
RATE_INTERVAL_S: Final = 1.0
"""Time over which the rate of a copy is measured, at least."""


@dataclass(slots=True)
class _Connection:
    """A copy while it is connected."""

    slave: LeaderSession
    since_ms: int
    rate: float = 0.0
    measured: int = 0
    measured_at: float = 0.0

    def measure(self, now: float) -> None:
        """Measure the rate of its acknowledgements, in bytes per second."""
        if (seconds := now - self.measured_at) >= RATE_INTERVAL_S:
            self.rate = max(0.0, (self.slave.acknowledged - self.measured) / seconds)
            self.measured, self.measured_at = self.slave.acknowledged, now


@dataclass(frozen=True, slots=True)
class CopyState:
    """A connected copy as the leader knows it."""

    name: str
    address: str
    is_replica: bool
    acknowledged: int
    lag_bytes: int
    lag_s: float | None
    """For how long it has lacked a part of the log; None before it had all of it once."""
    rate: float
    """Bytes per second that it acknowledged lately."""
    since_ms: int
    """Time of its connection."""
    in_sync_since_ms: int | None
    """None while it is not in sync."""


async def publish_nowhere(_: frozenset[str]) -> None:
    """Publish for no other process: of a shard whose leader is not elected."""


class InSyncWatch:
    """The copies in sync of one leader. Used on one event loop."""

    def __init__(
        self,
        copies: InSyncSet,
        store: MessageStore,
        connections: Connections | None,
        events: Events,
        publish: Publish = publish_nowhere,
        *,
        syncs: bool = False,
    ) -> None:
        """``connections`` is None where no slave may connect. ``syncs``: sync the log as soon as it
        grows, since readers see no more than what is confirmed."""
        self._is_syncing = False
        self._is_stopped = False
        self.copies = copies
        self._store = store
        self._events = events
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._look = InSyncLook(copies, store, connections, self._loop.time, syncs=syncs)
        self._look.on_change = self._note_change
        self._connections: dict[str, _Connection] = {}
        self._since_ms = {name: _now_ms() for name in copies.names}
        """When the members joined, by name."""
        self._timer: asyncio.TimerHandle | None = None
        self._publishing: asyncio.Task[None] | None = None
        if connections is not None:
            connections.listeners.insert(0, self.look)  # before those that wait for what it finds

    @property
    def states(self) -> list[CopyState]:
        """The copies that are connected, by name."""
        now, end = self._loop.time(), self._store.log.max_offset
        names = self.copies.names
        return [
            CopyState(
                name,
                each.slave.address,
                each.slave.is_replica,
                each.slave.acknowledged,
                max(0, end - each.slave.acknowledged),
                self.copies.lag_s(name, now),
                each.rate,
                each.since_ms,
                self._since_ms.get(name) if name in names else None,
            )
            for name, each in sorted(self._connections.items())
        ]

    @property
    def unconfirmed(self) -> int:
        """Bytes of the log that are not confirmed."""
        return max(0, self._store.log.max_offset - self.copies.confirmed)

    def start(self) -> None:
        """Watch until ``stop``."""
        self._tick()

    async def stop(self) -> None:
        """Watch no more. A publication that goes on is cancelled."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._publishing is not None:
            self._publishing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._publishing

    def look(self) -> None:
        """Feed the set what the leader and the connected copies have now; confirm."""
        if self._is_stopped:
            return
        self._look.look()
        now = self._loop.time()
        for each in self._connections.values():
            each.measure(now)
        if (wanted := self._look.wanted_sync) and not self._is_syncing:
            self._is_syncing = True
            self._store.flush.request(wanted).add_done_callback(self._note_synced)

    def _note_synced(self, request: OffsetRequest) -> None:
        """Look again after a sync. Called from the thread of the flush service."""
        if request.error is None:  # else the process ends
            self._loop.call_soon_threadsafe(self._look_after_sync)

    def _look_after_sync(self) -> None:
        self._is_syncing = False
        self.look()

    def _tick(self) -> None:
        self.look()
        names = self._look.begin_change()
        if names is not None:
            self._publishing = self._loop.create_task(self._change(names))
        self._look.note_tables()
        self._timer = self._loop.call_later(LOOK_INTERVAL_S, self._tick)

    async def _change(self, names: frozenset[str]) -> None:
        is_published = True
        try:
            await self._publish(names)
        except Exception as error:
            is_published = False
            log.warning("the copies in sync cannot be published", names=sorted(names), error=error)
            await asyncio.sleep(RETRY_S)
        self._look.end_change(names, is_published=is_published)

    def _note_change(self, change: str, name: str) -> None:
        if change == "connected":
            slave = self._look.connected[name]
            self._connections[name] = _Connection(
                slave, _now_ms(), measured=slave.acknowledged, measured_at=self._loop.time()
            )
        elif change == "joined":
            self._since_ms[name] = _now_ms()
        elif change == "left":
            self._since_ms.pop(name, None)
        self._report(change, name)
        if change == "lost":
            del self._connections[name]

    def _report(self, change: str, name: str) -> None:
        known = self._connections.get(name)
        figures = {
            "replica": name,
            "address": None if known is None else known.slave.address,
            "acknowledged": None if known is None else known.slave.acknowledged,
            "logEnd": self._store.log.max_offset,
            "inSync": sorted(self.copies.names),
        }
        report = log.warning if change in ("lost", "left") else log.info
        report("replica", change=change, **figures)
        self._events.publish("replica", change=change, **figures)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
