"""Carrying out a recovery plan: first into quarantine, then onto the files, then to the disk.

Each action may be interrupted and done again: the next plan finds what is left to do, and what was
quarantined before is found there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqstore.storage._kernel import is_zero
from mqstore.storage.codec.record import encode_into, write_blank
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.own.block_files import BlockFiles
from mqstore.storage.own.quarantine import TOMBSTONE_REASON, Quarantine
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.recovery.report import (
    CloseSegment,
    CutTail,
    ExtendSegment,
    PlaceTombstone,
    RecoveryPlan,
    RefitQueueFile,
    RemoveSegment,
    RewriteRange,
    SetQueuesAside,
    TruncateQueues,
)
from mqstore.storage.recovery.tombstones import compose, version_of
from mqstore.storage.recovery.view import find_segments
from mqstore.storage.seams import FileSystem, MappedBytes
from mqstore.storage.system.sparse import data_chunks

if TYPE_CHECKING:
    from mqstore.storage.derived.consume_queues import ConsumeQueues

_CHUNK: Final = 1 << 20
_REWRITE_CHUNK: Final = 256 << 10
"""Bytes rewritten at a time; between them holes are passed over."""
_ZEROS: Final = bytes(_CHUNK)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Applier:
    """Carries out plans on one store. Only for the process that holds its lock."""

    files: FileSystem
    paths: StorePaths
    config: StoreConfig
    store_format: StoreFormat
    quarantine: Quarantine
    blocks: BlockFiles
    durable: bool = True
    """False on an overlay: there is no disk that the rewritten bytes could reach."""
    resumes: bool = False
    """Whether the recovery before was cut off: what it dropped may be gone from memory only."""

    def apply_to_log(self, plan: RecoveryPlan) -> list[str]:
        """Everything that concerns the log's own files; names of quarantine entries.

        At return all bytes of the log from ``plan.start`` on are on disk. OSError when the disk
        refuses: the store must then not open.
        """
        if plan.read_only is not None:
            return []
        self._drop_block_checksums(plan)
        kept = [name for action in plan.actions for name in self._log_action(action)]
        if self.resumes:
            self._rewrite(
                plan.max_offset, plan.max_offset + self.config.mapped_file_size_commit_log
            )
        self._sync_directories(plan)
        return kept

    def apply_to_queue_files(self, plan: RecoveryPlan) -> list[str]:
        """Make queue files loadable, before they are loaded; names of quarantine entries."""
        if plan.read_only is not None:
            return []
        return [self._refit(a) for a in plan.actions if isinstance(a, RefitQueueFile)]

    def apply_to_queues(self, plan: RecoveryPlan, queues: ConsumeQueues) -> list[str]:
        """Drop the queue entries that the plan does not trust; names of quarantine entries."""
        if plan.read_only is not None:
            return []
        kept: list[str] = []
        for action in plan.actions:
            if isinstance(action, TruncateQueues):
                kept += self._truncate_queues(action.offset, plan.max_offset, queues)
                self._store_queues_again(plan, queues)
            elif isinstance(action, SetQueuesAside):
                kept += self._set_queues_aside(action.reason, queues)
        return kept

    def _drop_block_checksums(self, plan: RecoveryPlan) -> None:
        """Of all that is about to change, and of what is no part of the log any more."""
        self.blocks.drop(0, plan.min_offset)
        self.blocks.drop(plan.max_offset)
        for action in plan.actions:
            if isinstance(action, PlaceTombstone | CloseSegment):
                self.blocks.drop(action.offset, action.offset + action.length)

    def _log_action(self, action: object) -> Iterator[str]:
        match action:
            case ExtendSegment():
                path = self.paths.commit_log / action.name
                reason = f"{action.length} bytes where {action.size} are due"
                yield self.quarantine.keep_file(path, reason).name
                self.files.extend(path, action.size)
            case CutTail():
                path = self.paths.commit_log / action.segment
                yield self._keep(path, action.position, action.length, action.reason)
                self._zero(path, action.position, action.length)
            case RemoveSegment():
                path = self.paths.commit_log / action.name
                if action.length:
                    yield self._keep(path, 0, action.length, action.reason)
                self.files.unlink(path)
                self.files.sync_directory(path.parent)
            case PlaceTombstone():
                yield self._replace(action.offset, action.length, action)
            case CloseSegment():
                yield self._replace(action.offset, action.length, None)
            case RewriteRange():
                self._rewrite(action.offset, action.offset + action.length)
            case _:
                return

    def _keep(self, path: Path, position: int, length: int, reason: str) -> str:
        log.warning(
            "cutting %d bytes of %s from byte %d on: %s", length, path.name, position, reason
        )
        return self.quarantine.keep_range(path, position, length, reason).name

    def _replace(self, offset: int, length: int, found: PlaceTombstone | None) -> str:
        """Put a tombstone over a stretch, or without ``found`` a blank record."""
        size = self.config.mapped_file_size_commit_log
        position = offset % size
        path = self.paths.commit_log / segment_name(offset - position)
        kind = TOMBSTONE_REASON if found is not None else "a blank record"
        log.warning("offset %d: %s for %d unreadable bytes", offset, kind, length)
        kept = self.quarantine.keep_range(path, position, length, kind)
        self.files.reserve(path, position, length)
        with self._writable(path) as mapped:
            part = mapped.view[position : position + length]
            part[:] = self._blank(length) if found is None else self._tombstone(found, part)
            mapped.sync()
        return kept.name

    def _blank(self, length: int) -> bytearray:
        record = bytearray(length)
        write_blank(record, 0, length)
        return record

    def _tombstone(self, found: PlaceTombstone, original: memoryview) -> bytearray:
        record = bytearray(found.length)
        message = compose(found, original, self.store_format)
        encode_into(
            record,
            0,
            message,
            version=version_of(message.topic),
            queue_offset=found.queue_offset,
            physical_offset=found.offset,
            store_timestamp_ms=found.store_timestamp_ms,
        )
        return record

    def _refit(self, action: RefitQueueFile) -> str:
        path = self.paths.consume_queue / action.topic / str(action.queue_id) / action.name
        reason = f"{action.length} bytes where {action.size} are due"
        kept = self.quarantine.keep_file(path, reason)
        staged = self.paths.queue_staging / f"refit-{action.name}"
        if self.files.stat(staged) is not None:
            self.files.unlink(staged)
        whole = min(action.length, action.size)
        self.files.copy(path, staged, 0, whole - whole % QUEUE_ENTRY_SIZE)
        self.files.extend(staged, action.size)
        self.files.rename(staged, path)
        self.files.sync_directory(path.parent)
        return kept.name

    def _zero(self, path: Path, position: int, length: int) -> None:
        with self._writable(path) as mapped:
            for start, stop in _chunks(position, position + length):
                if not is_zero(mapped.view[start:stop]):
                    mapped.view[start:stop] = _ZEROS[: stop - start]
            mapped.sync()

    def _rewrite(self, start: int, end: int) -> None:
        """Make pages dirty that a failed sync may have left clean in memory and not on disk."""
        if not self.durable:
            return
        for segment in find_segments(
            self.files, self.paths, self.config.mapped_file_size_commit_log
        ).usable:
            low, high = max(start, segment.base), min(end, segment.end)
            if low < high:
                self._store_again(segment.path, low - segment.base, high - segment.base)

    def _store_again(self, path: Path, low: int, high: int) -> None:
        """The bytes are what they were, so they are no newer: retention goes by the file's age."""
        before = self.files.stat(path)
        next_data = partial(self.files.next_data, path)
        with self._writable(path) as mapped:
            for first, last in data_chunks(low, high, next_data, _REWRITE_CHUNK):
                # Part of it may be a hole: a store into that on a full disk kills the process.
                self.files.reserve(path, first, last - first)
                mapped.rewrite(first, last - first)
            mapped.sync()
        if before is not None:
            self.files.set_modified(path, before.modified_ms)

    def _sync_directories(self, plan: RecoveryPlan) -> None:
        if self.durable and self.files.stat(self.paths.commit_log) is not None and plan.actions:
            self.files.sync_directory(self.paths.commit_log)
            self.files.sync_directory(self.paths.commit_log.parent)

    @contextmanager
    def _writable(self, path: Path) -> Iterator[MappedBytes]:
        mapped = self.files.map(path, writable=True)
        try:
            yield mapped
        finally:
            mapped.unmap()

    def _truncate_queues(self, offset: int, end: int, queues: ConsumeQueues) -> list[str]:
        kept: list[str] = []
        for queue in queues.all():
            beyond = queue.tail_after(end)
            for gone in beyond:
                reason = f"entries of records at or above {end}, the log's end"
                kept.append(
                    self.quarantine.keep_range(gone.path, gone.offset, gone.length, reason).name
                )
            queue.truncate_after(min(offset, end))
            if queue.ext is not None:
                queue.ext.trim()
            # Else they come back after the next power cut, and name other records.
            if self.resumes and self.durable:
                queue.flush_end()
            elif beyond:
                queue.flush()
        return kept

    def _store_queues_again(self, plan: RecoveryPlan, queues: ConsumeQueues) -> None:
        """As ``_rewrite``, for the queue entries that nobody knows to be on disk."""
        if not self.durable:
            return
        start = plan.dispatch_from if plan.dispatch_from > plan.min_offset else 0
        for queue in queues.all():
            queue.store_again(start)

    def _set_queues_aside(self, reason: str, queues: ConsumeQueues) -> list[str]:
        kept: list[str] = []
        for queue in queues.all():
            kept += [self.quarantine.keep_file(f.path, reason).name for f in queue.files.files]
            queues.destroy(queue.topic, queue.queue_id)
        return kept


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for position in range(start, end, _CHUNK):
        yield position, min(position + _CHUNK, end)
