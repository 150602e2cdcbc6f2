"""Making the log durable: periodic flush, and group commit for whoever waits.

Called from ``commit_log`` and ``message_store``; a service awaits an ``OffsetRequest``. One sync
runs at a time and serves every request at or below the offset it reached. A thread that blocks in
``wait`` does the sync itself when nobody else is at it (measured against handing it to the flush
thread in tests/bench/bench_sync.py); requests with callbacks are served by the flush thread.

Lock order: sync lock, then mutex. Callbacks run with neither held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.errors import FlushTimeout, StoreFailed
from mqstore.storage.log.requests import OffsetRequest
from mqstore.storage.seams import Seams, ServiceHandle

GATHER_S: Final = 100e-6
"""Longest that a sync is put off for others to join it: a fraction of what a sync takes."""
BUSY_S: Final = 1e-3
"""When the background service comes back that found a caller at the sync."""


class Watermarks(Protocol):
    """Where the log's bounds are published for readers (the state page)."""

    def set_min(self, offset: int) -> None: ...

    def note_expiry(self, offset: int) -> None: ...

    def set_max(self, offset: int) -> None: ...

    def set_flushed(self, offset: int) -> None: ...


class FlushTarget(Protocol):
    """What is flushed: the commit log's run of mapped files."""

    @property
    def flushed_where(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    def flush(self, least_pages: int = 0) -> bool: ...


class FlushService:
    """Flushes the log in the background, and on request.

    ASYNC_FLUSH: every flushIntervalCommitLog when flushCommitLogLeastPages are dirty, whatever is
    dirty every flushCommitLogThoroughInterval. SYNC_FLUSH: whatever is dirty each time. After a
    failed sync every request fails with StoreFailed, now and later, and ``on_failure`` is called
    once. All methods may be called from any thread.
    """

    name = "flush-commit-log"

    def __init__(
        self,
        target: FlushTarget,
        config: StoreConfig,
        seams: Seams,
        watermarks: Watermarks,
        *,
        last_store_timestamp: Callable[[], int] = lambda: 0,
        on_flushed: Callable[[int], None] = lambda _: None,
        on_synced: Callable[[int], None] = lambda _: None,
        on_failure: Callable[[StoreFailed], None] = lambda _: None,
    ) -> None:
        """``last_store_timestamp`` tells the newest record's STORETIMESTAMP (0: none);
        ``on_flushed`` gets it after each sync that left nothing of that time dirty
        (physicMsgTimestamp of the checkpoint); ``on_synced`` gets what is on disk after each sync,
        when those who waited for it were answered."""
        self._target = target
        self._config = config
        self._seams = seams
        self._watermarks = watermarks
        self._last_store_timestamp = last_store_timestamp
        self._on_flushed = on_flushed
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._least_pages = self._periodic_least_pages()
        self._next_thorough = 0.0
        self._sync_lock = threading.Lock()
        self._mutex = threading.Lock()
        self._signal = seams.scheduler.signal()
        self._expected = 0
        """Requests that the next sync may serve, if those who were just served come back."""
        self._gathering = False
        self._pending: list[OffsetRequest] = []
        self._failure: StoreFailed | None = None
        self._handle: ServiceHandle | None = None
        self._flushed = target.flushed_where

    @property
    def flushed_offset(self) -> int:
        """Every byte of the log below this is on disk."""
        return self._flushed

    @property
    def failure(self) -> StoreFailed | None:
        """The failed sync after which nothing is acknowledged any more."""
        return self._failure

    def fail(self, failure: StoreFailed) -> None:
        """The store failed elsewhere: fail every request, now and later. Idempotent."""
        with self._mutex:
            if self._failure is None:
                self._failure = failure
            served, self._pending = self._pending, []
            for request in served:
                request.complete(self._failure)
        for request in served:
            request.call_back()
        self._signal.notify()

    def start(self) -> None:
        """Flush in the background from now on."""
        self._handle = self._seams.scheduler.start(self, self._on_crash)

    def stop(self) -> None:
        """End the background service, then make everything durable. Raises StoreFailed."""
        if self._handle is not None:
            self._handle.stop()
            self._handle = None
        self.flush_all()

    def flush_all(self) -> None:
        """Sync whatever is dirty, in the caller's thread. Raises StoreFailed."""
        with self._sync_lock:
            self._sync(0)
        self._signal.notify()

    def request(self, offset: int) -> OffsetRequest:
        """Ask that the log be on disk up to ``offset``: an end of a record that was appended.

        Starts no sync by itself: ``wait`` for it, or add a callback. Already done when the disk
        has it, already failed after a failed sync. ValueError beyond the log's end.
        """
        request = OffsetRequest(self, offset)
        with self._mutex:
            if self._failure is not None or offset <= self._flushed:
                request.complete(self._failure)
            elif offset > (end := self._target.max_offset):
                raise ValueError(f"offset {offset} is beyond the log's end {end}")
            else:
                self._pending.append(request)
        if self._gathering:
            self._signal.notify()
        return request

    def wait(self, request: OffsetRequest, timeout_s: float | None = None) -> None:
        """Block until the disk has it; default timeout is syncFlushTimeout.

        Raises FlushTimeout, StoreFailed. The caller's own sync, once begun, is waited for.
        """
        timeout = self._config.sync_flush_timeout / 1000 if timeout_s is None else timeout_s
        now = self._seams.clock.monotonic()
        deadline, gathered = now + timeout, now + GATHER_S
        while not request.done:
            is_due = self._is_whole or now >= gathered
            if is_due and self._sync_lock.acquire(blocking=False):
                self._lead()
            else:
                self._follow(request, now, gathered, deadline)
            now = self._seams.clock.monotonic()
        request.result()

    def when_done(self, request: OffsetRequest, callback: Callable[[OffsetRequest], None]) -> None:
        """As ``OffsetRequest.add_done_callback``."""
        with self._mutex:
            waits = request.add_callback(callback)
        if not waits:
            request.tell(callback)
        elif self._handle is not None:
            self._handle.wake()

    def step(self, now: float) -> float:
        """One turn of the background service. Raises StoreFailed when a sync failed."""
        least_pages = self._least_pages
        if now >= self._next_thorough:
            self._next_thorough = now + self._config.flush_commit_log_thorough_interval / 1000
            least_pages = 0
        if self._pending:
            least_pages = 0
        if not self._sync_lock.acquire(blocking=False):
            return now + BUSY_S  # whoever syncs serves what waits now; come back for the rest
        try:
            self._gather()
            self._sync(least_pages)
        finally:
            self._sync_lock.release()
        self._signal.notify()
        return now if self._pending else now + self._config.flush_interval_commit_log / 1000

    def _periodic_least_pages(self) -> int:
        if self._config.flush_disk_type is FlushDiskType.SYNC:
            return 0
        return self._config.flush_commit_log_least_pages

    @property
    def _is_whole(self) -> bool:
        """Whether as many wait as the last sync released and found waiting: one sync then serves
        all of them, where halves of them would alternate."""
        return len(self._pending) >= self._expected

    def _lead(self) -> None:
        """Sync for everybody; called with the sync lock held, releases it."""
        try:
            self._sync(0)
        except StoreFailed:
            pass  # every request has it now, the caller's own included
        finally:
            self._sync_lock.release()
            self._signal.notify()

    def _gather(self) -> None:
        """Wait for a whole group. Called by the background service with the sync lock held."""
        if self._pending and not self._is_whole:
            self._gathering = True
            self._signal.wait_for(lambda: self._is_whole, GATHER_S)
            self._gathering = False

    def _follow(self, request: OffsetRequest, now: float, gathered: float, deadline: float) -> None:
        """Wait until the request is done, or it may be time for a sync.

        While nobody syncs, whoever makes the group whole does it: nobody has to be woken for that.
        """
        if now >= deadline:
            raise FlushTimeout(
                f"log is not known to be on disk up to offset {request.offset} in time; "
                "the record is stored and may be read"
            )
        if self._sync_lock.locked():
            self._signal.wait_for(
                lambda: request.done or not self._sync_lock.locked(), deadline - now
            )
        else:
            self._signal.wait_for(lambda: request.done, min(gathered, deadline) - now)

    def _sync(self, least_pages: int) -> None:
        """Called with the sync lock held."""
        if self._failure is not None:
            raise StoreFailed(str(self._failure)) from self._failure
        # Taken first: the flush then reads a wrote position at or after that record's end.
        newest = self._last_store_timestamp()
        try:
            self._target.flush(least_pages)
        except Exception as error:
            raise self._fail(error) from error
        self._publish(self._target.flushed_where)
        self._on_synced(self._flushed)
        if least_pages == 0 and newest > 0:
            self._on_flushed(newest)

    def _publish(self, flushed: int) -> None:
        if flushed > self._flushed:
            self._watermarks.set_flushed(flushed)
        with self._mutex:
            self._flushed = flushed
            served = [request for request in self._pending if request.offset <= flushed]
            if served:
                self._pending = [r for r in self._pending if r.offset > flushed]
            for request in served:
                request.complete(None)
            self._expected = len(served) + len(self._pending)
        for request in served:
            request.call_back()

    def _fail(self, cause: Exception) -> StoreFailed:
        failure = cause if isinstance(cause, StoreFailed) else StoreFailed(f"sync failed: {cause}")
        self.fail(failure)
        self._on_failure(failure)
        return failure

    def _on_crash(self, error: BaseException) -> None:
        """The scheduler's report that ``step`` raised; a failed sync was reported already."""
        if not isinstance(error, StoreFailed):
            self._fail(StoreFailed(f"flush service ended: {error!r}"))
