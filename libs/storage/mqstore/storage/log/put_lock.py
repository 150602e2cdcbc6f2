"""The put lock, which orders appends to the log. Called from ``commit_log``."""

from __future__ import annotations

import logging
import threading
from typing import Final

from mqstore.storage._kernel import LogEnd
from mqstore.storage.log.next_segment import LONG_PUT_S
from mqstore.storage.seams import Clock

_log: Final = logging.getLogger(__name__)


class PutLock:
    """A lock: while it is held, the kernel's ``LogEnd.put``, which takes no lock, rejects puts."""

    def __init__(self, end: LogEnd, clock: Clock) -> None:
        self._end = end
        self._clock = clock
        self._lock = threading.RLock()
        self._depth = 0
        self._since = 0.0
        self._begin = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._end.holders += 1
        self._depth += 1
        if self._depth == 1:
            self._since, self._begin = self._clock.monotonic(), self._end.max_offset

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        held_s = 0.0 if self._depth else self._clock.monotonic() - self._since
        begin, end = self._begin, self._end.max_offset
        self._end.holders -= 1
        self._lock.release()
        if held_s > LONG_PUT_S and end > begin:
            _log.warning(
                "a put held the lock of the log for %d ms: %d bytes at offset %d; other puts "
                "waited (the disk is slow, or made a file)",
                *(held_s * 1000, end - begin, begin),
            )
