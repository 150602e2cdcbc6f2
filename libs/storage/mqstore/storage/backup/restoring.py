"""Restores a store from a backup, whole or up to a place in its log.

The store is made in a directory beside the target (``NAME.restoring``): log, small files, then an
opening of our own, which builds queues and index from the log, and a clean close. Only then it gets
its name, by a rename. What an interrupted restore has left is removed by the next one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mqstore.storage.backup import small_files
from mqstore.storage.backup.errors import BackupDamaged, CutRefused, TargetRefused
from mqstore.storage.backup.manifest import BackedUpSegment, Backup, Cut, QueueStart, Tables
from mqstore.storage.backup.objects import CHUNK
from mqstore.storage.backup.record_ends import last_end
from mqstore.storage.backup.rehearsal import blank_bytes, options_of, rehearse
from mqstore.storage.backup.repository import Repository
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import PRE_BLANK_SIZE, QUEUE_ENTRY_SIZE
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import store_lock
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.options import Progress as OpeningProgress
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.progress import Progress, no_progress
from mqstore.storage.queues.queue_entry import ENTRY
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.open_map import open_map

STAGED: Final = ".restoring"
REPLACED: Final = ".replaced"
"""Suffix of the old store between two renames; removed afterwards."""
BEGINS_USUAL: Final = 4 << 30
"""Bytes of the files in which queues begin that a restore writes without consent: a small document
may name begins that fill a volume."""
_PRE_BLANK: Final = ENTRY.pack(0, PRE_BLANK_SIZE, 0)


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored store. Offsets are physical, times milliseconds since the epoch."""

    target: Path
    backup: str
    begin: int
    end: int
    last_ms: int | None
    cut_bytes: int
    """Bytes of the backup's log behind the end."""
    lowered_offsets: int
    """Offsets of groups that were behind the end of their queue, and were lowered to it."""


def choose(repository: Repository, cut: Cut | None) -> Backup:
    """The first backup that reaches a cut, else the newest one.

    Raises BackupUnknown, CutRefused, OSError.
    """
    newest = repository.get(None)
    if cut is None:
        return newest
    return next((each for each in repository.whole() if _reaches(each, cut)), newest)


def _reaches(backup: Backup, cut: Cut) -> bool:
    if cut.offset is not None:
        return backup.begin < cut.offset <= backup.end
    return cut.ms is not None and backup.created_ms >= cut.ms


