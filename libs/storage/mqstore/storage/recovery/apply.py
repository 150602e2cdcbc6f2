"""Carries out a recovery plan: quarantines bytes, changes the files, then syncs them.

Each action may be interrupted and done again: the next plan finds the remaining work, and the
existing quarantine entries are found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqstore.storage._kernel import is_zero
from mqstore.storage.codec.record import encode_into, write_blank
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.quarantine import RESTORED_REASON, TOMBSTONE_REASON, Quarantine
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.recovery.report import (
    CloseSegment,
    CutTail,
    ExtendSegment,
    PlaceTombstone,
    RecoveryPlan,
    RefitQueueFile,
    RemoveSegment,
    Repair,
    RestoreBytes,
    RewriteRange,
    SetQueuesAside,
    TruncateQueues,
)
from mqstore.storage.recovery.tombstones import compose, version_of
from mqstore.storage.recovery.view import find_segments
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.open_map import open_map
from mqstore.storage.system.sparse import data_chunks

if TYPE_CHECKING:
    from mqstore.storage.queues.consume_queues import ConsumeQueues

_CHUNK: Final = 1 << 20
_REWRITE_CHUNK: Final = 256 << 10
"""Bytes rewritten at a time; holes between them are skipped."""
_ZEROS: Final = bytes(_CHUNK)

log = bounded_log(__name__)


@dataclass(slots=True)
class Applier:
    """Carries out plans on one store. Only for the process that holds its lock."""

    files: FileSystem
    paths: StorePaths
    config: StoreConfig
    store_format: StoreFormat
    quarantine: Quarantine
    blocks: BlockFiles
    changing: Callable[[], AbstractContextManager[None]]
    """Held around each change of bytes that readers may read (``StatePage.changing``)."""
    durable: bool = True
    """False on an overlay, which has no disk."""
    resumes: bool = False
    """Whether the previous recovery was interrupted: bytes that it dropped may be gone from memory
    only."""

    def apply_to_log(self, plan: RecoveryPlan) -> list[str]:
        """Carry out the actions on the log's own files; returns names of quarantine entries.

        Before the call, the bounds for readers were lowered to the plan's, and
        ``drop_block_checksums`` was called. At return all bytes of the log from ``plan.start`` on
        are on disk. Raises OSError when the disk fails: the store must then not open.
        """
        if plan.read_only is not None:
            return []
        kept = [name for action in plan.actions for name in self._log_action(action)]
        if self.resumes:
            self._rewrite(
                plan.max_offset, plan.max_offset + self.config.mapped_file_size_commit_log
            )
        self._sync_directories(plan)
        return kept

    def apply_to_queue_files(self, plan: RecoveryPlan) -> list[str]:
        """Repair the lengths of queue files, before they are loaded; returns names of quarantine
        entries."""
        if plan.read_only is not None:
            return []
        return [self._refit(a) for a in plan.actions if isinstance(a, RefitQueueFile)]

    def apply_to_queues(self, plan: RecoveryPlan, queues: ConsumeQueues) -> list[str]:
        """Drop the queue entries that the plan does not trust; returns names of quarantine
        entries."""
        if plan.read_only is not None:
            return []
        kept: list[str] = []
        for action in plan.actions:
            if isinstance(action, TruncateQueues):
                with self.changing():
                    kept += self._truncate_queues(action.offset, plan.max_offset, queues)
                self._mark_queues_dirty(plan, queues)
            elif isinstance(action, SetQueuesAside):
                with self.changing():
                    kept += self._set_queues_aside(action.reason, queues)
        return kept

    def drop_block_checksums(self, plan: RecoveryPlan) -> None:
        """Drop the checksums of the bytes that the plan changes or removes. Raises OSError."""
        if plan.read_only is not None:
            return
        self.blocks.drop(0, plan.min_offset)
        self.blocks.drop(plan.max_offset)
        for action in plan.actions:
            if isinstance(action, PlaceTombstone | CloseSegment):
                self._drop_for(action)

    def _drop_for(self, action: PlaceTombstone | CloseSegment) -> None:
        path, position = self._place(action.offset)
        with open_map(self.files, path) as mapped:
            self.blocks.drop_for_tombstone(
                mapped.view, action.offset - position, position, position + action.length
            )

    def prepare_repairs(self, actions: Sequence[Repair]) -> list[str]:
        """Quarantine the bytes that repairs are going to change, reserve their disk blocks, and
        drop their checksums; returns names of quarantine entries.

        The log itself is not changed. Raises OSError, also where the disk is full: nothing is lost,
        and the call may be repeated.
        """
        kept = []
        for action in actions:
            path, position = self._place(action.offset)
            self.files.reserve(path, position, action.length)
            reason = repair_reason(action)
            kept.append(self.quarantine.keep_range(path, position, action.length, reason).name)
            if not isinstance(action, RestoreBytes):
                self._drop_for(action)
        return kept

    def apply_repairs(self, actions: Sequence[Repair]) -> None:
        """Change the log as ``prepare_repairs`` prepared; durable at return.

        Raises OSError when the disk fails: the store must then not continue.
        """
        for action in actions:
            for _ in self._log_action(action):
                pass

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
            case PlaceTombstone() | CloseSegment() | RestoreBytes():
                yield self._repair(action)
            case RewriteRange():
                self._rewrite(action.offset, action.offset + action.length)
            case _:
                return

    def _keep(self, path: Path, position: int, length: int, reason: str) -> str:
        log.warning(
            "cutting %d bytes of %s from byte %d on: %s", length, path.name, position, reason
        )
        return self.quarantine.keep_range(path, position, length, reason).name

    def _place(self, offset: int) -> tuple[Path, int]:
        """The segment that holds a physical offset, and the position in it."""
        position = offset % self.config.mapped_file_size_commit_log
        return self.paths.commit_log / segment_name(offset - position), position

    def _repair(self, action: Repair) -> str:
        offset, length = action.offset, action.length
        path, position = self._place(offset)
        reason = repair_reason(action)
        log.warning("offset %d: %s for %d damaged bytes", offset, reason, length)
        kept = self.quarantine.keep_range(path, position, length, reason)
        self.files.reserve(path, position, length)
        with open_map(self.files, path, writable=True) as mapped:
            part = mapped.view[position : position + length]
            made = self._content(action, part)
            with self.changing():
                part[:] = made
            mapped.sync()
        return kept.name

    def _content(self, action: Repair, original: memoryview) -> bytes | bytearray:
        match action:
            case RestoreBytes():
                return bytes.fromhex(action.content)
            case PlaceTombstone():
                return self._tombstone(action, original)
            case _:
                return self._blank(action.length)

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
        with self.changing():
            self.files.rename(staged, path)
        self.files.sync_directory(path.parent)
        return kept.name

    def _zero(self, path: Path, position: int, length: int) -> None:
        with open_map(self.files, path, writable=True) as mapped:
            for start, stop in _chunks(position, position + length):
                if not is_zero(mapped.view[start:stop]):
                    mapped.view[start:stop] = _ZEROS[: stop - start]
            mapped.sync()

    def _rewrite(self, start: int, end: int) -> None:
        """Mark pages dirty that a failed sync may have left clean in memory and not on disk."""
        if not self.durable:
            return
        for segment in find_segments(
            self.files, self.paths, self.config.mapped_file_size_commit_log
        ).usable:
            low, high = max(start, segment.base), min(end, segment.end)
            if low < high:
                self._mark_dirty(segment.path, low - segment.base, high - segment.base)

    def _mark_dirty(self, path: Path, low: int, high: int) -> None:
        """Store the same bytes again, and keep the modification time, which is the file's age for
        retention."""
        before = self.files.stat(path)
        next_data = partial(self.files.next_data, path)
        with open_map(self.files, path, writable=True) as mapped:
            for first, last in data_chunks(low, high, next_data, _REWRITE_CHUNK):
                # A part may be a hole: a store to it on a full disk kills the process.
                self.files.reserve(path, first, last - first)
                mapped.rewrite(first, last - first)
            mapped.sync()
        if before is not None:
            self.files.set_modified(path, before.modified_ms)

    def _sync_directories(self, plan: RecoveryPlan) -> None:
        if self.durable and self.files.stat(self.paths.commit_log) is not None and plan.actions:
            self.files.sync_directory(self.paths.commit_log)
            self.files.sync_directory(self.paths.commit_log.parent)

    def _truncate_queues(self, offset: int, end: int, queues: ConsumeQueues) -> list[str]:
        """Queues at rest have no entry that is to be dropped or written again."""
        kept: list[str] = []
        for queue in queues.opened():
            beyond = queue.tail_after(end)
            for gone in beyond:
                reason = f"entries of records at or above {end}, the log's end"
                kept.append(
                    self.quarantine.keep_range(gone.path, gone.offset, gone.length, reason).name
                )
            queue.truncate_after(min(offset, end))
            if queue.ext is not None:
                queue.ext.trim()
            # Otherwise dropped entries reappear after a power cut, and name other records.
            if self.resumes and self.durable:
                queue.flush_end()
            elif beyond:
                queue.flush()
        return kept

    def _mark_queues_dirty(self, plan: RecoveryPlan, queues: ConsumeQueues) -> None:
        """Mark the queue entries dirty that are not known to be on disk."""
        if not self.durable:
            return
        start = plan.dispatch_from if plan.dispatch_from > plan.min_offset else 0
        for queue in queues.opened():
            queue.mark_dirty(start)

    def _set_queues_aside(self, reason: str, queues: ConsumeQueues) -> list[str]:
        kept: list[str] = []
        for queue in queues.all():
            kept += [self.quarantine.keep_file(f.path, reason).name for f in queue.files.files]
            queues.destroy(queue.topic, queue.queue_id)
        return kept


def repair_reason(action: Repair) -> str:
    """The reason that the quarantine entry of a repair states."""
    match action:
        case RestoreBytes():
            return RESTORED_REASON
        case PlaceTombstone():
            return TOMBSTONE_REASON
        case _:
            return "a blank record"


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for position in range(start, end, _CHUNK):
        yield position, min(position + _CHUNK, end)
