"""Replaces old index files by new ones so that a crash leaves one complete set.

New files are made in ``store/mqstore/index-rebuild/``, synced, and named with their CRC-32C by a
journal (``index-rebuild.json``). From then on the change is rolled forward, by the next opening
too. First the new files get their names in ``index/``, which sort after all old ones, so that
RocketMQ continues with the newest. Then the checkpoint's index time moves, since a broker drops
newer index files. Then the old files are removed. Meanwhile readers see both sets, and drop
duplicates.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from crc32c import crc32c

from mqstore.storage.errors import StagingDamaged
from mqstore.storage.layout import StoreFormat
from mqstore.storage.metadata import format_file, sealed_json
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import remove_file, replace_file
from mqstore.storage.system.open_map import open_map
from mqstore.storage.tables.checkpoint import Checkpoint

_CHUNK: Final = 64 << 20

log = logging.getLogger(__name__)


class StagedFile(StrictValue):
    """A file that was made and is on disk."""

    staged: str
    """Its name before it is published."""
    size: int
    used: int
    """Bytes from its begin that are covered by the checksum; zeros follow."""
    crc32c: int


class Journal(StrictValue):
    """The replacement to perform, once the journal is on disk."""

    store_id: str
    hash_slots: int
    index_num: int
    files: tuple[StagedFile, ...]
    """In the order of the log."""
    names: tuple[str, ...]
    """The files' names in ``index/``."""
    replaced: tuple[str, ...]
    index_ms: int
    """Store time up to which the new files are on disk."""


def stage(files: FileSystem, path: Path, used: int) -> StagedFile:
    """Sync a new file, and compute its checksum. Raises OSError."""
    with open_map(files, path, writable=True) as mapped:
        mapped.sync()
        checksum = _checksum(mapped.view[:used])
        return StagedFile(staged=path.name, size=len(mapped.view), used=used, crc32c=checksum)


def prepare(files: FileSystem, paths: StorePaths, journal: Journal) -> None:
    """Verify every staged file, then make the journal durable: from then on it must be completed.

    Raises StagingDamaged, OSError.
    """
    for each in journal.files:
        _verify(files, paths.index_staging / each.staged, each)
    files.sync_directory(paths.index_staging)
    sealed_json.write(files, paths.index_journal, journal)


def put_in_place(files: FileSystem, paths: StorePaths, journal: Journal) -> None:
    """Give the new files their names, beside the old ones; idempotent. Raises OSError."""
    files.make_directories(paths.index)
    for each, name in reversed(list(zip(journal.files, journal.names, strict=True))):
        source = paths.index_staging / each.staged
        if files.stat(source) is not None:
            files.rename(source, paths.index / name)
    files.sync_directory(paths.index)


def remove_replaced(
    files: FileSystem, paths: StorePaths, journal: Journal, checkpoint: Checkpoint
) -> None:
    """Complete the journal once the new files are in place. Raises OSError."""
    checkpoint.flush()
    for name in journal.replaced:
        if files.stat(paths.index / name) is not None:
            files.unlink(paths.index / name)
    files.sync_directory(paths.index)
    _note_sizes(files, paths, journal)
    remove_file(files, paths.index_lost)
    remove_file(files, paths.index_journal)
    discard(files, paths)


def roll_forward(seams: Seams, paths: StorePaths, store_format: StoreFormat) -> Journal | None:
    """Complete a journal, in a store that no other process has open; returns None without one.

    Raises OSError.
    """
    journal = _load(seams.files, paths)
    if journal is None:
        return None
    put_in_place(seams.files, paths, journal)
    checkpoint = Checkpoint.open(paths.checkpoint, store_format, seams)
    try:
        checkpoint.index_ms = journal.index_ms
        remove_replaced(seams.files, paths, journal, checkpoint)
    finally:
        checkpoint.close()
    return journal


def finish_at_opening(
    seams: Seams, paths: StorePaths, found: FormatFile | None, *, trusted: bool
) -> FormatFile | None:
    """Roll forward a rebuild's journal, or remove its leftovers; returns format.json as it then is.

    When a broker had the store since (not ``trusted``) nothing is rolled forward: the old and new
    files together are complete.
    """
    files = seams.files
    journal = _load(files, paths)
    if journal is None or found is None or not trusted or journal.store_id != found.store_id:
        if files.stat(paths.index_journal) is not None:
            remove_file(files, paths.index_journal)
        discard(files, paths)
        return found
    log.info("%d index files of a rebuild are published now", len(journal.files))
    remove_file(files, paths.manifest)  # a later close may have named files that are now removed
    roll_forward(seams, paths, found.rocketmq_format)
    return format_file.load(files, paths)


def discard(files: FileSystem, paths: StorePaths) -> None:
    """Remove staged files that are not published. Raises OSError."""
    for name in files.list(paths.index_staging):
        files.unlink(paths.index_staging / name)
    if files.stat(paths.index_staging) is not None:
        files.remove_directory(paths.index_staging)


def _load(files: FileSystem, paths: StorePaths) -> Journal | None:
    """Load the journal; None without one, or for one that cannot be read.

    It was written atomically, so an unreadable one was damaged later; then all old files are still
    there, or all new ones.
    """
    try:
        return sealed_json.read(files, paths.index_journal, Journal)
    except ValueError as error:
        log.error("the journal of an index rebuild cannot be read, and is dropped: %s", error)
        return None


def _verify(files: FileSystem, path: Path, due: StagedFile) -> None:
    stat = files.stat(path)
    if stat is None or stat.size != due.size:
        found = "is not there" if stat is None else f"has {stat.size} bytes, not {due.size}"
        raise StagingDamaged(f"{path} {found}; run the rebuild again")
    with open_map(files, path) as mapped:
        found_checksum = _checksum(mapped.view[: due.used])
    if found_checksum != due.crc32c:
        raise StagingDamaged(
            f"{path} is not what was written: its checksum is {found_checksum:08x}, not"
            f" {due.crc32c:08x}; look after the disk, then run the rebuild again"
        )


def _checksum(view: memoryview) -> int:
    found = 0
    for start in range(0, len(view), _CHUNK):
        found = crc32c(view[start : start + _CHUNK], found)
    return found


def _note_sizes(files: FileSystem, paths: StorePaths, journal: Journal) -> None:
    """Record the sizes in format.json, for the next opening."""
    found = format_file.load(files, paths)
    if found is None:
        return
    changed = {"max_hash_slot_num": journal.hash_slots, "max_index_num": journal.index_num}
    sizes = found.sizes.model_copy(update=changed)
    if sizes != found.sizes:
        content = found.model_copy(update={"sizes": sizes})
        replace_file(files, paths.format, format_file.text_of(content))


def index_names(files: FileSystem, paths: StorePaths) -> list[str]:
    """The names of all files that RocketMQ would load, sorted."""
    return [name for name in files.list(paths.index) if name.isascii() and name.isdigit()]
