"""What the store's files held at a moment, for the next opening to trust or to do without.

Two of them, of one form: ``clean-close.json``, written when the store closes and removed when it
opens (while it still matches, nothing is scanned), and ``running.json``, written from time to time
after the queues were synced (how far they are surely complete, and how many entries each has).
A manifest counts only while ``lock`` was not modified since: a broker writes it at each start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from mqstore.storage.layout import BLANK_RECORD_SIZE
from mqstore.storage.own import sealed_json
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import replace_file

if TYPE_CHECKING:
    from mqstore.storage.recovery.view import StoreView

MAGIC: Final = "mqstore-manifest"
VERSION: Final = 1


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class QueueState(_Value):
    """One queue's entries: ``first`` is where its first file begins, ``end`` the next to come."""

    topic: str
    queue_id: int
    first: int
    end: int


class LogState(_Value):
    """The log at a clean close."""

    min_offset: int
    max_offset: int
    segments: tuple[str, ...]
    last_store_timestamp_ms: int
    checkpoint_crc32c: int
    index_files: tuple[str, ...]


class Manifest(_Value):
    """See the module."""

    magic: Literal["mqstore-manifest"] = MAGIC
    version: int = VERSION
    store_id: str
    epoch: int
    lock_modified_ms: int | None
    derived_offset: int
    """Queue entries of everything below are in place and on disk."""
    queues: tuple[QueueState, ...]
    log: LogState | None = None
    """Only in ``clean-close.json``."""

    @property
    def entries(self) -> dict[tuple[str, int], int]:
        """How many entries each queue has."""
        return {(queue.topic, queue.queue_id): queue.end for queue in self.queues}


def save(files: FileSystem, path: Path, manifest: Manifest) -> None:
    """Replace a manifest durably. Raises OSError."""
    replace_file(files, path, sealed_json.seal(manifest.model_dump_json(by_alias=True)))


def load(files: FileSystem, path: Path) -> Manifest | None:
    """None when there is none, or none that can be read: recovery is then only longer."""
    if files.stat(path) is None:
        return None
    try:
        manifest = Manifest.model_validate_json(sealed_json.unseal(files.read(path)))
    except ValueError:
        return None
    return manifest if manifest.version == VERSION else None


def still_matches(manifest: Manifest, view: StoreView) -> bool:
    """Whether the files are as the clean close left them."""
    log = manifest.log
    segments = view.segments
    if log is None or view.abort or segments.misfits or segments.empty:
        return False
    names = tuple(segment.path.name for segment in segments.usable)
    index_files = tuple(name for name in view.files.list(view.paths.index) if name.isdigit())
    return (
        names == log.segments
        and index_files == log.index_files
        and checkpoint_checksum(view.files, view.paths.checkpoint) == log.checkpoint_crc32c
        and _ends_there(view, log.max_offset)
        and all(_queue_matches(view, queue) for queue in manifest.queues)
        and not any(True for _ in view.queue_misfits())
    )


def checkpoint_checksum(files: FileSystem, path: Path) -> int:
    """CRC-32C of a small file; 0 when it is not there."""
    return 0 if files.stat(path) is None else crc32c(files.read(path))


def _ends_there(view: StoreView, end: int) -> bool:
    size = view.config.mapped_file_size_commit_log
    if any(segment.length != size for segment in view.segments.usable):
        return False
    for segment in view.segments.usable:
        if segment.base <= end < segment.end:
            with view.mapped(segment) as data:
                position = end - segment.base
                return not any(data[position : position + BLANK_RECORD_SIZE])
    return not view.segments.usable or view.segments.usable[-1].end == end


def _queue_matches(view: StoreView, state: QueueState) -> bool:
    queue = view.queue(state.topic, state.queue_id)
    try:
        return queue.first_index == state.first and queue.holds(state.end)
    finally:
        queue.close()
