"""Ends a store whose ``lock`` was deleted or replaced: another process may have opened it."""

from __future__ import annotations

from typing import Final

from mqstore.storage.metadata.store_lock import StoreLock

INTERVAL_S: Final = 1.0
"""Longest time that a writer continues after its lock file was deleted."""


class LockWatch:
    """A ``BackgroundService``. The lock is checked too before the set of log files changes."""

    name = "lock-watch"

    def __init__(self, lock: StoreLock) -> None:
        self._lock = lock

    def step(self, now: float) -> float:
        """Check the lock. Raises StoreFailed."""
        self._lock.require()
        return now + INTERVAL_S
