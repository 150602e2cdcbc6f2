"""Timers and syncs of one simulated process, for the waits of its replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mqstore.storage.puts import OffsetRequest
from tests.simulation.shard.events import Process
from tests.simulation.shard.replica_log import ReplicaLog


class SimulatedTimer:
    """A call that is due."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not call."""
        self.is_cancelled = True


class SimulatedLoop:
    """``waits.Loop`` of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.time = process.monotonic

    def call_soon(self, callback: Callable[..., object], *given: Any) -> None:
        """Call behind what is being done."""
        self._process.after(0, lambda: callback(*given))

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Callable[..., object], *given: Any) -> SimulatedTimer:
        """Call at a time of the machine's clock."""
        return self.call_later(when - self.time(), callback, *given)

    def call_later(
        self, delay: float, callback: Callable[..., object], *given: Any
    ) -> SimulatedTimer:
        """Call after some time."""
        timer = SimulatedTimer()
        self._process.after(delay, lambda: timer.is_cancelled or callback(*given))
        return timer

    def call_exception_handler(self, context: Mapping[str, Any]) -> None:
        """Raise the exception of a callback: the schedule is broken."""
        raise context["exception"]


class SimulatedFlush:
    """``RequestService``: syncs the log of one process, a sync at a time."""

    def __init__(self, process: Process, log: ReplicaLog, sync_time: Callable[[], float]) -> None:
        self._process = process
        self._log = log
        self._sync_time = sync_time
        self._waiting: list[OffsetRequest] = []
        self._is_syncing = False

    @property
    def reached_offset(self) -> int:
        """See ``RequestService``."""
        return self._log.store.log.flushed_offset

    def request(self, offset: int) -> OffsetRequest:
        """See ``RequestService``."""
        found = OffsetRequest(self, offset)
        self._waiting.append(found)
        self._begin()
        return found

    def when_done(self, request: OffsetRequest, callback: Callable[[OffsetRequest], None]) -> None:
        """See ``RequestService``."""
        if not request.add_callback(callback):
            request.run_callback(callback)

    def _begin(self) -> None:
        if not self._is_syncing and self._waiting:
            self._is_syncing = True
            self._process.after(self._sync_time(), self._sync)

    def _sync(self) -> None:
        self._is_syncing = False
        self._log.sync()
        served, self._waiting = self._waiting, []
        for each in served:
            each.complete(None)
        for each in served:
            each.run_callbacks()
        self._begin()
