"""A run of mapped files of one size in one directory, addressed by logical offset.

``files`` is a tuple that is replaced, never changed in place: any thread may walk the tuple it got.
One thread appends; other threads may remove and flush.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Final

from mqstore.storage.errors import StoreFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.warm_up import WarmUp
from mqstore.storage.paths import segment_name, segment_offset
from mqstore.storage.seams import FileSystem, Seams

POPULATE_WINDOW: Final = 4 << 20
"""Bytes of pages faulted in ahead of the write position of a file that is reserved whole.

The next sync writes them, as they are dirty, so they are few.
"""
LOAD_WINDOW: Final = 64 << 20
"""Bytes of clean pages loaded ahead of the write position: a thread that puts without a pause keeps
the GIL for 5 ms at a time, and this lasts for longer than that."""
LOAD_STEP: Final = 4 << 20
"""Bytes of them loaded at a time. The kernel clears pages at about 600 MB/s: a load of the whole
window took a core for 0.1 s, in which requests waited on a machine of two cores."""
FORCE_REMOVAL_AFTER_S: Final = 120.0
"""RocketMQ's destroyMapedFileIntervalForcibly."""
OFFSET_MAX: Final = 2**63 - 1
_BASE_OFFSET: Final = attrgetter("base_offset")


class StrayReason(StrEnum):
    """Why a file in a segment directory is not loaded."""

    NAME = "no segment name"
    LENGTH = "wrong length"
    OVERLAP = "overlaps the segment before"


@dataclass(frozen=True, slots=True)
class StrayFile:
    """A path in a segment directory that is not loaded, and is left alone."""

    path: Path
    size: int
    reason: StrayReason
    base_offset: int | None
    """The offset that its name states; None for another name."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of a file."""

    path: Path
    offset: int
    length: int


