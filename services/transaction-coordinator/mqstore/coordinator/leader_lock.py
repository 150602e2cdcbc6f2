"""Which of a machine's coordinators leads: whoever holds a file's lock.

Only a choice of who tries: what keeps an old leader out is the fence of store-writer.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LeaderLock:
    """An exclusive lock on a file, released with the process. Used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def why_not(self) -> str | None:
        """Take the lock, if it is free; None when this process leads."""
        if self._descriptor is not None:
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            return f"{self._path} cannot be opened ({error}); set leaderLock"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return f"another coordinator leads (it holds {self._path})"
        self._descriptor = descriptor
        return None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
