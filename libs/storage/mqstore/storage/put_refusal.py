"""``PutRefusal``: why the next put would be rejected, as the put path itself decides it.

Readiness, metrics, events, retention's plan and commands show this value.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from mqstore.storage.errors import (
    Lack,
    SegmentCreationFailed,
    StorageError,
    StoreNotWritable,
)

ROOM_REASONS: Final = frozenset({"disk-full", Lack.NO_ROOM.value})
"""Reasons that more room on the volume would end."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True, slots=True)
class PutRefusal:
    """Why puts are rejected: a stable ``reason``, a text for operators, and the figures."""

    reason: str
    """closing, read-only, follower, failed, disk-full, paused, or a ``Lack``."""
    detail: str
    figures: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def is_for_room(self) -> bool:
        """Whether more room on the volume would end it."""
        return self.reason in ROOM_REASONS

    @classmethod
    def of(cls, error: Exception) -> PutRefusal:
        """The refusal for an error that puts raise."""
        if isinstance(error, SegmentCreationFailed):
            return cls(error.lack.value, str(error), error.numbers)
        reason = error.reason if isinstance(error, StoreNotWritable) else "failed"
        return cls(reason, str(error), getattr(error, "numbers", {}))


def file_failure(what: str, error: OSError, needed: int | None = None) -> SegmentCreationFailed:
    """Build the error of a put whose file cannot be created: the cause, and what to do."""
    if error.errno in _NO_ROOM:
        lack, todo = Lack.NO_ROOM, "make room on its volume"
    elif error.errno in _NO_FILES:
        lack, todo = Lack.TOO_MANY_FILES, "raise the limit of open files of the process (ulimit -n)"
    else:
        lack, todo = Lack.DISK_ERROR, "look at the disk and its mount; it is tried again"
    numbers = {} if needed is None else {"neededBytes": needed}
    return SegmentCreationFailed(f"{what} cannot be made ({error}); {todo}", lack, numbers)


class FileShortage:
    """The last failure of a put to get a file, until the file exists. Thread-safe.

    It keeps values only: the traceback of an error would keep maps of deleted segments, and with
    them the room that the put waits for.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """``on_change`` is called, by any thread, when a put begins to lack something."""
        self._on_change = on_change
        self._lock = Lock()
        self._refusal: PutRefusal | None = None
        self._offset = 0
        self._retry: Callable[[], bool] = lambda: True

    @property
    def refusal(self) -> PutRefusal | None:
        """The refusal of puts, or None."""
        return self._refusal

    def begin(self, error: StorageError, retry: Callable[[], bool], offset: int = 0) -> None:
        """Note that a put was rejected for lack of a file, or of room in it; ``offset`` is that at
        which a segment begins.

        ``retry`` tries again and returns whether the file exists; it raises SegmentCreationFailed
        on another failure.
        """
        if not isinstance(error, SegmentCreationFailed):
            return
        is_late = error.lack is Lack.TIME
        with self._lock:
            if is_late and self._refusal is not None:
                return
            self._refusal, self._offset, self._retry = PutRefusal.of(error), offset, retry
        if not is_late:  # more room would not help
            self._on_change()

    def end(self, offset: int) -> None:
        """Clear the failure: a put got room in the segment that begins at ``offset``.

        One to get a later segment stays: messages that do not fit into this one are rejected.
        """
        if self._refusal is not None:
            with self._lock:
                if self._offset <= offset:
                    self._refusal = None

    def retry(self) -> None:
        """Try again to get the file. May block for a moment."""
        with self._lock:
            before, retry = self._refusal, self._retry
        if before is None:
            return
        try:
            now = None if retry() else before
        except SegmentCreationFailed as error:
            now = PutRefusal.of(error)
        with self._lock:
            if self._refusal is before:
                self._refusal = now
