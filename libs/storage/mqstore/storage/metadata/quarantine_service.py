"""The quarantine of an open store: lists its entries, and removes those that are no longer needed.

Index files are quarantined after each unclean end and are made again from the log. Once the index
is complete this service removes them. All other entries stay until an operator removes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from typing import Final

from mqstore.storage.errors import QuarantineEntryUnknown
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.metadata.quarantine import Quarantine, QuarantineEntry

CHECK_INTERVAL_S: Final = 10.0
"""Seconds between two checks of whether the index is complete."""
_INDEX: Final = "index/"

log = bounded_log(__name__)


class QuarantineService:
    """A ``BackgroundService``. Thread-safe."""

    name = "quarantine"

    def __init__(self, quarantine: Quarantine, index_complete: Callable[[], bool]) -> None:
        self._quarantine = quarantine
        self._index_complete = index_complete
        self._lock = Lock()

    def step(self, now: float) -> float:
        """Remove index files that were made again. Raises OSError."""
        if not self._index_complete():
            return now + CHECK_INTERVAL_S
        with self._lock:
            for entry in self._quarantine.entries():
                if entry.source.startswith(_INDEX):
                    self._quarantine.release(entry.name)
                    log.info("%s was removed from quarantine: its index is complete", entry.source)
        return math.inf

    def entries(self) -> list[QuarantineEntry]:
        """All complete entries, by name. Raises OSError."""
        with self._lock:
            return self._quarantine.entries()

    def remove(self, name: str) -> None:
        """Remove one entry and its bytes. Raises QuarantineEntryUnknown, OSError."""
        with self._lock:
            if all(entry.name != name for entry in self._quarantine.entries()):
                raise QuarantineEntryUnknown(
                    f"there is no entry {name}; GET /v1/store/quarantine lists all"
                )
            self._quarantine.release(name)
        log.warning("%s was removed from quarantine on request", name)
