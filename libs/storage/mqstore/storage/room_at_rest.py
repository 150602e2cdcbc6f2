"""Making room on a full volume for a store that is about to be opened for writing.

An opening writes small files, queue entries and index files before retention runs, and a volume
without a free block refuses them. So the oldest segment goes first, where retention would delete
it: retention's own plan, made over a copy-on-write view of the store, decides.

Called from store-writer before each opening.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import format_file, log_owner, store_lock
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.options import StoreOptions
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery.report import RecoveryPlan, RemoveSegment, StartReason
from mqstore.storage.retention.journal import forced_deletion_figures
from mqstore.storage.retention.plan import PlannedSegment, RetentionPlan
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import remove_file

ROOM_TO_OPEN: Final = 64 << 20
"""Free bytes on the log's volume with which an opening is simply tried: it writes some files of a
few KiB, queue files (6 MB each by default) and reserved blocks; the index can wait."""

_PROVEN: Final = frozenset({StartReason.WATERMARK, StartReason.CLEAN_CLOSE})
"""Recovery begins where our own last run had the log on disk."""

log = logging.getLogger(__name__)


def make_room(
    root: Path, config: StoreConfig, seams: Seams, options: StoreOptions
) -> Mapping[str, int | float | str | None] | None:
    """Delete what an opening would delete first: segments that were only made ahead, else the
    oldest segment, where the volume of the log lacks ``ROOM_TO_OPEN`` and retention lets it go.

    Returns the figures of the deletion, as of an event ``forced-deletion``, or None where nothing
    was deleted. Arguments as of ``MessageStore.open``; the store's lock is held meanwhile. What is
    deleted is noted durably first. Raises as ``MessageStore.open``, and OSError.
    """
    files = seams.files
    found = format_file.load(files, StorePaths(root))
    if found is None:
        return None
    setting = options.store_path_commit_log or found.store_path_commit_log
    paths = log_owner.locate(files, files.real_path(root), setting)
    if not files.list(paths.commit_log) or files.usage(paths.commit_log).free >= ROOM_TO_OPEN:
        return None
    lock = store_lock.take(files, paths, create=False)
    try:
        log_owner.hold(files, paths, found, lock)
        recovery, retention = _plan(root, config, seams, options)
        if recovery.read_only is not None or not retention.volumes:
            return None
        if spares := _spares(recovery):
            return _remove_spares(files, paths, spares, retention)
        first = retention.next
        if first is None or not _may_go(first, recovery):
            return None
        _remove_first(files, paths, found, first)
        return forced_deletion_figures(
            retention, first.name, first.size, retention.made_ms - first.modified_ms
        )
    finally:
        lock.release()


def _plan(
    root: Path, config: StoreConfig, seams: Seams, options: StoreOptions
) -> tuple[RecoveryPlan, RetentionPlan]:
    """The plans of recovery and retention for the present store; changes nothing."""
    looks = replace(options, create=False, in_place=False, services=False, on_failure=None)
    with MessageStore.open(root, config, seams, looks) as store:
        plans = store.recovery.plan, store.retention.plan(1)
    del store
    gc.collect()  # its parts refer to each other, and their maps would keep deleted blocks in use
    return plans


def _spares(recovery: RecoveryPlan) -> list[RemoveSegment]:
    """Segments that hold nothing."""
    removals = [each for each in recovery.actions if isinstance(each, RemoveSegment)]
    return [each for each in removals if each.length == 0]


def _may_go(first: PlannedSegment, recovery: RecoveryPlan) -> bool:
    """Whether the segment and its queue entries are known to be on disk: nothing could make the
    entries again."""
    end = first.offset + first.size
    return recovery.start_reason in _PROVEN and end <= min(recovery.start, recovery.dispatch_from)


def _remove_spares(
    files: FileSystem, paths: StorePaths, spares: list[RemoveSegment], retention: RetentionPlan
) -> Mapping[str, int | float | str | None]:
    size = 0
    for spare in spares:
        path = paths.commit_log / spare.name
        stat = files.stat(path)
        size += 0 if stat is None else stat.size
        files.unlink(path)
    files.sync_directory(paths.commit_log)
    log.warning("segments made ahead were deleted to open the store: %d bytes", size)
    return forced_deletion_figures(retention, None, size, None)


def _remove_first(
    files: FileSystem, paths: StorePaths, found: FormatFile, first: PlannedSegment
) -> None:
    """In the order of ``CommitLog.remove_first``, so that the next opening misses nothing."""
    end = first.offset + first.size
    remove_file(files, paths.manifest)  # it names the segment
    state = StatePage.reopen(files, paths.state)
    try:
        state.note_expiry(end)
        state.set_min(max(state.min_offset, end))
    finally:
        state.close()
    files.unlink(paths.commit_log / first.name)
    files.sync_directory(paths.commit_log)
    BlockFiles(files, paths.blocks, first.size, found.store_id).drop(0, end)
    log.warning("segment %s was deleted to open the store: %s", first.name, first.why)
