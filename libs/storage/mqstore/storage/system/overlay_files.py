"""A copy-on-write file system over another: changes are visible in it, and never reach the base.

Files of the base are mapped privately, so that only changed pages take memory; new, replaced and
lengthened files are anonymous memory. Syncs and locks do nothing, and the base may be read-only.
The names in a directory of the base are those of its first listing: files that a living store adds
later are in none of the overlay's answers. The changes end with the object. Any thread may use
maps; one thread at a time may change names.
"""

from __future__ import annotations

import builtins
import errno
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol, cast

from mqstore.storage.layout import SMALL_FILE_MAX
from mqstore.storage.seams import DiskUsage, FileLock, FileStat, FileSystem, MappedBytes
from mqstore.storage.system import native
from mqstore.storage.system.file_limits import too_large
from mqstore.storage.system.sparse import SMALL_CHUNK, data_chunks

COPY_CHUNK_SIZE: Final = 64 << 10
_ZEROS: Final = bytes(COPY_CHUNK_SIZE)


class PrivateBase(FileSystem, Protocol):
    """A file system whose files can be mapped so that stores stay in this process's memory."""

    def map_private(self, path: Path) -> memoryview:
        """Map a whole file, writable; stores stay in this process's memory."""


@dataclass(slots=True)
class _Content:
    """One file of the overlay; all maps of the file share ``view``."""

    view: memoryview
    modified_ms: int
    may_differ: bool = True
    """Whether it may differ from the file at that path in the base."""


class OverlayMapping:
    """A mapped file of the overlay."""

    def __init__(self, view: memoryview) -> None:
        self.size = len(view)
        self._view: memoryview | None = view

    @property
    def view(self) -> memoryview:
        """The whole file."""
        if self._view is None:
            raise ValueError("the file was unmapped; map it again")
        return self._view

    def sync(self) -> None:
        """Do nothing: there is no disk."""

    def rewrite(self, offset: int, length: int) -> None:
        """Do nothing: there is no disk."""

    def write(self, offset: int, data: memoryview) -> None:
        """Copy ``data`` to ``offset``."""
        self.view[offset : offset + len(data)] = data

    def populate(self, offset: int, length: int) -> None:
        """Do nothing."""

    def load(self, offset: int, length: int) -> None:
        """Do nothing."""

    def lock(self) -> None:
        """Do nothing."""

    def unlock(self) -> None:
        """Do nothing."""

    def unmap(self) -> None:
        """Do nothing: memory is freed with the last slice."""
        self._view = None


class OverlayLock:
    """A lock that excludes no other process."""

    def release(self) -> None:
        """Do nothing."""

    def is_in_place(self) -> bool:
        """Always true."""
        return True


