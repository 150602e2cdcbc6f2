"""The write pause: an administrator stopped puts (``store/mqstore/write-pause.json``).

It outlives the process, since a pod may be restarted at any time. The file is sealed by a checksum,
and exists only during a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import remove_file

UNREADABLE: Final = "write-pause.json cannot be read; pause again, or let writes go on"

log = logging.getLogger(__name__)


class Pause(StrictValue):
    """The reason of a pause, and its start in milliseconds since the epoch."""

    reason: str
    since_ms: int


class WritePause:
    """The pause of one store.

    Any thread may read it, one at a time may change it; a change is durable at return.
    """

    def __init__(self, path: Path, seams: Seams) -> None:
        """Load the file; while it cannot be read, writes stay paused."""
        self.path = path
        self._seams = seams
        self.on_change: Callable[[], None] = lambda: None
        """Called after a pause began, changed or ended."""
        self.current: Pause | None = self._load()

    def begin(self, reason: str) -> Pause:
        """Pause, or change the reason. Raises OSError."""
        since = self._seams.clock.now_ms() if self.current is None else self.current.since_ms
        pause = Pause(reason=reason, since_ms=since)
        sealed_json.write(self._seams.files, self.path, pause)
        self.current = pause
        self.on_change()
        return pause

    def end(self) -> None:
        """End the pause, also one whose write failed half way. Raises OSError."""
        remove_file(self._seams.files, self.path)
        self.current = None
        self.on_change()

    def reload(self) -> None:
        """Read the file again, which a copy of a leader's has replaced."""
        self.current = self._load()

    def _load(self) -> Pause | None:
        try:
            return read(self._seams.files, self.path)
        except (OSError, ValueError) as error:
            log.error("whether writes are paused cannot be read, so they are: %s", error)
            return Pause(reason=UNREADABLE, since_ms=self._seams.clock.now_ms())


def read(files: FileSystem, path: Path) -> Pause | None:
    """Read a file; None without one. Raises ValueError, OSError."""
    return sealed_json.read(files, path, Pause)
