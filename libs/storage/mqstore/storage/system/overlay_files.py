"""A copy-on-write file system over another: everything looks written, nothing is.

Files of the base are mapped privately, so only changed pages take memory; new, replaced and
lengthened files are anonymous memory. There is nothing to sync and nobody to lock out, and a
read-only base will do. The overlay ends with the object. Not for several threads at once, beyond
what the engine does: maps may be used by any thread, changes of names come from one.
"""

from __future__ import annotations

import builtins
import errno
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from mqstore.storage.layout import SMALL_FILE_MAX
from mqstore.storage.seams import DiskUsage, FileLock, FileStat, FileSystem, MappedBytes
from mqstore.storage.system import native
from mqstore.storage.system.file_limits import too_large

COPY_CHUNK_SIZE: Final = 64 << 10
_ZEROS: Final = bytes(COPY_CHUNK_SIZE)


class PrivateBase(FileSystem, Protocol):
    """A file system whose files can be mapped so that changes stay in this process's memory."""

    def map_private(self, path: Path) -> memoryview: ...


@dataclass(slots=True)
class _Content:
    """One file as the overlay shows it; all maps of the file share ``view``."""

    view: memoryview
    modified_ms: int
    may_differ: bool = True
    """From the file of that path in the base."""


class OverlayMapping:
    def __init__(self, view: memoryview) -> None:
        self.size = len(view)
        self._view: memoryview | None = view

    @property
    def view(self) -> memoryview:
        if self._view is None:
            raise ValueError("the file was unmapped; map it again")
        return self._view

    def sync(self) -> None:
        pass

    def rewrite(self, offset: int, length: int) -> None:
        pass

    def write(self, offset: int, data: memoryview) -> None:
        self.view[offset : offset + len(data)] = data

    def populate(self, offset: int, length: int) -> None:
        pass

    def load(self, offset: int, length: int) -> None:
        pass

    def lock(self) -> None:
        pass

    def unlock(self) -> None:
        pass

    def unmap(self) -> None:
        self._view = None


class OverlayLock:
    def release(self) -> None:
        pass

    def is_in_place(self) -> bool:
        return True


