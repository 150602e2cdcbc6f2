"""Which shards own unique keys and ordering keys (``store/mqstore/key-owners.json``).

The first shard of the list decides it; all others copy its record. The record outlives the process:
a shard that went back to an earlier one would store a message again that another shard has.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from mqstore.storage.metadata import sealed_json
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import replace_file

log = logging.getLogger(__name__)


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class FormerOwners(_Record):
    """Shards that owned keys until ``ended_ms``, in milliseconds since the epoch."""

    shards: tuple[int, ...]
    ended_ms: int


class KeyOwners(_Record):
    """The shards that own keys, and those that owned them before, the oldest first."""

    version: int
    """Grows with each change; the time of the change where the clock has not gone back."""
    shards: tuple[int, ...]
    former: tuple[FormerOwners, ...] = ()
    released: dict[int, int] = {}
    """Shards that were removed, or that an administrator took keys from, with the start of their
    process then; 0 if it is unknown. They get keys again once a later process is ready."""


class KeyOwnersFile:
    """The record of one store. One thread at a time may change it."""

    def __init__(self, path: Path, seams: Seams) -> None:
        """Load the record; one that cannot be read is copied from another shard again."""
        self._path = path
        self._seams = seams
        self.current: KeyOwners | None = None
        try:
            self.current = read(seams.files, path)
        except (OSError, ValueError) as error:
            log.warning("which shards own keys cannot be read: %s", error)

    def put(self, record: KeyOwners) -> None:
        """Replace the record; durable at return. Raises OSError."""
        text = record.model_dump_json(by_alias=True)
        replace_file(self._seams.files, self._path, sealed_json.seal(text))
        self.current = record


def read(files: FileSystem, path: Path) -> KeyOwners | None:
    """Read a file; None without one. Raises ValueError, OSError."""
    if files.stat(path) is None:
        return None
    return KeyOwners.model_validate_json(sealed_json.unseal(files.read(path)))
