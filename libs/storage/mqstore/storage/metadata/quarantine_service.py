"""The quarantine of an open store: what it holds, and the removal of what is no longer needed.

Index files go to quarantine after each unclean end and are made again from the log. Once the index
is complete they are removed by themselves. All else stays until an operator removes it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from threading import Lock
from typing import Final

from mqstore.storage.errors import QuarantineEntryUnknown
from mqstore.storage.metadata.quarantine import Quarantine, QuarantineEntry

LOOK_S: Final = 10.0
"""Seconds between two looks at whether the index is complete."""
_INDEX: Final = "index/"

log = logging.getLogger(__name__)


class QuarantineService:
    """A ``BackgroundService``. Every method may be called from any thread."""

    name = "quarantine"

    def __init__(self, quarantine: Quarantine, index_complete: Callable[[], bool]) -> None:
        self._quarantine = quarantine
        self._index_complete = index_complete
        self._lock = Lock()

    def step(self, now: float) -> float:
        """Remove index files that were made again. Raises OSError."""
        if not self._index_complete():
            return now + LOOK_S
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
