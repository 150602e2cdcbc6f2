"""A disk in memory that loses, tears and reorders whatever was not synced.

Each file has the content that everybody sees (the page cache) and the content that would survive a
power cut. Changed pages are found by comparing at each operation, so code that stores into a map
needs no hook. Names, too, become durable only by ``sync_directory``.
"""

from __future__ import annotations

import builtins
import errno
import os
import random
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, Literal

from mqstore.storage import native
from mqstore.storage.errors import StoreLocked
from mqstore.storage.posix_files import LOCK_CONTENT
from mqstore.storage.seams import Clock, DiskUsage, FileLock, FileStat, MappedBytes

PAGE: Final = 4096
SECTOR: Final = 512
CAPACITY: Final = 1 << 30
SPARE_MEMORY: Final = 1 << 20
"""Address space behind each file's end, so that it can grow under those who have it mapped."""
READS: Final = frozenset({"stat", "list", "read", "map", "is_locked", "usage"})

Torn = Literal[512, 4096]


class PowerCut(BaseException):
    """The machine stopped: everything unwinds, and nothing done meanwhile has an effect."""


class _Inode:
    """One file: what everybody sees, what is durable, and what may be, page by page."""

    def __init__(self, size: int, modified_ms: int) -> None:
        self.memory = native.map_anonymous(size + SPARE_MEMORY)
        self.size = size
        self.modified_ms = modified_ms
        self.seen = bytes(size)
        """The content at the last look."""
        self.durable = b""
        self.dirty: dict[int, list[bytes]] = {}
        """By page, each content seen since the page was last written back."""
        self.reserved: set[int] = set()
        """Pages that have disk blocks."""

    @property
    def view(self) -> memoryview:
        return self.memory[: self.size]

    def look(self, now_ms: int) -> list[int]:
        """Find the pages that changed since the last look; answers those in holes."""
        content = bytes(self.view)
        if content == self.seen:
            return []
        changed = [
            page for page in _pages(len(content)) if _page(content, page) != _page(self.seen, page)
        ]
        for page in changed:
            self.dirty.setdefault(page, []).append(_page(content, page))
        self.seen = content
        self.modified_ms = now_ms
        return [page for page in changed if page not in self.reserved]

    def replace(self, data: bytes, now_ms: int) -> None:
        """Give it other content, as writing through a descriptor does: blocks come along."""
        self.resize(len(data))
        self.memory[: len(data)] = data
        self.reserve(0, len(data))
        self.look(now_ms)

    def resize(self, size: int) -> None:
        if size > len(self.memory):
            raise AssertionError(f"simulated files grow by at most {SPARE_MEMORY} bytes")
        if size < self.size:
            self.memory[size : self.size] = bytes(self.size - size)
        self.size = size
        self.seen = self.seen[:size].ljust(size, b"\0")

    def reserve(self, offset: int, length: int) -> None:
        self.reserved.update(self.pages_of(offset, length))

    @staticmethod
    def pages_of(offset: int, length: int) -> set[int]:
        return set(range(offset // PAGE, -(-(offset + length) // PAGE)))

    def write_back(self) -> int:
        """All dirty pages become durable; how many."""
        durable = bytearray(self.durable[: self.size].ljust(self.size, b"\0"))
        for page in self.dirty:
            durable[page * PAGE : (page + 1) * PAGE] = _page(self.seen, page)
        self.durable = bytes(durable[: self.size])
        return self.forget_dirty()

    def forget_dirty(self) -> int:
        """All pages count as clean, as they do after a sync that failed."""
        pages = len(self.dirty)
        self.dirty = {}
        return pages

    def survive(self, rng: random.Random, torn: Torn | None) -> _Inode:
        """The file as a power cut leaves it."""
        content = self._surviving_content(rng, torn) if torn else self.durable
        return self._copy(content, content, {})

    def _surviving_content(self, rng: random.Random, torn: Torn) -> bytes:
        sizes = {len(self.durable), self.size}
        if len(sizes) > 1:
            sizes.add(0)
        size = rng.choice(sorted(sizes))
        longest = max(self.size, len(self.durable))
        content = bytearray(self.durable.ljust(longest, b"\0"))
        for page, versions in sorted(self.dirty.items()):
            candidates = [_page(content, page), *versions]
            for start in range(0, PAGE, torn):
                part = rng.choice(candidates)[start : start + torn]
                content[page * PAGE + start : page * PAGE + start + len(part)] = part
        return bytes(content[:size].ljust(size, b"\0"))

    def clone(self) -> _Inode:
        """The file as the next process finds it: page cache and all."""
        dirty = {page: list(versions) for page, versions in self.dirty.items()}
        return self._copy(self.seen, self.durable, dirty)

    def _copy(self, content: bytes, durable: bytes, dirty: dict[int, list[bytes]]) -> _Inode:
        copied = _Inode(len(content), self.modified_ms)
        copied.memory[: len(content)] = content
        copied.seen, copied.durable, copied.dirty = content, durable, dirty
        copied.reserved = set(self.reserved)
        return copied


class Mark(Enum):
    DIRECTORY = "directory"
    GONE = "gone"


Names = dict[Path, _Inode | Mark]
"""What a path is. As a change: what one operation did, which survives whole or not at all until a
directory is synced."""


class SimulatedMapping:
    """``seams.MappedBytes``."""

    def __init__(self, disk: SimulatedDisk, path: Path, inode: _Inode, *, writable: bool) -> None:
        self.size = inode.size
        self.view = inode.view if writable else inode.view.toreadonly()
        self._disk = disk
        self._path = path
        self._inode: _Inode | None = inode if writable else None

    def sync(self) -> None:
        if self._inode is not None:
            self._disk.sync_inode(self._path, self._inode)

    def populate(self, offset: int, length: int) -> None:
        pass

    def unmap(self) -> None:
        self._inode = None


class SimulatedLock:
    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedDisk:
    """``seams.FileSystem`` in memory. One thread."""

    def __init__(self, clock: Clock, *, capacity: int = CAPACITY) -> None:
        self.clock = clock
        self.capacity = capacity
        """Bytes; more blocks than this, all files together, is ENOSPC."""
        self.trace: list[str] = []
        """Every operation, by number."""
        self.holes_written: list[str] = []
        """Stores into pages without blocks: on a full disk each would have been a SIGBUS."""
        self._names: Names = {Path("/"): Mark.DIRECTORY}
        self._durable_names: Names = dict(self._names)
        self._pending: list[Names] = []
        self._mapped: dict[_Inode, Path] = {}
        self._locks: set[Path] = set()
        self._faults: dict[int, int | None] = {}
        self._next_faults: dict[str, int] = {}
        self._dead = False

    # faults

    def fail_at(self, number: int, error: int) -> None:
        """The operation with this number in the trace fails with an errno."""
        self._faults[number] = error

    def fail_next(self, name: str, error: int) -> None:
        """The next operation of this name fails with an errno."""
        self._next_faults[name] = error

    def cut_at(self, number: int) -> None:
        """The power fails at the operation with this number, before it has an effect."""
        self._faults[number] = None

    @property
    def effects(self) -> list[int]:
        """Numbers of the operations so far that were more than reading: where to cut."""
        return [n for n, line in enumerate(self.trace) if line.split(" ", 1)[0] not in READS]

    def power_cut(self, seed: int, torn: Torn | None = SECTOR) -> SimulatedDisk:
        """The disk after the power came back.

        ``torn`` is the unit of unsynced content that persists or not on its own; unsynced changes
        of names persist or not, one by one. None: nothing that was not synced persists.
        """
        self._look()
        rng = random.Random(seed)
        names = dict(self._durable_names)
        for change in self._pending:
            if torn is not None and rng.random() < 0.5:
                _apply(change, names)
        survivor = _once(lambda inode: inode.survive(rng, torn))
        after = SimulatedDisk(self.clock, capacity=self.capacity)
        after._names = _translate(_reachable(names), survivor)
        after._durable_names = dict(after._names)
        return after

    def kill(self) -> SimulatedDisk:
        """The disk as the next process finds it after kill -9: the page cache is all there."""
        self._look()
        clone = _once(_Inode.clone)
        after = SimulatedDisk(self.clock, capacity=self.capacity)
        after._names = _translate(self._names, clone)
        after._durable_names = _translate(self._durable_names, clone)
        after._pending = [_translate(change, clone) for change in self._pending]
        return after

    def _operation(self, name: str, path: Path) -> None:
        """Count it, look for changed pages, and let it fail where it was told to."""
        if self._dead:
            raise PowerCut
        self._look()
        number = len(self.trace)
        self.trace.append(f"{name} {path}")
        if number in self._faults:
            error = self._faults.pop(number)
        elif name in self._next_faults:
            error = self._next_faults.pop(name)
        else:
            return
        if error is None:
            self._dead = True
            raise PowerCut
        raise _error(error, path)

    def _look(self) -> None:
        if self._dead:
            return
        for inode, path in self._mapped.items():
            for page in inode.look(self.clock.now_ms()):
                self.holes_written.append(f"page {page} of {path}")

    # seams.FileSystem

    def stat(self, path: Path) -> FileStat | None:
        self._operation("stat", path)
        node = self._names.get(path)
        if isinstance(node, _Inode):
            return FileStat(node.size, node.modified_ms, is_directory=False)
        return None if node is None else FileStat(0, self.clock.now_ms(), is_directory=True)

    def list(self, directory: Path) -> list[str]:
        self._operation("list", directory)
        return [path.name for path in self._children(directory)]

    def make_directories(self, path: Path) -> None:
        node = self._names.get(path)
        if node is None:
            self.make_directories(path.parent)
            self._operation("make_directory", path)
            self._change({path: Mark.DIRECTORY})
            self.sync_directory(path.parent)
        elif node is not Mark.DIRECTORY:
            raise _error(errno.ENOTDIR, path)

    def read(self, path: Path) -> bytes:
        self._operation("read", path)
        return bytes(self._inode(path).view)

    def write(self, path: Path, data: bytes) -> None:
        self._operation("write", path)
        if path not in self._names:
            self._check_absent(path)
            self._change({path: _Inode(0, self.clock.now_ms())})
        inode = self._inode(path)
        self._check_room(len(inode.pages_of(0, len(data)) - inode.reserved))
        inode.replace(data, self.clock.now_ms())
        self.sync_inode(path, inode)

    def create(self, path: Path, size: int, *, reserve: int | None = None) -> None:
        inode = _Inode(size, self.clock.now_ms())
        inode.reserve(0, size if reserve is None else min(reserve, size))
        self._make("create", path, inode)

    def reserve(self, path: Path, offset: int, length: int) -> None:
        self._operation("reserve", path)
        inode = self._inode(path)
        length = min(length, inode.size - offset)
        self._check_room(len(inode.pages_of(offset, length) - inode.reserved))
        inode.reserve(offset, length)

    def extend(self, path: Path, size: int) -> None:
        self._operation("extend", path)
        inode = self._inode(path)
        if size < inode.size:
            raise _error(errno.EINVAL, path)
        inode.resize(size)
        self.sync_inode(path, inode)

    def copy(self, source: Path, target: Path, offset: int = 0, length: int | None = None) -> None:
        content = bytes(self._inode(source).view)
        end = len(content) if length is None else offset + length
        inode = _Inode(0, self.clock.now_ms())
        inode.replace(content[offset:end], self.clock.now_ms())
        self._make("copy", target, inode)

    def rename(self, source: Path, target: Path) -> None:
        self._operation("rename", target)
        self._check_parent(target)
        self._change({source: Mark.GONE, target: self._inode(source)})

    def unlink(self, path: Path) -> None:
        self._operation("unlink", path)
        self._inode(path)
        self._change({path: Mark.GONE})

    def remove_directory(self, path: Path) -> None:
        self._operation("remove_directory", path)
        self._check_directory(path)
        if self._children(path):
            raise _error(errno.ENOTEMPTY, path)
        self._change({path: Mark.GONE})

    def sync_directory(self, path: Path) -> None:
        self._operation("sync_directory", path)
        self._check_directory(path)
        for change in self._pending:
            below = {p: node for p, node in change.items() if p.parent == path}
            _apply(below, self._durable_names)
            for synced in below:
                del change[synced]
        self._pending = [change for change in self._pending if change]

    def map(self, path: Path, *, writable: bool) -> MappedBytes:
        self._operation("map", path)
        inode = self._inode(path)
        if writable:
            self._mapped[inode] = path
        return SimulatedMapping(self, path, inode, writable=writable)

    def map_private(self, path: Path) -> memoryview:
        """A copy, for an overlay over this disk."""
        self._operation("map", path)
        return memoryview(bytearray(self._inode(path).view))

    def lock(self, path: Path) -> FileLock:
        self._operation("lock", path)
        if path in self._locks:
            raise StoreLocked(f"{path} is held by another process; stop that first")
        if path not in self._names:
            self._check_parent(path)
            inode = _Inode(0, self.clock.now_ms())
            inode.replace(LOCK_CONTENT, self.clock.now_ms())
            inode.write_back()
            self._change({path: inode})
        self._locks.add(path)
        return SimulatedLock(self._locks, path)

    def is_locked(self, path: Path) -> bool:
        self._operation("is_locked", path)
        return path in self._locks

    def usage(self, path: Path) -> DiskUsage:
        self._operation("usage", path)
        used = self._used_pages() * PAGE
        return DiskUsage(self.capacity, used, max(0, self.capacity - used))

    def sync_inode(self, path: Path, inode: _Inode) -> None:
        try:
            self._operation("sync", path)
        except OSError:
            inode.forget_dirty()
            raise
        inode.write_back()

    # names

    def _make(self, name: str, path: Path, inode: _Inode) -> None:
        """Add a new file and sync it; a failure leaves nothing."""
        self._operation(name, path)
        self._check_absent(path)
        self._check_room(len(inode.reserved))
        self._change({path: inode})
        try:
            self.sync_inode(path, inode)
        except OSError:
            self._change({path: Mark.GONE})
            raise

    def _change(self, change: Names) -> None:
        _apply(change, self._names)
        self._pending.append(change)

    def _inode(self, path: Path) -> _Inode:
        node = self._names.get(path)
        if isinstance(node, _Inode):
            return node
        raise _error(errno.ENOENT if node is None else errno.EISDIR, path)

    def _children(self, directory: Path) -> builtins.list[Path]:
        return sorted(p for p in self._names if p.parent == directory and p != directory)

    def _check_absent(self, path: Path) -> None:
        self._check_parent(path)
        if path in self._names:
            raise _error(errno.EEXIST, path)

    def _check_parent(self, path: Path) -> None:
        self._check_directory(path.parent)

    def _check_directory(self, path: Path) -> None:
        node = self._names.get(path)
        if node is not Mark.DIRECTORY:
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)

    # room

    def _used_pages(self) -> int:
        inodes = {node for node in self._names.values() if isinstance(node, _Inode)}
        return sum(len(inode.reserved) for inode in inodes)

    def _check_room(self, more_pages: int) -> None:
        if (self._used_pages() + more_pages) * PAGE > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _apply(change: Names, names: Names) -> None:
    for path, node in change.items():
        if node is Mark.GONE:
            names.pop(path, None)
        else:
            names[path] = node


def _reachable(names: Names) -> Names:
    """Without what lies in directories that did not survive."""
    reachable: Names = {}
    for path in sorted(names):
        if path.parent == path or reachable.get(path.parent) is Mark.DIRECTORY:
            reachable[path] = names[path]
    return reachable


def _translate(names: Names, copy: Callable[[_Inode], _Inode]) -> Names:
    return {p: copy(node) if isinstance(node, _Inode) else node for p, node in names.items()}


def _once(copy: Callable[[_Inode], _Inode]) -> Callable[[_Inode], _Inode]:
    """Copy each file once, however many names it has."""
    copies: dict[_Inode, _Inode] = {}

    def copy_once(inode: _Inode) -> _Inode:
        if inode not in copies:
            copies[inode] = copy(inode)
        return copies[inode]

    return copy_once


def _pages(size: int) -> range:
    return range(-(-size // PAGE))


def _page(content: bytes | bytearray, page: int) -> bytes:
    return bytes(content[page * PAGE : (page + 1) * PAGE])


def _error(number: int, path: Path) -> OSError:
    """OSError picks the subclass (FileNotFoundError and so on) by the number."""
    return OSError(number, os.strerror(number), str(path))