class OverlayFileSystem:
    """A ``seams.FileSystem`` over ``base``, which it only reads."""

    def __init__(self, base: PrivateBase) -> None:
        self._base = base
        self._contents: dict[Path, _Content] = {}
        self._directories: set[Path] = set()
        self._names: defaultdict[Path, set[str]] = defaultdict(set)
        """By directory, the names that the overlay added."""
        self._listed: dict[Path, frozenset[str]] = {}
        """By directory, the names in the base when it was first listed."""
        self._removed: set[Path] = set()
        """Removed paths of the base; everything below them is hidden too."""

    def stat(self, path: Path) -> FileStat | None:
        """The state of a file or directory; None when it is missing."""
        content = self._contents.get(path)
        if content is not None:
            return FileStat(len(content.view), content.modified_ms, is_directory=False)
        if path in self._directories:
            return FileStat(0, _now_ms(), is_directory=True)
        return self._stat_of_base(path)

    def watch_places(self, places: Mapping[Path, tuple[int, int]]) -> Callable[[], bool]:
        """A check of the base's files."""
        return self._base.watch_places(places)

    def list(self, directory: Path) -> list[str]:
        """The names in a directory, sorted."""
        names = set(self._names.get(directory, ()))
        if not self._is_hidden(directory):
            below = self._listed.get(directory)
            if below is None:
                below = self._listed[directory] = frozenset(self._base.list(directory))
            names |= {name for name in below if directory / name not in self._removed}
        return sorted(names)

    def real_path(self, path: Path) -> Path:
        """The path with the base's symbolic links resolved."""
        return self._base.real_path(path)

    def is_mount_point(self, path: Path) -> bool:
        """Whether the base has a mount point there."""
        return self._base.is_mount_point(path)

    def make_directories(self, path: Path, *, sync: bool = True) -> None:
        """Create a directory and its parents."""
        found = self.stat(path)
        if found is None:
            self.make_directories(path.parent)
            self._directories.add(path)
            self._names[path.parent].add(path.name)
        elif not found.is_directory:
            raise _error(errno.ENOTDIR, path)

    def read(self, path: Path) -> bytes:
        """Read a whole small file."""
        found = self.stat(path)
        if found is not None and found.size > SMALL_FILE_MAX:
            raise too_large(path, found.size)
        return bytes(self._content(path).view)

    def irregular(self, directory: Path) -> builtins.list[str]:
        """The names of links, pipes, sockets and devices of a directory of the base."""
        return self._base.irregular(directory)

    def read_range(self, path: Path, offset: int, length: int, *, keep: bool) -> bytes:
        """Read some bytes of a file, fewer at its end."""
        return bytes(self._content(path).view[offset : offset + length])

    def write(self, path: Path, data: bytes) -> None:
        """Create or replace a small file."""
        content = self._contents.get(path)
        if content is not None and len(content.view) == len(data):
            content.view[:] = data  # visible through existing maps, as on a real disk
            content.modified_ms, content.may_differ = _now_ms(), True
        else:
            self._put(path, memoryview(bytearray(data)))

    def append(self, path: Path, data: bytes) -> None:
        """Add bytes to the end of a small file."""
        self.write(path, (b"" if self.stat(path) is None else self.read(path)) + data)

    def create(
        self, path: Path, size: int, *, reserve: int | None = None, sync: bool = True
    ) -> None:
        """Create a zero-filled file."""
        self._put_new(path, native.map_anonymous(size))

    def reserve(self, path: Path, offset: int, length: int) -> None:
        """Check that the file exists; memory needs no reservation."""
        self._content(path)

    def extend(self, path: Path, size: int) -> None:
        """Lengthen a file with zeros."""
        before = self._content(path).view
        if size < len(before):
            raise _error(errno.EINVAL, path)
        view = native.map_anonymous(size)
        _copy_sparsely(before, view)
        self._put(path, view)

    def copy(self, source: Path, target: Path, offset: int = 0, length: int | None = None) -> None:
        """Copy some bytes into a new file."""
        origin = self._content(source).view
        part = origin[offset : len(origin) if length is None else offset + length]
        view = native.map_anonymous(len(part))
        _copy_sparsely(part, view)
        self._put_new(target, view)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the target."""
        content = self._content(source)
        self._check_parent(target)
        self._remove(source)
        content.may_differ = True
        self._show(target, content)

    def unlink(self, path: Path) -> None:
        """Remove a file; one that the base has lost since it was listed may be removed too."""
        found = self.stat(path)
        if found is None and not self._is_hidden(path) and self._was_listed(path):
            self._remove(path)
            return
        if found is None or found.is_directory:
            raise _error(errno.ENOENT if found is None else errno.EISDIR, path)
        self._remove(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        found = self.stat(path)
        if found is None or not found.is_directory:
            raise _error(errno.ENOENT if found is None else errno.ENOTDIR, path)
        if self.list(path):
            raise _error(errno.ENOTEMPTY, path)
        self._directories.discard(path)
        self._remove(path)

    def sync_directory(self, path: Path) -> None:
        """Check that the directory exists; there is no disk."""
        if self.stat(path) is None:
            raise _error(errno.ENOENT, path)

    def map(self, path: Path, *, writable: bool, sparse: bool = False) -> MappedBytes:
        """Map a whole file."""
        content = self._content(path, sparse=sparse)
        content.may_differ = content.may_differ or writable
        return OverlayMapping(content.view if writable else content.view.toreadonly())

    def map_memory(self, size: int) -> MappedBytes:
        """Map zero-filled memory."""
        return OverlayMapping(native.map_anonymous(size))

    def map_private(self, path: Path) -> memoryview:
        """Map a file privately, so that an overlay can be the base of another."""
        content = self._content(path)
        below = self._stat_of_base(path)
        if below is None or below.size != len(content.view):
            view = native.map_anonymous(len(content.view))
            _copy_sparsely(content.view, view)
            return view
        view = self._base.map_private(path)
        if content.may_differ:
            _copy_changes(content.view, view)
        return view

    def lock(self, path: Path) -> FileLock:
        """Return a lock that excludes no other process."""
        return OverlayLock()

    def is_locked(self, path: Path) -> bool:
        """Whether a process holds the lock in the base."""
        return self._base.is_locked(path)

    def next_data(self, path: Path, offset: int) -> int | None:
        """The next position at which the file may hold data."""
        content = self._content(path)
        if content.may_differ:
            return offset if offset < len(content.view) else None
        return self._base.next_data(path, offset)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time."""
        self._content(path).modified_ms = modified_ms

    def usage(self, path: Path) -> DiskUsage:
        """The usage of the base's volume."""
        return self._base.usage(path)

    def _content(self, path: Path, *, sparse: bool = False) -> _Content:
        """The file's shared content; mapped from the base at the first call.

        A ``sparse`` file of a volume without room for its holes is copied into memory instead: on a
        tmpfs, reading a mapped hole makes a page, or raises SIGBUS where there is no room for one.
        """
        content = self._contents.get(path)
        if content is None:
            found = self.stat(path)
            if found is None or found.is_directory:
                raise _error(errno.ENOENT if found is None else errno.EISDIR, path)
            if sparse and self._base.usage(path).free < found.size:
                view = self._copied(path, found.size)
            else:
                view = self._base.map_private(path)
            content = _Content(view, found.modified_ms, may_differ=False)
            self._contents[path] = content
        return content

    def _copied(self, path: Path, size: int) -> memoryview:
        """The data of a file of the base, in memory that has no holes."""
        view = native.map_anonymous(size)
        next_data = partial(self._base.next_data, path)
        for start, stop in data_chunks(0, size, next_data, SMALL_CHUNK):
            view[start:stop] = self._base.read_range(path, start, stop - start, keep=True)
        return view

    def _put_new(self, path: Path, view: memoryview) -> None:
        if self.stat(path) is not None:
            raise _error(errno.EEXIST, path)
        self._put(path, view)

    def _put(self, path: Path, view: memoryview) -> None:
        self._check_parent(path)
        self._show(path, _Content(view, _now_ms()))

    def _show(self, path: Path, content: _Content) -> None:
        self._contents[path] = content
        self._names[path.parent].add(path.name)

    def _check_parent(self, path: Path) -> None:
        parent = self.stat(path.parent)
        if parent is None or not parent.is_directory:
            raise _error(errno.ENOENT, path)

    def _remove(self, path: Path) -> None:
        self._contents.pop(path, None)
        self._names[path.parent].discard(path.name)
        self._removed.add(path)

    def _stat_of_base(self, path: Path) -> FileStat | None:
        listed = self._listed.get(path.parent)
        if self._is_hidden(path) or (listed is not None and path.name not in listed):
            return None
        return self._base.stat(path)

    def _was_listed(self, path: Path) -> bool:
        return path.name in self._listed.get(path.parent, ())

    def _is_hidden(self, path: Path) -> bool:
        if not self._removed:
            return False
        return path in self._removed or any(parent in self._removed for parent in path.parents)


