"""Makes the log durable: periodic flush, and group commit for threads that wait.

Called from ``commit_log`` and ``message_store``; a service awaits an ``OffsetRequest``. One sync
runs at a time and serves every request at or below the offset it reached. A thread that blocks in
``wait`` syncs itself when no other thread does (measured against the flush thread in
tests/bench/bench_sync.py); requests with callbacks are served by the flush thread.

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
"""Longest delay of a sync to let others join it: a fraction of the time that a sync takes."""
BUSY_S: Final = 1e-3
"""Retry delay of the background service when another thread syncs."""


class Watermarks(Protocol):
    """Publishes the log's bounds for readers (the state page)."""

    def set_min(self, offset: int) -> None:
        """Publish the log's minimum."""

    def note_expiry(self, offset: int) -> None:
        """Make durable that segments below ``offset`` may be removed."""

    def set_max(self, offset: int) -> None:
        """Publish the readable end."""

    def set_flushed(self, offset: int) -> None:
        """Publish the durable watermark."""


class FlushTarget(Protocol):
    """The files to flush: the commit log's run of mapped files."""

    @property
    def flushed_where(self) -> int:
        """The offset up to which the files are synced."""

    @property
    def max_offset(self) -> int:
        """The end of the written bytes."""

    def flush(self, least_pages: int = 0) -> bool:
        """Sync the files; returns whether anything was synced."""


class FlushService:
    """Flushes the log in the background, and on request. Thread-safe.

    ASYNC_FLUSH: every flushIntervalCommitLog when flushCommitLogLeastPages are dirty, and all dirty
    pages every flushCommitLogThoroughInterval. SYNC_FLUSH: all dirty pages each time. After a
    failed sync every request fails with StoreFailed, now and later, and ``on_failure`` is called
    once.
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
        """``last_store_timestamp`` returns the newest record's STORETIMESTAMP (0: none).

        ``on_flushed`` is called with it after each sync that left no record of that time dirty
        (physicMsgTimestamp of the checkpoint). ``on_synced`` is called with the durable end after
        each sync, once its requests are served.
        """
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
        """Requests that the next sync may serve, if the clients just served send again."""
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
    def reached_offset(self) -> int:
        """See ``RequestService``."""
        return self._flushed

    @property
    def failure(self) -> StoreFailed | None:
        """The failed sync, after which nothing is acknowledged; None before."""
        return self._failure

    def fail(self, failure: StoreFailed) -> None:
        """Fail every request, now and later, as another part of the store failed. Idempotent."""
        with self._mutex:
            if self._failure is None:
                self._failure = failure
            served, self._pending = self._pending, []
            for request in served:
                request.complete(self._failure)
        for request in served:
            request.run_callbacks()
        self._signal.notify()

    def start(self) -> None:
        """Start the background service."""
        self._handle = self._seams.scheduler.start(self, self._on_crash)

    def stop(self) -> None:
        """Stop the background service, then make everything durable. Raises StoreFailed."""
        if self._handle is not None:
            self._handle.stop()
            self._handle = None
        self.flush_all()

    def flush_all(self) -> None:
        """Sync all dirty pages in the caller's thread. Raises StoreFailed."""
        with self._sync_lock:
            self._sync(0)
        self._signal.notify()

    def request(self, offset: int) -> OffsetRequest:
        """Request that the log be on disk up to ``offset``, an end of an appended record.

        The request starts no sync: ``wait`` for it, or add a callback. It is done already when the
        disk has these bytes, and failed after a failed sync. Raises ValueError beyond the log's
        end.
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
        """Block until the request is done; default timeout is syncFlushTimeout.

        Raises FlushTimeout, StoreFailed. A sync that the caller has begun itself is not
        interrupted.
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
        """Add a callback, as ``OffsetRequest.add_done_callback``."""
        with self._mutex:
            waits = request.add_callback(callback)
        if not waits:
            request.run_callback(callback)
        elif self._handle is not None:
            self._handle.wake()

    def step(self, now: float) -> float:
        """Run one step of the background service. Raises StoreFailed when a sync failed."""
        least_pages = self._least_pages
        if now >= self._next_thorough:
            self._next_thorough = now + self._config.flush_commit_log_thorough_interval / 1000
            least_pages = 0
        if self._pending:
            least_pages = 0
        if not self._sync_lock.acquire(blocking=False):
            return (
                now + BUSY_S
            )  # the thread that syncs serves the waiting requests; return for the rest
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
        """Whether as many requests wait as the last sync served and left waiting: one sync then
        serves all of them, where two halves would alternate."""
        return len(self._pending) >= self._expected

    def _lead(self) -> None:
        """Sync for all waiting threads; called with the sync lock held, releases it."""
        try:
            self._sync(0)
        except StoreFailed:
            pass  # every request is served now, including the caller's own
        finally:
            self._sync_lock.release()
            self._signal.notify()

    def _gather(self) -> None:
        """Wait for a complete group. Called by the background service with the sync lock held."""
        if self._pending and not self._is_whole:
            self._gathering = True
            self._signal.wait_for(lambda: self._is_whole, GATHER_S)
            self._gathering = False

    def _follow(self, request: OffsetRequest, now: float, gathered: float, deadline: float) -> None:
        """Wait until the request is done, or until it may be time for a sync.

        While no thread syncs, the thread that completes the group syncs itself: no other needs to
        be woken.
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
        """Sync; called with the sync lock held."""
        if self._failure is not None:
            raise StoreFailed(str(self._failure)) from self._failure
        # Read first: the flush then reads a wrote position at or after that record's end.
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
            request.run_callbacks()

    def _fail(self, cause: Exception) -> StoreFailed:
        failure = cause if isinstance(cause, StoreFailed) else StoreFailed(f"sync failed: {cause}")
        self.fail(failure)
        self._on_failure(failure)
        return failure

    def _on_crash(self, error: BaseException) -> None:
        """Handle an error of ``step``; a failed sync was reported already."""
        if not isinstance(error, StoreFailed):
            self._fail(StoreFailed(f"flush service ended: {error!r}"))
