"""Copies buffers into the page cache, when a TransientStorePool is used.

Called from ``commit_log`` (new segments), ``message_store`` (puts that wait) and store-writer
(requests with callbacks). Records are encoded into a buffer under the put lock. A commit copies the
bytes of all puts since the last one, segment by segment, and only then moves the end that readers,
dispatch, flush and recovery use. A segment joins the log's files when everything before it is
committed. A thread that blocks in ``wait`` commits for all waiting threads.

RocketMQ's positions (CommitRealTimeService and MappedFile.commit of 4.9.7 and 5.4.0) are here:
wrotePosition ``WrittenSegment.wrote_position``, committedPosition ``MappedFile.wrote_position``.

Lock order: put lock, commit lock, mutex. Callbacks run without the last two.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import SegmentCreationFailed, StoreFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.log.flush import Watermarks
from mqstore.storage.log.requests import OffsetRequest
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.mapped.transient_store_pool import TransientStorePool
from mqstore.storage.seams import Seams, ServiceHandle


class WrittenSegment:
    """A segment that is being written: its file, and the memory in which its records are
    encoded."""

    __slots__ = ("buffer", "file", "store_timestamp_ms", "wrote_position")

    def __init__(self, file: MappedFile, buffer: memoryview | None) -> None:
        self.file = file
        self.buffer = buffer
        """Buffer of the pool, until all of it is committed.

        None for the segment that existed when the store was opened: it is written in place and
        needs no commit.
        """
        self.wrote_position = file.wrote_position
        """End of the whole records, committed or not. Moved by the appender."""
        self.store_timestamp_ms = 0
        """STORETIMESTAMP of the newest of these records; set after ``wrote_position``."""

    @property
    def end(self) -> int:
        """The end of the written records, a physical offset."""
        return self.file.base_offset + self.wrote_position


class CommitService:
    """Commits in the background, and in threads that wait.

    The service commits every commitIntervalCommitLog when commitCommitLogLeastPages pages wait, and
    all bytes every commitCommitLogThoroughInterval. When the page cache rejects bytes the store has
    failed: every request fails with StoreFailed, now and later, and ``on_failure`` is called once.
    The first five methods are the appender's; any thread may call the others.
    """

    name = "commit-commit-log"

    def __init__(
        self,
        files: MappedFileQueue,
        pool: TransientStorePool,
        config: StoreConfig,
        seams: Seams,
        watermarks: Watermarks,
        *,
        last_store_timestamp_ms: int = 0,
        on_failure: Callable[[StoreFailed], None] = lambda _: None,
    ) -> None:
        self.committed_offset = files.max_offset
        """The end of the readable bytes."""
        self.last_store_timestamp_ms = last_store_timestamp_ms
        """STORETIMESTAMP of the newest committed record."""
        self._files = files
        self._pool = pool
        self._config = config
        self._seams = seams
        self._watermarks = watermarks
        self._on_failure = on_failure
        self._on_committed: Callable[[int], None] = lambda _: None
        self._segments: deque[WrittenSegment] = deque()
        """Oldest first; only that one is among ``files``, and all but the last are full."""
        if files.last is not None:
            self._segments.append(WrittenSegment(files.last, None))
        self._next_thorough = 0.0
        self._lock = threading.Lock()
        self._mutex = threading.Lock()
        self._pending: list[OffsetRequest] = []
        self._failure: StoreFailed | None = None
        self._handle: ServiceHandle | None = None

    # the appender

    @property
    def view(self) -> memoryview:
        """The memory in which records of the newest segment are encoded."""
        newest = self._segments[-1]
        return newest.file.view if newest.buffer is None else newest.buffer

    def publish(self, position: int, timestamp: int) -> None:
        """Set the end of the whole records in the newest segment, and the last STORETIMESTAMP in
        ms."""
        newest = self._segments[-1]
        is_in_place = newest.buffer is None  # so everything before it is committed
        newest.wrote_position = position
        newest.store_timestamp_ms = timestamp
        if is_in_place:
            newest.file.wrote_position = position
            self._publish_committed(newest.file, timestamp)

    def clear_from(self, position: int) -> None:
        """Zero the rest of the newest segment's buffer, which an earlier segment may have used."""
        buffer = self._segments[-1].buffer
        if buffer is not None:
            buffer[position:] = bytes(len(buffer) - position)

    def check_buffers(self) -> None:
        """Before a new segment: check that the pool has a buffer for it.

        Raises SegmentCreationFailed, with fastFailIfNoBufferInStorePool, when all buffers wait for
        a commit. (With a single buffer, the previous segment has it: ``begin`` commits it first.)
        """
        size = self._config.transient_store_pool_size
        if not self._config.fast_fail_if_no_buffer_in_store_pool or size == 1:
            return
        if self._pool.available == 0:
            if self._handle is not None:
                self._handle.wake()
            raise SegmentCreationFailed(
                f"all {size} buffers wait for the page cache; put again later, or raise "
                "transientStorePoolSize"
            )

    def begin(self, file: MappedFile) -> None:
        """Write to a new segment from now on. Without a free buffer, commit full segments first.

        RocketMQ would write the new segment in place, before the previous bytes: a process killed
        then would leave a gap in the log. Raises StoreFailed.
        """
        buffer = self._pool.borrow()
        if buffer is None:
            self.commit()
            buffer = self._pool.borrow()
        assert buffer is not None, "a commit gives the buffers of full segments back"
        if not self._segments:
            self._files.append(file)
        self._segments.append(WrittenSegment(file, buffer))

    # committing

    def commit(self, least_pages: int = 0) -> None:
        """Copy all bytes written before the call, in the caller's thread. Raises StoreFailed.

        A segment that is not full waits while it has fewer than ``least_pages`` pages to copy.
        """
        failed = None
        with self._lock:
            if self._failure is None:
                try:
                    self._commit(least_pages)
                except OSError as error:
                    self._failure = failed = _failure(error)
        if failed is not None:
            self.fail(failed)
            self._on_failure(failed)
        self._check()

    def wait(self, end: int) -> None:
        """Block until everything below ``end`` is committed. Raises StoreFailed."""
        if self.committed_offset < end:
            self.commit()

    def request(self, offset: int) -> OffsetRequest:
        """Request that the log be committed up to ``offset``, an end of an appended record.

        The request starts no commit: add a callback. Raises ValueError beyond the written records.
        """
        request = OffsetRequest(self, offset)
        written = self._segments[-1].end if self._segments else self.committed_offset
        with self._mutex:
            if self._failure is not None or offset <= self.committed_offset:
                request.complete(self._failure)
            elif offset > written:
                raise ValueError(f"offset {offset} is beyond the log's end {written}")
            else:
                self._pending.append(request)
        return request

    def when_done(self, request: OffsetRequest, callback: Callable[[OffsetRequest], None]) -> None:
        """Add a callback, as ``OffsetRequest.add_done_callback``."""
        with self._mutex:
            waits = request.add_callback(callback)
        if not waits:
            request.run_callback(callback)
        elif self._handle is not None:
            self._handle.wake()

    def fail(self, failure: StoreFailed) -> None:
        """Fail every request, now and later, as the store failed. Idempotent."""
        with self._mutex:
            if self._failure is None:
                self._failure = failure
            self._complete(self._pending, self._failure)
            served, self._pending = self._pending, []
        for request in served:
            request.run_callbacks()

    @property
    def reached_offset(self) -> int:
        """See ``RequestService``."""
        return self.committed_offset

    # lifecycle

    def start(self, on_committed: Callable[[int], None]) -> None:
        """Start the background service.

        ``on_committed`` is called with the readable end, before the callbacks of requests.
        """
        self._on_committed = on_committed
        self._handle = self._seams.scheduler.start(self, self._on_crash)

    def step(self, now: float) -> float:
        """Run one step of the background service. Raises StoreFailed."""
        before = self.committed_offset
        is_thorough = bool(self._pending) or now >= self._next_thorough
        self.commit(0 if is_thorough else self._config.commit_commit_log_least_pages)
        has_moved = self.committed_offset > before
        if is_thorough or has_moved:
            self._next_thorough = now + self._config.commit_commit_log_thorough_interval / 1000
        if has_moved:
            self._on_committed(self.committed_offset)
        self._serve()
        return now if self._pending else now + self._config.commit_interval_commit_log / 1000

    def stop(self) -> None:
        """Stop the background service, then commit everything. Raises StoreFailed."""
        if self._handle is not None:
            self._handle.stop()
            self._handle = None
        self.commit()
        self._serve()

    def close(self) -> None:
        """Release the pool's memory, and unmap segments that never joined the log."""
        with self._lock:
            segments, self._segments = list(self._segments), deque()
        for segment in segments:
            segment.file.close()
        self._pool.close()

    # under the commit lock

    def _commit(self, least_pages: int) -> None:
        while self._segments:
            segment = self._segments[0]
            self._copy(segment, least_pages)
            if not segment.file.is_full:
                return
            if segment.buffer is not None:
                self._pool.give_back(segment.buffer)
                segment.buffer = None
            if len(self._segments) == 1:
                return
            self._segments.popleft()
            self._files.append(self._segments[0].file)

    def _copy(self, segment: WrittenSegment, least_pages: int) -> None:
        file = segment.file
        timestamp = segment.store_timestamp_ms  # first: its record ends at or below the end
        start, end = file.wrote_position, segment.wrote_position
        if start == end or (
            end < file.size and end // PAGE_SIZE - start // PAGE_SIZE < least_pages
        ):
            return
        assert segment.buffer is not None, "a segment in place is always committed"
        file.append(segment.buffer[start:end])
        self._publish_committed(file, timestamp)

    def _publish_committed(self, file: MappedFile, timestamp: int) -> None:
        """Let readers of this process see the committed bytes, then publish the end to other
        processes."""
        self.last_store_timestamp_ms = timestamp or self.last_store_timestamp_ms
        self.committed_offset = file.base_offset + file.wrote_position
        self._watermarks.set_max(self.committed_offset)

    # callbacks

    def _serve(self) -> None:
        committed = self.committed_offset
        with self._mutex:
            served = [request for request in self._pending if request.offset <= committed]
            self._pending = [request for request in self._pending if request.offset > committed]
            self._complete(served, None)
        for request in served:
            request.run_callbacks()

    @staticmethod
    def _complete(requests: list[OffsetRequest], error: StoreFailed | None) -> None:
        for request in requests:
            request.complete(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(str(self._failure)) from self._failure

    def _on_crash(self, error: BaseException) -> None:
        """Handle an error of ``step``; a failed commit was reported already."""
        if not isinstance(error, StoreFailed):
            failure = StoreFailed(f"commit service ended: {error!r}")
            self.fail(failure)
            self._on_failure(failure)


def _failure(error: OSError) -> StoreFailed:
    return StoreFailed(
        f"the page cache took no more of the log ({error.strerror or error}); what is not "
        "committed is lost: replace or repair the disk, or make room on it"
    )
