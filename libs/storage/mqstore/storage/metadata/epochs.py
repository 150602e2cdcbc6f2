"""The epochs of the log (``store/mqstore/epochs.json``): who led it from which offset on.

The file is sealed by a checksum. A store without it was never led with followers: its log is epoch
0. Followers copy the list of their leader.
"""

from __future__ import annotations

from threading import Lock

from mqstore.storage.errors import EpochNotNewer, StoreDamaged
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.log_history import NEVER_ELECTED, Epoch, begun
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem


class EpochFile(StrictValue):
    """The content of epochs.json."""

    log_id: str | None
    """See ``LogHistory``."""
    epochs: tuple[Epoch, ...]
    led: bool
    """Whether this store leads, or did before its bytes were compared with a later leader's."""


class Epochs:
    """The epochs of one store's log. Thread-safe; used by the process that holds the lock."""

    def __init__(self, files: FileSystem, paths: StorePaths, content: EpochFile) -> None:
        self._files = files
        self._paths = paths
        self._content = content
        self._lock = Lock()

    @classmethod
    def load(cls, files: FileSystem, paths: StorePaths, log_id: str | None) -> Epochs:
        """Read the file; without one the log has ``log_id`` and epoch 0. Raises StoreDamaged,
        OSError."""
        content = _read(files, paths)
        return cls(files, paths, content or EpochFile(log_id=log_id, epochs=(), led=False))

    @property
    def log_id(self) -> str | None:
        """See ``LogHistory``."""
        return self._content.log_id

    @property
    def entries(self) -> tuple[Epoch, ...]:
        """All epochs, the oldest first; at least one."""
        return self._content.epochs or NEVER_ELECTED

    @property
    def newest(self) -> int:
        """The number of the newest epoch; 0 before the first one was begun."""
        return self.entries[-1].number

    @property
    def is_compared(self) -> bool:
        """Whether there are epochs, by which a leader's log must be compared with this one."""
        return bool(self._content.epochs)

    @property
    def led(self) -> bool:
        """See ``EpochFile``."""
        return self._content.led

    def begin(self, number: int, start: int, log_start: int, store_id: str) -> None:
        """Begin an epoch at the log's end; durable at return.

        A log without an id gets that of this store. Raises EpochNotNewer, OSError.
        """
        with self._lock:
            if number <= self.newest:
                raise EpochNotNewer(
                    f"epoch {number} cannot begin: epoch {self.newest} has begun; the next one is "
                    f"{self.newest + 1} or later"
                )
            epochs = begun(self.entries, Epoch(number, start, store_id), log_start)
            self._save(EpochFile(log_id=self._content.log_id or store_id, epochs=epochs, led=True))

    def adopt(self, log_id: str | None, epochs: tuple[Epoch, ...]) -> None:
        """Take over a leader's epochs; durable at return. The log must have no bytes that the
        leader's lacks. Raises OSError."""
        with self._lock:
            content = EpochFile(log_id=log_id, epochs=epochs, led=False)
            if content != self._content:
                self._save(content)

    def _save(self, content: EpochFile) -> None:
        sealed_json.write(self._files, self._paths.epochs, content)
        self._content = content


def _read(files: FileSystem, paths: StorePaths) -> EpochFile | None:
    try:
        return sealed_json.read(files, paths.epochs, EpochFile)
    except ValueError as error:
        raise StoreDamaged(
            f"{paths.epochs} cannot be read ({sealed_json.why_unreadable(error)}): restore it "
            "from a copy, or remove it if the store has no followers"
        ) from error
