"""Which shards own unique keys and ordering keys (``store/mqstore/key-owners.json``).

The first shard of the list decides it; all others copy its record. The record outlives the process:
a shard that went back to an earlier one would store a message again that another shard has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.seams import FileSystem, Seams

log = logging.getLogger(__name__)


class FormerOwners(Value):
    """Shards that owned keys until ``ended_ms``, in milliseconds since the epoch."""

    shards: tuple[int, ...]
    ended_ms: int


class KeyOwners(Value):
    """The shards that own keys, and those that owned them before, the oldest first."""

    version: int
    """Grows with each change; the time of the change where the clock has not gone back."""
    shards: tuple[int, ...]
    former: tuple[FormerOwners, ...] = ()
    released: dict[int, int] = Field(default_factory=dict)
    """Shards that were removed, or that an administrator took keys from, with the start of their
    process then; 0 if it is unknown. They get keys again once a later process is ready."""


class KeyOwnersFile:
    """The record of one store. One thread at a time may change it."""

    def __init__(self, path: Path, seams: Seams) -> None:
        """Load the record; one that cannot be read is copied from another shard again."""
        self._path = path
        self._seams = seams
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change, which is durable."""
        self.current: KeyOwners | None = None
        try:
            self.current = read(seams.files, path)
        except (OSError, ValueError) as error:
            log.warning("which shards own keys cannot be read: %s", error)

    def put(self, record: KeyOwners) -> None:
        """Replace the record; durable at return. Raises OSError."""
        sealed_json.write(self._seams.files, self._path, record)
        self.current = record
        self.on_change()


def read(files: FileSystem, path: Path) -> KeyOwners | None:
    """Read a file; None without one. Raises ValueError, OSError."""
    return sealed_json.read(files, path, KeyOwners)
