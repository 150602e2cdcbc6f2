"""The segment after the log's newest one, for the put that needs it.

Called from ``commit_log``. Nothing but getting a segment can hold the put lock for long, so the
time that puts wait is measured here.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, Protocol

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import FilePending, Lack, PageCacheBusy, SegmentCreationFailed
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.put_refusal import FileShortage, PutRefusal, file_failure
from mqstore.storage.seams import Clock

_log: Final = logging.getLogger(__name__)

LONG_PUT_S: Final = 0.5
"""Seconds beyond which a put that holds the lock, or waits for a segment, is logged: RocketMQ's
limit of elapsedTimeInLock."""
SEGMENT_WAIT_S: Final = 5.0
"""How long a put waits for the next segment (AllocateMappedFileService's 5 s)."""


class SegmentSource(Protocol):
    """Makes segments ahead of need (``allocation.AllocationService``, which documents the
    methods)."""

    def request(self, queue: MappedFileQueue, offset: int, next_offset: int | None) -> None:
        """Request the segment at ``offset``, and the next one as a spare."""

    def retry(self, queue: MappedFileQueue, offset: int) -> bool:
        """Request the segment again unless it exists; returns whether it exists."""

    def has(self, offset: int) -> bool:
        """Whether a requested segment is made and not taken."""

    def is_settled(self, offset: int) -> bool:
        """Whether ``take`` would not block."""

    def wait(self, offset: int, timeout_s: float) -> None:
        """Wait for a requested segment."""

    def take(self, offset: int, timeout_s: float) -> MappedFile:
        """Wait for a requested segment, and take it."""

    def populate(self, queue: MappedFileQueue) -> None:
        """Fault in pages ahead of the write position."""

    def unlock(self, file: MappedFile) -> None:
        """Unlock the pages of a full segment."""


class NextSegment:
    """Gets the next segment: from the allocation, or made by the thread that puts.

    ``get`` is called with the put lock held. Everything else may be called by any thread.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        config: StoreConfig,
        clock: Clock,
        allocation: SegmentSource | None,
        shortage: FileShortage,
        *,
        waits: bool,
    ) -> None:
        """Without ``waits``, a segment that is not made yet raises FilePending."""
        self._files = files
        self._clock = clock
        self._allocation = allocation
        self._shortage = shortage
        self._busy_after_ms = config.os_page_cache_busy_time_out_mills
        """Puts are rejected while one has waited for longer."""
        self._waits = waits
        self.is_awaited = False
        """Whether a put waits for the segment while it holds the put lock."""
        self._since: float | None = None
        self._since_without_lock: float | None = None

    @property
    def waiting_ms(self) -> float:
        """Time that a put has waited for the segment; 0 when none does."""
        since = self._since_without_lock if self._since is None else self._since
        return 0.0 if since is None else (self._clock.monotonic() - since) * 1000

    @property
    def is_made(self) -> bool:
        """Whether the segment is made already."""
        last = self._files.last
        offset = 0 if last is None else last.end_offset
        return self._allocation is not None and self._allocation.has(offset)

    @property
    def refusal(self) -> PutRefusal | None:
        """Why puts that need the segment are rejected: one has waited for it for too long."""
        waited_ms = self.waiting_ms
        if waited_ms <= self._busy_after_ms:
            return None
        detail = f"a put has waited {waited_ms:.0f} ms for a segment; the disk is busy, try later"
        return PutRefusal(Lack.TIME.value, detail)

    def check_busy(self) -> None:
        """Raise PageCacheBusy if a put has waited for too long."""
        if (refusal := self.refusal) is not None:
            raise PageCacheBusy(refusal.detail)

    def get(self, offset: int) -> MappedFile:
        """Return the segment that begins at ``offset``.

        Raises SegmentCreationFailed, FilePending, PageCacheBusy.
        """
        if self._allocation is not None:
            self._allocation.request(self._files, offset, offset + self._files.file_size)
            if not self._waits and not self._allocation.is_settled(offset):
                self.check_busy()
                wait = partial(self._wait_without_lock, self._allocation, offset)
                raise FilePending(self._files.path_of(offset), wait)
        self._since, self.is_awaited = self._clock.monotonic(), True
        try:
            if self._allocation is None:
                return self._files.create(offset)
            return self._allocation.take(offset, SEGMENT_WAIT_S)
        except OSError as error:
            raise segment_failure(offset, error, self._files.file_size) from error
        except SegmentCreationFailed as error:
            self._note_shortage(offset, error)
            raise
        finally:
            self._since, self.is_awaited = None, False

    def _wait_without_lock(self, allocation: SegmentSource, offset: int) -> None:
        self._since_without_lock = since = self._clock.monotonic()
        try:
            allocation.wait(offset, SEGMENT_WAIT_S)
        except SegmentCreationFailed as error:
            self._note_shortage(offset, error)
            raise
        finally:
            self._since_without_lock = None
            waited_s = self._clock.monotonic() - since
            if waited_s > LONG_PUT_S:
                _log.warning(
                    "a put waited %d ms for the segment at offset %d; others that need it waited "
                    "too (the disk is slow)",
                    *(waited_s * 1000, offset),
                )

    def _note_shortage(self, offset: int, error: SegmentCreationFailed) -> None:
        if self._allocation is not None:
            retry = partial(self._allocation.retry, self._files, offset)
            self._shortage.begin(error, retry, offset)


def segment_failure(offset: int, error: OSError, needed: int) -> SegmentCreationFailed:
    """Build the error of a put whose segment cannot be created; ``needed`` is in bytes."""
    return file_failure(f"segment {offset}", error, needed)
