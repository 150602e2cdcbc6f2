"""Makes segments ahead of need, in the background (RocketMQ's AllocateMappedFileService).

A put that needs a file requests that one and the next, and waits only for the first. One service
serves the commit log's queue.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from mqstore.storage.errors import Lack, SegmentCreationFailed
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.put_refusal import file_failure
from mqstore.storage.seams import Seams, ServiceHandle

WAIT_S: Final = 5.0
"""Time that a put waits for the file it needs."""
SLOW_S: Final = 0.010
"""Creating a file for longer than this is logged, as in RocketMQ."""

log = logging.getLogger(__name__)


class _Request:
    def __init__(self, queue: MappedFileQueue, offset: int) -> None:
        self.queue = queue
        self.offset = offset
        self.file: MappedFile | None = None
        self.error: BaseException | None = None
        self.is_needed = False
        """Whether a put waits for it; the failure of a spare is ignored."""

    @property
    def is_pending(self) -> bool:
        return self.file is None and self.error is None

    def is_done(self) -> bool:
        return not self.is_pending


class AllocationService:
    """A ``BackgroundService`` that makes requested files, lowest offset first, one a step.

    It also populates pages ahead, and unlocks full files.
    """

    name = "allocation"

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._signal = seams.scheduler.signal()
        self._requests: dict[Path, _Request] = {}
        self._lock = Lock()
        self._populating: MappedFileQueue | None = None
        self._filled: list[MappedFile] = []
        self.makes_spares = True
        """Whether files are made before a put needs them."""
        self._handle: ServiceHandle | None = None

    def start(self, on_failure: Callable[[BaseException], None]) -> None:
        """Run in the background.

        If never started, ``take`` makes the file in the caller's thread.
        """
        self._handle = self._seams.scheduler.start(self, on_failure)

    def request(self, queue: MappedFileQueue, offset: int, next_offset: int | None) -> None:
        """Request the file at ``offset`` and, as a spare, the one after. Never blocks long."""
        with self._lock:
            self._request_for(queue, offset).is_needed = True
            if next_offset is not None and self.makes_spares:
                self._request_for(queue, next_offset)
        self._wake()

    def take(self, offset: int, timeout_s: float = WAIT_S) -> MappedFile:
        """Wait for a requested file; the caller appends it to its queue.

        Raises SegmentCreationFailed when it could not be made (then it may be requested again) or
        is late (then it is still being made, and a later ``take`` may find it).
        """
        request = self._find_request(offset)
        if request is None:
            raise ValueError(f"segment {offset} was not requested; call request first")
        self._wait(request, timeout_s)
        with self._lock:
            self._requests.pop(request.queue.path_of(offset), None)
        return _file_of(request)

    def is_settled(self, offset: int) -> bool:
        """Whether ``take`` would return or raise without waiting for another thread."""
        request = self._find_request(offset)
        return request is None or self._handle is None or request.is_done()

    def has(self, offset: int) -> bool:
        """Whether a requested file is made and not taken."""
        with self._lock:
            requests = list(self._requests.values())
        return any(each.offset == offset and each.file is not None for each in requests)

    def retry(self, queue: MappedFileQueue, offset: int) -> bool:
        """Request the file at ``offset`` again unless it exists; returns whether it exists.

        Never waits for another thread. Raises SegmentCreationFailed of the previous attempt.
        """
        failed = self._find_request(offset)
        if failed is not None and failed.file is not None:
            return True
        self.request(queue, offset, None)
        if failed is not None and failed.error is not None:
            _file_of(failed)
        return False

    def wait(self, offset: int, timeout_s: float = WAIT_S) -> None:
        """Wait for a requested file without taking it. Raises SegmentCreationFailed."""
        request = self._find_request(offset)
        if request is not None:
            self._wait(request, timeout_s)
            _file_of(request)

    def give_up_spares(self) -> int:
        """Unlink spare files, the last one first; returns their bytes. Raises OSError."""
        with self._lock:
            spares = {
                path: request.file
                for path, request in self._requests.items()
                if request.file is not None and not request.is_needed
            }
            for path in spares:
                del self._requests[path]
        for file in sorted(spares.values(), key=lambda file: -file.base_offset):
            file.destroy(self._seams.clock.monotonic(), force_after_s=0)
        return sum(file.size for file in spares.values())

    def populate(self, queue: MappedFileQueue) -> None:
        """Request pages ahead of the write position, once it passed ``MappedFile.populate_at``."""
        if self._populating is None:
            self._populating = queue
            self._wake()

    def unlock(self, file: MappedFile) -> None:
        """Unlock a full file's pages in the background, when nothing else is due, as it takes a
        while."""
        if file.is_locked:
            self._filled.append(file)
            self._wake()

    def step(self, now: float) -> float:
        """Make the next requested file, or do the other due work."""
        queue, self._populating = self._populating, None
        if queue is not None:
            queue.populate()
        request = self._next()
        if request is not None:
            self._make(request)
        elif self._filled:
            self._filled.pop().unlock()
        else:
            return math.inf
        return now

    def close(self) -> None:
        """Stop, and remove the files that were not taken, as RocketMQ does at shutdown."""
        if self._handle is not None:
            self._handle.stop()
        with self._lock:
            requests, self._requests = list(self._requests.values()), {}
        for request in requests:
            if request.file is not None:
                request.file.destroy(self._seams.clock.monotonic(), force_after_s=0)

    def _wake(self) -> None:
        if self._handle is not None:
            self._handle.wake()

    def _request_for(self, queue: MappedFileQueue, offset: int) -> _Request:
        """The request for that path: the existing one, unless it failed."""
        path = queue.path_of(offset)
        request = self._requests.get(path)
        if request is None or request.error is not None:
            request = self._requests[path] = _Request(queue, offset)
        return request

    def _find_request(self, offset: int) -> _Request | None:
        with self._lock:
            for request in self._requests.values():
                if request.offset == offset:
                    request.is_needed = True
                    return request
        return None

    def _wait(self, request: _Request, timeout_s: float) -> None:
        if self._handle is None:
            self._make(request)
        elif not self._signal.wait_for(request.is_done, timeout_s):
            raise SegmentCreationFailed(
                f"segment {request.offset} was not made within {timeout_s} s; the disk is too slow"
            )

    def _next(self) -> _Request | None:
        with self._lock:
            pending = [request for request in self._requests.values() if request.is_pending]
        return min(pending, key=lambda request: request.offset, default=None)

    def _make(self, request: _Request) -> None:
        if not request.is_pending:
            return
        began = self._seams.clock.monotonic()
        try:
            request.file = request.queue.create(request.offset)
        except OSError as error:
            self._fail(request, error)
        except BaseException as error:
            request.error = error
            raise
        finally:
            self._signal.notify()
        took = self._seams.clock.monotonic() - began
        if took > SLOW_S:
            log.info("segment creation was slow", extra={"offset": request.offset, "took_s": took})

    def _fail(self, request: _Request, error: OSError) -> None:
        """Note that a file cannot be made.

        A failed spare is forgotten, and requested again when it is needed. So are the spares after
        it: made alone they would leave a hole in the log's run of files.
        """
        log.warning("segment cannot be made", extra={"offset": request.offset, "error": str(error)})
        with self._lock:
            request.error = error.with_traceback(None)  # whose frames would keep the request
            if not request.is_needed:
                self._requests.pop(request.queue.path_of(request.offset), None)
            for path, other in list(self._requests.items()):
                if other.is_pending and not other.is_needed and other.offset > request.offset:
                    del self._requests[path]


def _file_of(request: _Request) -> MappedFile:
    if request.file is None:
        what = f"segment {request.offset}"
        error = request.error
        if isinstance(error, OSError):
            raise file_failure(what, error, request.queue.file_size) from error
        raise SegmentCreationFailed(f"{what} cannot be made ({error})", Lack.DISK_ERROR) from error
    return request.file