class Restoration:
    """One restore. Used once, by one thread."""

    def __init__(
        self,
        repository: Repository,
        backup: Backup,
        target: Path,
        seams: Seams,
        *,
        cut: Cut | None = None,
        large_queues: bool = False,
    ) -> None:
        """``target`` is absolute; its parent is made if it does not exist.

        ``large_queues`` consents to begins of queues of more than ``BEGINS_USUAL`` bytes and of
        more than the log.
        """
        self._repository = repository
        self._backup = backup
        self._target = target
        self._seams = seams
        self._files = seams.files
        self._cut = cut
        self._large_queues = large_queues
        self._progress: Progress = no_progress
        self._staged = target.with_name(target.name + STAGED)
        self._paths = StorePaths(self._staged)
        self._segments = self._chosen_segments()
        self._done = 0

    @property
    def log_bytes(self) -> int:
        """Bytes of log that are read."""
        return sum(each.size for each in self._segments)

    def check(self, *, replace: bool) -> bool:
        """Check the target, and return whether it holds files, which ``replace`` permits.

        Raises TargetRefused, OSError.
        """
        files, target = self._files, self._target
        stat = files.stat(target)
        if stat is not None and not stat.is_directory:
            raise TargetRefused(f"{target} is no directory; name another one")
        if stat is not None and files.is_mount_point(target):
            raise TargetRefused(
                f"{target} is a mount point, which cannot be replaced in one step; name a "
                "directory inside it"
            )
        if files.is_locked(StorePaths(target).lock):
            raise store_lock.in_use(files, StorePaths(target))
        is_full = bool(files.list(target))
        if is_full and not replace:
            raise TargetRefused(f"{target} is not empty; --replace replaces it")
        return is_full

    def run(self, *, replace: bool, progress: Progress = no_progress) -> Restored:
        """Restore, and give the store its name.

        Raises TargetRefused, CutRefused, BackupDamaged, StorageError, OSError. The target is then
        as it was.
        """
        self._progress = progress
        self.check(replace=replace)
        files = self._files
        tables = self._repository.tables(self._backup)
        content = rehearse(self._backup, tables, self._seams)
        files.make_directories(self._target.parent)
        remove_tree(files, self._staged)
        self._require_room(tables, content.sizes.mapped_file_size_consume_queue)
        files.make_directories(self._paths.commit_log)
        end, last_ms = self._write_log()
        content = self._write_small_files(tables, end)
        lowered = self._open_once(content)
        self._put_in_place()
        return Restored(
            target=self._target,
            backup=self._backup.id,
            begin=self._backup.begin,
            end=end,
            last_ms=last_ms,
            cut_bytes=self._backup.end - end,
            lowered_offsets=lowered,
        )

    def _require_room(self, tables: Tables, queue_file_size: int) -> None:
        """Require room for what is copied, and for the files in which queues begin."""
        free = self._files.usage(self._target.parent).free
        log = len(self._segments) * self._backup.segment_size
        queues = sum(blank_bytes(each, queue_file_size) for each in tables.queue_starts)
        if queues > max(BEGINS_USUAL, log) and not self._large_queues:
            raise TargetRefused(
                f"backup {self._backup.id} needs {queues} bytes for the begins of its queues, more "
                f"than {BEGINS_USUAL} and than its log; if the store had so many old entries, "
                "restore it with --large-queues"
            )
        needed = log + queues + sum(map(len, tables.files.values()))
        if free < needed:
            raise TargetRefused(
                f"{self._target.parent} has {free} bytes free, and the store needs {needed} ({log} "
                f"for its log, {queues} for the begins of its queues); choose another volume"
            )

    # the log ------------------------------------------------------------------------------

    def _chosen_segments(self) -> list[BackedUpSegment]:
        """The segments up to the cut. Raises CutRefused."""
        backup, cut = self._backup, self._cut
        segments = list(backup.segments)
        if cut is None:
            return segments
        if cut.offset is not None:
            if not backup.begin < cut.offset <= backup.end:
                raise CutRefused(
                    f"backup {backup.id} has the log from {backup.begin} to {backup.end}: "
                    f"choose an offset above the first and up to the second, not {cut.offset}"
                )
            return [each for each in segments if each.offset < cut.offset]
        assert cut.ms is not None
        until = cut.ms
        late = (n for n, s in enumerate(segments) if s.first_ms is not None and s.first_ms > until)
        count = next(late, len(segments))
        if count == 0:
            raise CutRefused(
                f"the first message of backup {backup.id} was stored after that time; choose a "
                "later time, or an older backup"
            )
        return segments[:count]

    def _write_log(self) -> tuple[int, int | None]:
        """Write the segments; the end of the log, and STORETIMESTAMP of its last record."""
        for segment in self._segments:
            self._write_segment(segment)
        if not self._segments:
            return self._backup.end, None
        return self._end_log(self._segments[-1])

    def _write_segment(self, segment: BackedUpSegment) -> None:
        size = self._backup.segment_size
        path = self._paths.commit_log / segment_name(segment.offset)
        self._files.create(path, size, reserve=segment.size, sync=False)
        with open_map(self._files, path, writable=True) as mapped:
            for part in segment.parts:
                position = part.start
                for piece in self._repository.pieces(part):
                    mapped.view[position : position + len(piece)] = piece
                    position += len(piece)
                    self._done += len(piece)
                    self._progress("restoring", self._done, self.log_bytes)
            mapped.sync()

    def _end_log(self, segment: BackedUpSegment) -> tuple[int, int | None]:
        """Remove what lies behind the cut, or behind the last whole record."""
        cut, stop = self._cut, segment.size
        if cut is not None and cut.offset is not None:
            stop = min(stop, cut.offset - segment.offset)
        path = self._paths.commit_log / segment_name(segment.offset)
        with open_map(self._files, path, writable=True) as mapped:
            until = None if cut is None else cut.ms
            end = last_end(mapped.view, stop, segment.offset, until_ms=until)
            for start in range(end.position, segment.size, CHUNK):
                length = min(CHUNK, segment.size - start)
                mapped.view[start : start + length] = bytes(length)
            mapped.sync()
        return segment.offset + end.position, end.last_ms

    # the other files ----------------------------------------------------------------------

    def _write_small_files(self, tables: Tables, end: int) -> FormatFile:
        files, paths = self._files, self._paths
        is_cut = end < self._backup.end
        content = small_files.write(tables, paths, self._seams, end, is_cut=is_cut)
        for start in tables.queue_starts:
            self._write_queue_start(start, content.sizes.mapped_file_size_consume_queue)
        small_files.finish(content, paths, files, self._backup.begin)
        return content

    def _write_queue_start(self, start: QueueStart, file_size: int) -> None:
        """Make the file after whose last entry a queue goes on.

        The entries before it are pre-blank: their messages have expired.
        """
        used = blank_bytes(start, file_size)
        base = start.index * QUEUE_ENTRY_SIZE - used
        directory = self._paths.consume_queue / start.topic / str(start.queue_id)
        self._files.make_directories(directory, sync=False)
        path = directory / segment_name(base)
        self._files.create(path, file_size, reserve=used, sync=False)
        if not used:
            return  # the name of the file shows where the queue begins
        mapped = self._files.map(path, writable=True)
        last = used - QUEUE_ENTRY_SIZE
        mapped.view[:last] = _PRE_BLANK * (last // QUEUE_ENTRY_SIZE)
        entry = start.physical_offset, start.size, start.tags_code
        ENTRY.pack_into(mapped.view, last, *entry)
        mapped.unmap()

    def _open_once(self, content: FormatFile) -> int:
        """Build what is derived from the log, and close the store cleanly.

        Returns the number of lowered offsets.
        """
        options = dataclasses.replace(options_of(content), on_progress=self._show_opening)
        with MessageStore.open(self._staged, StoreConfig(), self._seams, options) as store:
            if store.read_only_reason is not None:
                raise BackupDamaged(f"the restored store opens read-only: {store.read_only_reason}")
            store.wait_for_index(partial(self._progress, "index"))
            return store.recovery.lowered_offset_count

    def _show_opening(self, now: OpeningProgress) -> None:
        self._progress(now.stage, now.done, now.total)

    def _put_in_place(self) -> None:
        files, target = self._files, self._target
        replaced = target.with_name(target.name + REPLACED)
        if files.list(target):
            remove_tree(files, replaced)
            files.rename(target, replaced)
        files.rename(self._staged, target)
        files.sync_directory(target.parent)
        remove_tree(files, replaced)


def remove_tree(files: FileSystem, path: Path) -> None:
    """Remove a directory with all that is in it, if it exists. Raises OSError."""
    stat = files.stat(path)
    if stat is None:
        return
    if not stat.is_directory:
        files.unlink(path)
        return
    for name in files.list(path):
        remove_tree(files, path / name)
    files.remove_directory(path)