class MappedFileQueue:
    """Segments in offset order; there may be holes where files are missing."""

    def __init__(
        self,
        directory: Path,
        file_size: int,
        seams: Seams,
        *,
        staging: Path,
        writable: bool = True,
        derived: bool = False,
        populate_window: int | None = None,
        warm_up: WarmUp | None = None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """``staging`` is the directory in which new files are made, on the same file system.

        A new file of a log gets all its disk blocks, and is durable under its name before it is
        used. ``derived`` files, which can be made again from the log, are cheap instead: they get
        the blocks of one page, and the appender calls ``MappedFile.ensure_reserved`` before it
        writes; ``names_due`` is set, and the caller syncs the directory and its parents before it
        relies on the file; their maps are sparse (``FileSystem.map``).

        ``populate_window``: see ``POPULATE_WINDOW``; 0 by default for derived files. ``warm_up``:
        new files are loaded into memory as a whole instead. ``guard`` is called before a file is
        created or unlinked; its exception prevents that.
        """
        self.directory = directory
        self.file_size = file_size
        self.files: tuple[MappedFile, ...] = ()
        self.flushed_where = 0
        """Everything below this offset was synced, or found durable by recovery."""
        self.made_bytes = 0
        """Bytes of files made since the opening, including those made ahead."""
        self.names_due = False
        """Whether names of files may not be durable."""
        self.populate_window = 0 if derived else POPULATE_WINDOW
        if populate_window is not None:
            self.populate_window = populate_window
        self._warm_up = warm_up
        self._guard = guard
        self._seams = seams
        self._staging = staging
        self._writable = writable
        self._derived = derived
        self._reserve = min(PAGE_SIZE, file_size) if derived else None
        self._leftovers: set[Path] = set()
        """Files whose creation failed, and perhaps their removal too; never used."""
        self._ahead: dict[int, MappedFile] = {}
        self._is_ended = False
        self._ahead_lock = Lock()
        self._change_lock = Lock()
        self._flush_lock = Lock()

    # opening

    def load(self) -> list[StrayFile]:
        """Map every segment as wholly written and not known to be durable.

        Returns the stray files, in name order. Recovery then sets the end (``remove_from``) and the
        durable part (``mark_flushed``).
        """
        segments, strays = self._scan()
        self.files = self._open_all(segments, {})
        self.names_due = self._derived
        self.flushed_where = self.min_offset
        return strays

    def refresh(self, *, remap: bool = False) -> bool:
        """For read-only use: find added and removed segments; returns whether there were any.

        ``remap`` maps all files again, as a recovery may have made other files under the same
        names. References to a dropped file or a slice of it stay readable.
        """
        segments, _ = self._scan()
        with self._change_lock:
            before = self.files
            kept = {} if remap else {file.base_offset: file for file in before}
            self.files = self._open_all(segments, kept)
            return self.files != before

    def _scan(self) -> tuple[list[int], list[StrayFile]]:
        segments: list[int] = []
        strays: list[StrayFile] = []
        for name in self._seams.files.list(self.directory):
            path = self.directory / name
            found = self._seams.files.stat(path)
            if found is None:
                continue
            offset = segment_offset(name)
            if offset is None or offset > OFFSET_MAX - self.file_size or found.is_directory:
                strays.append(StrayFile(path, found.size, StrayReason.NAME, None))
            elif found.size != self.file_size:
                strays.append(StrayFile(path, found.size, StrayReason.LENGTH, offset))
            elif segments and offset < segments[-1] + self.file_size:
                strays.append(StrayFile(path, found.size, StrayReason.OVERLAP, offset))
            else:
                segments.append(offset)
        return segments, strays

    def _open_all(self, offsets: list[int], kept: dict[int, MappedFile]) -> tuple[MappedFile, ...]:
        opened = (kept.get(offset) or self._open(offset) for offset in offsets)
        return tuple(file for file in opened if file is not None)

    def _open(self, offset: int) -> MappedFile | None:
        path = self.path_of(offset)
        try:
            return MappedFile.open(
                self._seams.files,
                path,
                base_offset=offset,
                writable=self._writable,
                is_derived=self._derived,
            )
        except FileNotFoundError:  # removed after it was listed
            return None

    # queries

    @property
    def first(self) -> MappedFile | None:
        """The first file, or None."""
        files = self.files
        return files[0] if files else None

    @property
    def last(self) -> MappedFile | None:
        """The last file, or None."""
        files = self.files
        return files[-1] if files else None

    @property
    def min_offset(self) -> int:
        """The first offset of the first file; 0 when there is none."""
        files = self.files
        return files[0].base_offset if files else 0

    @property
    def max_offset(self) -> int:
        """The end of the written bytes of the last file; 0 when there is none."""
        files = self.files
        return files[-1].base_offset + files[-1].wrote_position if files else 0

    @property
    def new_file_size(self) -> int:
        """Bytes of disk blocks that a new file takes."""
        return self.file_size if self._reserve is None else self._reserve

    @property
    def is_mapped(self) -> bool:
        """Whether any file does not rest."""
        return any(file.is_mapped for file in self.files)

    def mapped_sizes(self) -> list[int]:
        """The sizes of the files that do not rest."""
        return [file.size for file in self.files if file.is_mapped]

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at ``offset``, written or not; None without one."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].base_offset) // self.file_size
        if 0 <= index < len(files):  # its place when no file is missing
            file = files[index]
            if 0 <= offset - file.base_offset < file.size:
                return file
        index = bisect_right(files, offset, key=_BASE_OFFSET) - 1
        return files[index] if index >= 0 and _holds(files[index], offset) else None

    def is_gone(self, file: MappedFile) -> bool:
        """Whether no file has its name any more."""
        return self._seams.files.stat(file.path) is None

    # growing

    def path_of(self, offset: int) -> Path:
        """The path of the file that begins at ``offset``."""
        return self.directory / segment_name(offset)

    def add(self, offset: int) -> MappedFile:
        """``create`` the file, unless it was made ahead, and ``append`` it."""
        with self._ahead_lock:
            file = self._ahead.pop(offset, None) or self.create(offset)
            self.append(file)
        return file

    def has(self, offset: int) -> bool:
        """Whether ``add`` needs to make no file at ``offset``."""
        return offset in self._ahead or self.find(offset) is not None

    def make_ahead(self, offset: int) -> None:
        """``create`` a file for a later ``add``; does nothing after ``end_ahead``.

        Errors as ``create``.
        """
        with self._ahead_lock:
            if not self._is_ended and not self.has(offset):
                self._ahead[offset] = self.create(offset)

    def end_ahead(self) -> None:
        """Remove files that were made ahead and never added, and make no more. Raises OSError."""
        with self._ahead_lock:
            self._is_ended = True
            ahead, self._ahead = self._ahead, {}
            for _, file in sorted(ahead.items()):
                file.destroy(self._seams.clock.monotonic(), force_after_s=0)
            if ahead:
                self._seams.files.sync_directory(self.directory)

    def create(self, offset: int) -> MappedFile:
        """Create the file that begins at ``offset``; not yet in ``files``.

        Any thread. Raises OSError when there is no room, FileExistsError when it exists.
        """
        self._guard()
        path, files = self.path_of(offset), self._seams.files
        for directory in (self.directory, self._staging):
            if files.stat(directory) is None:
                files.make_directories(directory, sync=not self._derived)
        if path in self._leftovers and files.stat(path) is not None:
            files.unlink(path)
        try:
            file = MappedFile.create(
                files,
                path,
                self.file_size,
                staged=self._staging / _staged_name(path),
                base_offset=offset,
                reserve=self._reserve,
                is_derived=self._derived,
            )
            self._prefault(file)
        except FileExistsError:
            raise
        except OSError:
            self._leftovers.add(path)
            raise
        self._leftovers.discard(path)
        self.made_bytes += file.size
        self.names_due = self._derived
        return file

    def _prefault(self, file: MappedFile) -> None:
        if self._warm_up is None:
            self._populate(file)
            return
        try:
            file.warm_up(self._warm_up)
        except OSError:
            file.destroy(self._seams.clock.monotonic(), force_after_s=0)
            raise

    def append(self, file: MappedFile) -> None:
        """Put a file that ``create`` made at the end of the run."""
        with self._change_lock:
            if self.files and file.base_offset < self.files[-1].end_offset:
                raise ValueError(f"{file.path} does not come after {self.files[-1].path}")
            if not self.files:
                self.flushed_where = max(self.flushed_where, file.base_offset)
            self.files = (*self.files, file)

    def insert(self, offset: int) -> None:
        """``create`` a file that is missing before others, as wholly written. Errors as
        ``create``."""
        file = self.create(offset)
        file.wrote_position = file.size
        with self._change_lock:
            self.files = tuple(sorted((*self.files, file), key=_BASE_OFFSET))
        with self._flush_lock:
            self.flushed_where = min(self.flushed_where, offset)

    def populate(self) -> None:
        """Fault in pages ahead of the write position; called from a background service."""
        file = self.last
        if file is not None:
            self._populate(file, LOAD_WINDOW, LOAD_STEP)

    def _populate(self, file: MappedFile, load_window: int = 0, load_step: int = 0) -> None:
        if self.populate_window > 0:
            file.populate_ahead(self.populate_window, load_window, load_step)

    # flushing

    def flush(self, least_pages: int = 0) -> bool:
        """Sync the bytes written before the call, oldest file first; returns whether anything
        moved.

        A file that is not full waits while it has fewer than ``least_pages`` whole pages to sync.
        Raises StoreFailed when a sync fails: ``flushed_where`` then stays before the failure.
        """
        with self._flush_lock:
            before = self.flushed_where
            for file in self.files_from(before):
                if not file.is_full and _pages_waiting(file) < least_pages:
                    break
                self.flushed_where = max(self.flushed_where, file.base_offset + file.flush())
            return self.flushed_where > before

    def mark_flushed(self, offset: int) -> None:
        """Note that everything below ``offset`` is on disk, as recovery found."""
        with self._flush_lock:
            for file in self.files:
                file.mark_flushed(max(0, offset - file.base_offset))
            self.flushed_where = min(offset, self.max_offset)

    def files_from(self, offset: int) -> tuple[MappedFile, ...]:
        """The files from the one that holds ``offset``, or else from the one before."""
        files = self.files
        start = bisect_right(files, offset, key=_BASE_OFFSET) - 1
        return files[max(start, 0) :]

    # shrinking

    def remove_first(self, count: int, *, force_after_s: float = FORCE_REMOVAL_AFTER_S) -> int:
        """Unlink up to ``count`` files from the front; returns their number.

        Stops at the first one in use (call again later: ``force_after_s`` after the first attempt
        it is unlinked all the same).
        """
        removed = 0
        for file in self.files[:count]:
            if not self._remove(file, force_after_s):
                break
            removed += 1
        return removed

    def remove_from(self, offset: int, *, keep_first: bool = False) -> None:
        """Make ``offset`` the end: unlink the files that begin there or later, newest first.

        The file that holds ``offset`` keeps its length and bytes; only its positions move. With
        ``keep_first``, so does the first file: its name alone may show where the run continues.
        """
        kept = self.files[0] if keep_first and self.files else None
        for file in reversed(self.files):
            if file.base_offset >= offset and file is not kept:
                self._remove(file, force_after_s=0)
            elif offset < file.end_offset:
                file.set_end(max(0, offset - file.base_offset))
        self.flushed_where = min(self.flushed_where, offset)

    def leave_out_from(self, offset: int) -> None:
        """Unmap the files that begin at ``offset`` or later; they stay."""
        with self._change_lock:
            gone = [file for file in self.files if file.base_offset >= offset]
            self.files = self.files[: len(self.files) - len(gone)]
        for file in gone:
            file.close()

    def sync_names(self) -> None:
        """Sync the directory, so that the set of files is durable. Raises OSError."""
        self._seams.files.sync_directory(self.directory)

    def _remove(self, file: MappedFile, force_after_s: float) -> bool:
        self._guard()
        if not file.destroy(self._seams.clock.monotonic(), force_after_s):
            return False
        # Before the next one is unlinked, so that a power cut leaves no hole.
        self._seams.files.sync_directory(self.directory)
        with self._change_lock:
            self.files = tuple(other for other in self.files if other is not file)
        return True

    def rest(self) -> None:
        """Let all files ``rest``."""
        for file in self.files:
            file.rest()

    def close(self) -> None:
        """Unmap all files; the files stay. Flush before."""
        with self._change_lock:
            files, self.files = self.files, ()
        for file in files:
            file.close()


def sync_directories(files: FileSystem, directories: Iterable[Path]) -> None:
    """Make the names of new files durable. Raises StoreFailed."""
    for directory in directories:
        try:
            files.sync_directory(directory)
        except OSError as error:
            raise StoreFailed(f"sync of {directory} failed ({error})") from error


def _holds(file: MappedFile, offset: int) -> bool:
    return file.base_offset <= offset < file.end_offset


def _pages_waiting(file: MappedFile) -> int:
    return file.wrote_position // PAGE_SIZE - file.flushed_position // PAGE_SIZE


def _staged_name(path: Path) -> str:
    """A fixed name for each target, so that a leftover is found and replaced."""
    directory = hashlib.blake2b(str(path.parent).encode(), digest_size=8).hexdigest()
    return f"{directory}-{path.name}"
