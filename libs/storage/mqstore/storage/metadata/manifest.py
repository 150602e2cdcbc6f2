"""Manifests: the state of the store's files at one moment, for the next opening.

Two files have this form: ``clean-close.json``, written when the store closes and removed when it
opens (while it still matches, nothing is scanned), and ``running.json``, written from time to time
after the queues were synced (the offset up to which they are complete, and the number of entries of
each). A manifest counts only while ``lock`` was not modified since: a broker writes it at each
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from crc32c import crc32c
from pydantic import AfterValidator

from mqstore.storage._kernel import is_zero
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.topic_names import is_safe_path

MAGIC: Final = "mqstore-manifest"
VERSION: Final = 1
TAIL_SIZE: Final = 64 << 10
"""Maximum bytes of the log's end that the noted checksum covers: a record is rarely longer."""


def _safe_path(topic: str) -> str:
    if not is_safe_path(topic):
        raise ValueError(f"{topic[:100]!r} is no topic's directory")
    return topic


@dataclass(frozen=True, slots=True)
class QueueState:
    """The entries of one queue. No model: a store has thousands of them, of 80 bytes each."""

    __pydantic_config__ = Value.model_config

    topic: Annotated[str, AfterValidator(_safe_path)]
    queue_id: int
    first: int
    """The queue offset at which the first file begins."""
    end: int
    """The queue offset of the next entry."""

    @property
    def place(self) -> tuple[str, int]:
        """The topic and queue id, by which queues are known."""
        return self.topic, self.queue_id


class LogTail(Value):
    """The last non-zero bytes of the log, which differ between a log and its older copy."""

    end: int
    """Physical offset after them; up to the log's end zeros follow."""
    length: int
    crc32c: int


class LogState(Value):
    """The log at a clean close."""

    min_offset: int
    max_offset: int
    segments: tuple[str, ...]
    last_store_timestamp_ms: int
    checkpoint_crc32c: int
    index_files: tuple[str, ...]
    tail: LogTail | None = None
    """None for an empty log, and from a release that did not note it: then the state is not
    trusted."""


class Manifest(Value):
    """The state of a store's files. See the module."""

    magic: Literal["mqstore-manifest"] = MAGIC
    version: int = VERSION
    store_id: str
    epoch: int
    lock_modified_ms: int | None
    derived_offset: int
    """Physical offset below which all queue entries are on disk."""
    queues: tuple[QueueState, ...]
    index_offset: int = 0
    """Index files that end below this physical offset are on disk."""
    log: LogState | None = None
    """Only in ``clean-close.json``."""

    @property
    def entries(self) -> dict[tuple[str, int], int]:
        """The number of entries of each queue."""
        return {(queue.topic, queue.queue_id): queue.end for queue in self.queues}


class Manifests(NamedTuple):
    """Both manifests of a store as they are before an opening; None for one that is not readable.

    They have an entry for each queue, so an opening reads them once."""

    clean: Manifest | None
    running: Manifest | None


def load_both(files: FileSystem, paths: StorePaths) -> Manifests:
    """Load the clean-close and the running manifest."""
    return Manifests(load(files, paths.manifest), load(files, paths.running))


def save(files: FileSystem, path: Path, manifest: Manifest) -> None:
    """Replace a manifest durably. Raises OSError."""
    sealed_json.write(files, path, manifest)


def read(files: FileSystem, path: Path) -> Manifest | None:
    """Read a manifest; None without one. Raises ValueError, OSError."""
    found = sealed_json.read(files, path, Manifest)
    if found is not None and found.version != VERSION:
        raise ValueError(f"version {found.version}; {VERSION} is known")
    return found


def load(files: FileSystem, path: Path) -> Manifest | None:
    """Load a manifest; None without a readable one: recovery then only takes longer."""
    try:
        return read(files, path)
    except ValueError:
        return None


def checkpoint_checksum(files: FileSystem, path: Path) -> int:
    """CRC-32C of a small file; 0 without one."""
    return 0 if files.stat(path) is None else crc32c(files.read(path))


def tail_of(files: Sequence[tuple[int, memoryview]], end: int) -> LogTail | None:
    """Read the tail of a log that ends at ``end``; ``files``: each segment's offset and bytes."""
    for base, data in reversed(files):
        used = min(end - base, len(data))
        position = _last_nonzero(data, used) if used > 0 else 0
        if position:
            start = max(0, position - TAIL_SIZE)
            checksum = crc32c(data[start:position])
            return LogTail(end=base + position, length=position - start, crc32c=checksum)
    return None


def _last_nonzero(data: memoryview, stop: int) -> int:
    """The position after the last non-zero byte before ``stop``; 0 when all are zero."""
    for high in range(stop, 0, -TAIL_SIZE):
        low = max(0, high - TAIL_SIZE)
        if not is_zero(data[low:high]):
            return low + len(bytes(data[low:high]).rstrip(b"\0"))
    return 0