class OverlayFileSystem:
    """``seams.FileSystem`` over ``base``, of which it only ever reads."""

    def __init__(self, base: PrivateBase) -> None:
        self._base = base
        self._contents: dict[Path, _Content] = {}
        self._directories: set[Path] = set()
        self._names: defaultdict[Path, set[str]] = defaultdict(set)
        """By directory, what the overlay added to it."""
        self._removed: set[Path] = set()
        """Of the base: hidden, with all that lies below them."""

    def stat(self, path: Path) -> FileStat | None:
        content = self._contents.get(path)
        if content is not None:
            return FileStat(len(content.view), content.modified_ms, is_directory=False)
        if path in self._directories:
            return FileStat(0, _now_ms(), is_directory=True)
        return None if self._is_hidden(path) else self._base.stat(path)

    def list(self, directory: Path) -> list[str]:
        names = set(self._names.get(directory, ()))
        if not self._is_hidden(directory):
            below = self._base.list(directory)
            names |= {name for name in below if directory / name not in self._removed}
        return sorted(names)

    def real_path(self, path: Path) -> Path:
        return self._base.real_path(path)

    def is_mount_point(self, path: Path) -> bool:
        return self._base.is_mount_point(path)

    def make_directories(self, path: Path) -> None:
        found = self.stat(path)
        if found is None:
            self.make_directories(path.parent)
            self._directories.add(path)
            self._names[path.parent].add(path.name)
        elif not found.is_directory:
            raise _error(errno.ENOTDIR, path)

    def read(self, path: Path) -> bytes:
        found = self.stat(path)
        if found is not None and found.size > SMALL_FILE_MAX:
            raise too_large(path, found.size)
        return bytes(self._content(path).view)

    def irregular(self, directory: Path) -> builtins.list[str]:
        return self._base.irregular(directory)

    def read_range(self, path: Path, offset: int, length: int, *, keep: bool) -> bytes:
        return bytes(self._content(path).view[offset : offset + length])

    def write(self, path: Path, data: bytes) -> None:
        content = self._contents.get(path)
        if content is not None and len(content.view) == len(data):
            content.view[:] = data  # seen by those who have it mapped, as on a real disk
            content.modified_ms, content.may_differ = _now_ms(), True
        else:
            self._put(path, memoryview(bytearray(data)))

    def create(self, path: Path, size: int, *, reserve: int | None = None) -> None:
        self._put_new(path, native.map_anonymous(size))

    def reserve(self, path: Path, offset: int, length: int) -> None:
        self._content(path)

    def extend(self, path: Path, size: int) -> None:
        before = self._content(path).view
        if size < len(before):
            raise _error(errno.EINVAL, path)
        view = native.map_anonymous(size)
        _copy_sparsely(before, view)
        self._put(path, view)

    def copy(self, source: Path, target: Path, offset: int = 0, length: int | None = None) -> None:
        origin = self._content(source).view
        part = origin[offset : len(origin) if length is None else offset + length]
        view = native.map_anonymous(len(part))
        _copy_sparsely(part, view)
        self._put_new(target, view)

    def rename(self, source: Path, target: Path) -> None:
        content = self._content(source)
        self._check_parent(target)
        self._remove(source)
        content.may_differ = True
        self._show(target, content)

    def unlink(self, path: Path) -> None:
        found = self.stat(path)
        if found is None or found.is_directory:
            raise _error(errno.ENOENT if found is None else errno.EISDIR, path)
        self._remove(path)

    def remove_directory(self, path: Path) -> None:
        found = self.stat(path)
        if found is None or not found.is_directory:
            raise _error(errno.ENOENT if found is None else errno.ENOTDIR, path)
        if self.list(path):
            raise _error(errno.ENOTEMPTY, path)
        self._directories.discard(path)
        self._remove(path)

    def sync_directory(self, path: Path) -> None:
        if self.stat(path) is None:
            raise _error(errno.ENOENT, path)

    def map(self, path: Path, *, writable: bool) -> MappedBytes:
        content = self._content(path)
        content.may_differ = content.may_differ or writable
        return OverlayMapping(content.view if writable else content.view.toreadonly())

    def map_memory(self, size: int) -> MappedBytes:
        return OverlayMapping(native.map_anonymous(size))

    def map_private(self, path: Path) -> memoryview:
        """As the base does, so that overlays can be laid over each other."""
        content = self._content(path)
        if not content.may_differ:
            return self._base.map_private(path)
        view = native.map_anonymous(len(content.view))
        _copy_sparsely(content.view, view)
        return view

    def lock(self, path: Path) -> FileLock:
        return OverlayLock()

    def is_locked(self, path: Path) -> bool:
        """Whether somebody holds the lock of the base."""
        return self._base.is_locked(path)

    def next_data(self, path: Path, offset: int) -> int | None:
        content = self._content(path)
        if content.may_differ:
            return offset if offset < len(content.view) else None
        return self._base.next_data(path, offset)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._content(path).modified_ms = modified_ms

    def usage(self, path: Path) -> DiskUsage:
        return self._base.usage(path)

    def _content(self, path: Path) -> _Content:
        """The file's shared content; mapped from the base when it is first asked for."""
        content = self._contents.get(path)
        if content is None:
            found = self.stat(path)
            if found is None or found.is_directory:
                raise _error(errno.ENOENT if found is None else errno.EISDIR, path)
            view = self._base.map_private(path)
            content = _Content(view, found.modified_ms, may_differ=False)
            self._contents[path] = content
        return content

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

    def _is_hidden(self, path: Path) -> bool:
        if not self._removed:
            return False
        return path in self._removed or any(parent in self._removed for parent in path.parents)


def _copy_sparsely(source: memoryview, target: memoryview) -> None:
    """Copy into zero-filled memory, leaving what is zero untouched."""
    for start in range(0, len(source), COPY_CHUNK_SIZE):
        chunk = bytes(source[start : start + COPY_CHUNK_SIZE])
        if chunk != _ZEROS[: len(chunk)]:
            target[start : start + len(chunk)] = chunk


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _error(number: int, path: Path) -> OSError:
    """OSError picks the subclass (FileNotFoundError and so on) by the number."""
    return OSError(number, os.strerror(number), str(path))


def laid_over(files: FileSystem) -> OverlayFileSystem:
    """An overlay over a file system. TypeError for one that maps nothing privately."""
    if not hasattr(files, "map_private"):
        raise TypeError(f"{type(files).__name__} cannot be laid over: it maps nothing privately")
    return OverlayFileSystem(cast(PrivateBase, files))