def _copy_sparsely(source: memoryview, target: memoryview) -> None:
    """Copy into zero-filled memory, without touching pages that stay zero."""
    for start in range(0, len(source), COPY_CHUNK_SIZE):
        chunk = bytes(source[start : start + COPY_CHUNK_SIZE])
        if chunk != _ZEROS[: len(chunk)]:
            target[start : start + len(chunk)] = chunk


def _copy_changes(source: memoryview, target: memoryview) -> None:
    """Copy the chunks that differ: pages that are equal take no memory."""
    for start in range(0, len(source), COPY_CHUNK_SIZE):
        chunk = bytes(source[start : start + COPY_CHUNK_SIZE])
        if chunk != bytes(target[start : start + COPY_CHUNK_SIZE]):
            target[start : start + len(chunk)] = chunk


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _error(number: int, path: Path) -> OSError:
    """Build an OSError; Python picks the subclass (FileNotFoundError and so on) by the number."""
    return OSError(number, os.strerror(number), str(path))


def make_overlay(files: FileSystem) -> OverlayFileSystem:
    """Lay an overlay over a file system. Raises TypeError for one without private maps."""
    if not hasattr(files, "map_private"):
        raise TypeError(f"{type(files).__name__} cannot be laid over: it maps nothing privately")
    return OverlayFileSystem(cast(PrivateBase, files))
