"""A disk in memory that loses, tears and reorders whatever was not synced.

Each file has the content of the page cache, which every process sees, and the content that would
survive a power cut. Changed pages are found by comparing at each operation that has an effect, so
code that stores into a map needs no hook. Names, too, become durable only by ``sync_directory``.
"""

from __future__ import annotations

import builtins
import errno
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from mqstore.storage.errors import StoreLocked
from mqstore.storage.seams import DiskUsage, FileLock, FileStat, MappedBytes
from mqstore.storage.system.posix_files import LOCK_CONTENT
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk_lock import SimulatedLock
from tests.simulation.inode import NEVER, PAGE, Inode, Loss, page_bits, page_of, pages
from tests.simulation.mapping import SimulatedMapping, SimulatedMemory

CAPACITY: Final = 1 << 30
"""More than any workload fills: blocks are not counted then."""
READS: Final = frozenset(
    {"stat", "list", "read", "map", "is_locked", "next_data", "usage", "holds"}
)
CONTENT: Final = frozenset({"write", "append", "create", "copy", "sync", "write_through"})
"""Operations that a full or failing disk may leave half done."""


class PowerCut(BaseException):
    """The machine stopped: everything unwinds, and nothing done meanwhile has an effect."""


class Mark(Enum):
    DIRECTORY = "directory"
    GONE = "gone"


Node = Inode | Mark
Tree = dict[str, dict[str, Node]]
"""By directory, what its names are."""
Change = dict[str, Node]
"""Changes of one operation, by path; a crash keeps all or none of them before a sync."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of one operation: an errno, or None for a power cut."""

    error: int | None
    short: bool = False
    """Part of the content gets there first."""


class SimulatedDisk:
    """``seams.FileSystem`` in memory. One thread."""

    def __init__(self, clock: SimulatedClock, *, capacity: int = CAPACITY) -> None:
        self.clock = clock
        self.capacity = capacity
        """Bytes; more blocks than this, all files together, is ENOSPC."""
        self.trace: list[str] = []
        """Every operation, by number."""
        self.effects: list[int] = []
        """Numbers of those that were more than reading: where to cut."""
        self.holes_written: list[str] = []
        """Stores into pages without blocks: on a full disk each would have been a SIGBUS."""
        self.before_effect: Callable[[], None] | None = None
        """Called before each operation that is more than reading."""
        self._tree: Tree = {"/": {}}
        self._durable: Tree = {"/": {}}
        self._pending: list[tuple[int, Change]] = []
        self._mapped: dict[Inode, str] = {}
        self._unlinked: list[Inode] = []
        """Without a name; their blocks are in use for as long as any process maps them."""
        self.locks: set[Inode] = set()
        self._faults: dict[int, Fault] = {}
        self._next_faults: dict[str, Fault] = {}
        self._dead = False
        clock.glance = self._glance

    # faults

    def fail_at(self, number: int, error: int, *, short: bool = False) -> None:
        """The operation with this number in the trace fails with an errno."""
        self._faults[number] = Fault(error, short)

    def fail_next(self, name: str, error: int, *, short: bool = False) -> None:
        """The next operation of this name fails with an errno."""
        self._next_faults[name] = Fault(error, short)

    def forgive(self) -> None:
        """No operation is to fail any more."""
        self._faults.clear()
        self._next_faults.clear()

    def cut_at(self, number: int) -> None:
        """The power fails at the operation with this number, before it has an effect."""
        self._faults[number] = Fault(None)

    def power_cut(self, seed: int, loss: Loss = Loss.TORN_512) -> SimulatedDisk:
        """The disk after the power came back, on a clock of its own."""
        self.look()
        rng = random.Random(seed)
        moment = self._last_moment(rng) if loss is Loss.PREFIX else NEVER
        tree = {path: dict(names) for path, names in self._durable.items()}
        for when, change in self._pending:
            if loss is Loss.DROP or (loss is Loss.PREFIX and when > moment):
                continue
            if loss is Loss.PREFIX or rng.random() < 0.5:
                _apply(change, tree)
        survivor = _once(lambda inode: inode.survive(rng, loss, moment))
        after = SimulatedDisk(self.clock.copy(), capacity=self.capacity)
        after.clock.starts += 1
        after._tree = _translate(_reachable(tree), survivor)
        after._durable = {path: dict(names) for path, names in after._tree.items()}
        return after

    def kill(self) -> SimulatedDisk:
        """The disk as the next process finds it after kill -9: the page cache is all there."""
        self.look()
        clone = _once(Inode.clone)
        after = SimulatedDisk(self.clock.copy(), capacity=self.capacity)
        after._tree = _translate(self._tree, clone)
        after._durable = _translate(self._durable, clone)
        after._pending = [
            (NEVER, {p: clone(n) if isinstance(n, Inode) else n for p, n in change.items()})
            for _, change in self._pending
        ]
        for inode in _inodes(after._tree):
            inode.date_back()
        return after

    @property
    def has_lost_pages(self) -> bool:
        """Whether the next power cut loses what failed syncs left in the page cache."""
        return any(inode.lost for inode in _inodes(self._tree))

    def paths(self) -> builtins.list[Path]:
        """Every file with its content in the page cache."""
        found = (
            Path(directory, name)
            for directory, names in self._tree.items()
            for name, node in names.items()
            if isinstance(node, Inode)
        )
        return sorted(found)

    def save(self, directory: Path, target: Path) -> None:
        """Copy the files below a directory, as in the page cache, onto the real disk."""
        self.look()
        for path in self.paths():
            if path.is_relative_to(directory):
                real = target / path.relative_to(directory)
                real.parent.mkdir(parents=True, exist_ok=True)
                real.write_bytes(self._inode(str(path)).seen)

    def copy_tree(self, source: Path, target: Path, *, keep_times: bool = True) -> None:
        """As ``cp -a`` does, or ``cp -r``: new files with the content of the page cache."""
        self.look()
        self.make_directories(target)
        for name, node in list(self._tree[str(source)].items()):
            if isinstance(node, Inode):
                copied = Inode(node.seen, node.modified_ms if keep_times else self.clock.now_ms())
                copied.durable, copied.reserved = copied.seen, node.reserved
                self._change({str(target / name): copied})
            else:
                self.copy_tree(source / name, target / name, keep_times=keep_times)
        self.sync_directory(target)

    def _last_moment(self, rng: random.Random) -> int:
        """Up to when everything survives."""
        moments = {when for when, _ in self._pending} | {NEVER}
        for inode in _inodes(self._tree):
            moments.update(when for versions in inode.dirty.values() for when, _ in versions)
        return rng.choice(sorted(moments))

    def _operation(self, name: str, path: str) -> Fault | None:
        """Count it, look for changed pages, and let it fail where a fault is planned.

        A fault that leaves content half done is handed to the caller to raise.
        """
        if self._dead:
            raise PowerCut
        number = len(self.trace)
        if name not in READS:
            self.look()
            if self.before_effect is not None:
                self.before_effect()
            self.effects.append(number)
        self.trace.append(f"{name} {path}")
        if not self._faults and not self._next_faults:
            return None
        fault = self._faults.pop(number, None) or self._next_faults.pop(name, None)
        if fault is None or (fault.short and name in CONTENT):
            return fault
        raise self._failure(fault, path)

    def _failure(self, fault: Fault, path: str) -> BaseException:
        if fault.error is None:
            self._dead = True
            return PowerCut()
        return _error(fault.error, path)

    def look(self) -> None:
        """Take note of the pages that changed since the last look: a version of each."""
        if not self._dead:
            for inode in self._mapped:
                if inode.memory is not None and inode.memory != inode.seen:
                    self._look_at(inode)

    def _look_at(self, inode: Inode) -> None:
        for page in inode.look(len(self.trace), self.clock.now_ms()):
            self.holes_written.append(f"page {page} of {self._mapped[inode]}")

    def _glance(self) -> None:
        """The clock was read: time enough to see that lost pages are stored again, which
        need not show any more at the next operation."""
        if not self._dead:
            for inode in self._mapped:
                if inode.lost:
                    self._look_at(inode)

    # seams.FileSystem

    def stat(self, path: Path) -> FileStat | None:
        name = str(path)
        self._operation("stat", name)
        node = self._node(name)
        if isinstance(node, Inode):
            if node in self._mapped:
                self._look_at(node)
            return FileStat(node.size, node.modified_ms, is_directory=False)
        return None if node is None else FileStat(0, self.clock.now_ms(), is_directory=True)

    def watch_places(self, places: Mapping[Path, tuple[int, int]]) -> Callable[[], bool]:
        return lambda: False

    def irregular(self, directory: Path) -> builtins.list[str]:
        return []

    def real_path(self, path: Path) -> Path:
        return path

    def is_mount_point(self, path: Path) -> bool:
        return False

    def list(self, directory: Path) -> list[str]:
        name = str(directory)
        self._operation("list", name)
        return sorted(self._tree.get(name, ()))

    def make_directories(self, path: Path, *, sync: bool = True) -> None:
        name = str(path)
        node = self._node(name)
        if node is None:
            self.make_directories(path.parent, sync=sync)
            self._operation("make_directory", name)
            self._change({name: Mark.DIRECTORY})
            if not sync:
                return
            try:
                self.sync_directory(path.parent)
                self.sync_directory(path.parent.parent)
            except OSError:
                self._change({name: Mark.GONE})
                raise
        elif node is not Mark.DIRECTORY:
            raise _error(errno.ENOTDIR, name)

    def read(self, path: Path) -> bytes:
        name = str(path)
        self._operation("read", name)
        return self._content(self._inode(name))

    def read_range(self, path: Path, offset: int, length: int, *, keep: bool) -> bytes:
        return self.read(path)[offset : offset + length]

    def write(self, path: Path, data: bytes) -> None:
        self._write("write", str(path), data, keep=False)

    def append(self, path: Path, data: bytes) -> None:
        self._write("append", str(path), data, keep=True)

    def _write(self, operation: str, name: str, data: bytes, *, keep: bool) -> None:
        fault = self._operation(operation, name)
        data = data if fault is None else data[: len(data) // 2]
        if self._node(name) is None:
            self._check_absent(name)
            self._change({name: Inode(b"", self.clock.now_ms())})
        inode = self._inode(name)
        self._check_room(inode.new_blocks(inode.size if keep else 0, len(data)))
        store = inode.append if keep else inode.replace
        store(data, len(self.trace), self.clock.now_ms())
        if fault is not None:
            raise self._failure(fault, name)
        self.sync_inode(name, inode)

    def create(
        self, path: Path, size: int, *, reserve: int | None = None, sync: bool = True
    ) -> None:
        inode = Inode(bytes(size), self.clock.now_ms())
        inode.reserve(0, size if reserve is None else min(reserve, size))
        self._make("create", str(path), inode, sync=sync)

    def reserve(self, path: Path, offset: int, length: int) -> None:
        name = str(path)
        self._operation("reserve", name)
        inode = self._inode(name)
        length = min(length, inode.size - offset)
        self._check_room(inode.new_blocks(offset, length))
        inode.reserve(offset, length)

    def extend(self, path: Path, size: int) -> None:
        name = str(path)
        self._operation("extend", name)
        inode = self._inode(name)
        if size < inode.size:
            raise _error(errno.EINVAL, name)
        inode.resize(size)
        self.sync_inode(name, inode)

    def copy(self, source: Path, target: Path, offset: int = 0, length: int | None = None) -> None:
        content = self._content(self._inode(str(source)))
        end = len(content) if length is None else offset + length
        inode = Inode(b"", self.clock.now_ms())
        inode.replace(content[offset:end], len(self.trace), self.clock.now_ms())
        self._make("copy", str(target), inode)

    def rename(self, source: Path, target: Path) -> None:
        origin, name = str(source), str(target)
        self._operation("rename", name)
        self._check_directory(_split(name)[0])
        if isinstance(replaced := self._node(name), Inode):
            self._unlinked.append(replaced)
        self._change({origin: Mark.GONE, name: self._inode(origin)})

    def unlink(self, path: Path) -> None:
        name = str(path)
        self._operation("unlink", name)
        self._unlinked.append(self._inode(name))
        self._change({name: Mark.GONE})

    def remove_directory(self, path: Path) -> None:
        name = str(path)
        self._operation("remove_directory", name)
        self._check_directory(name)
        if self._tree[name]:
            raise _error(errno.ENOTEMPTY, name)
        self._change({name: Mark.GONE})

    def sync_directory(self, path: Path) -> None:
        name = str(path)
        self._operation("sync_directory", name)
        self._check_directory(name)
        if not self._pending:
            return
        for _, change in self._pending:
            for synced in [path for path in change if _is_in(path, name)]:
                _apply({synced: change.pop(synced)}, self._durable)
        self._pending = [(when, change) for when, change in self._pending if change]

    def map(self, path: Path, *, writable: bool, sparse: bool = False) -> MappedBytes:
        name = str(path)
        self._operation("map", name)
        inode = self._inode(name)
        if writable:
            self._mapped[inode] = name
            inode.maps += 1
        return SimulatedMapping(self, name, inode, writable=writable)

    def map_memory(self, size: int) -> MappedBytes:
        return SimulatedMemory(size)

    def map_private(self, path: Path) -> memoryview:
        """A copy, for an overlay over this disk."""
        self._operation("map", str(path))
        return memoryview(bytearray(self._content(self._inode(str(path)))))

    def lock(self, path: Path) -> FileLock:
        name = str(path)
        self._operation("lock", name)
        inode = self._node(name)
        if inode in self.locks:
            raise StoreLocked(f"{path} is held by another process; stop that first")
        if not isinstance(inode, Inode):
            self._check_absent(name)
            inode = Inode(b"", self.clock.now_ms())
            self._change({name: inode})
        if not inode.seen:
            inode.replace(LOCK_CONTENT, len(self.trace), self.clock.now_ms())
            self.sync_inode(name, inode)
        self.locks.add(inode)
        return SimulatedLock(self, name, inode)

    def holds(self, path: str, inode: Inode) -> bool:
        """Whether a name is still that file's."""
        self._operation("holds", path)
        return self._node(path) is inode

    def is_locked(self, path: Path) -> bool:
        self._operation("is_locked", str(path))
        return self._node(str(path)) in self.locks

    def next_data(self, path: Path, offset: int) -> int | None:
        """Pages of zeros, in memory and on the disk, are passed over, as if each were a hole."""
        self._operation("next_data", str(path))
        inode = self._inode(str(path))
        content = self._content(inode)
        for page in range(offset // PAGE, len(pages(len(content)))):
            if any(page_of(content, page)) or any(page_of(inode.durable, page)):
                return max(offset, page * PAGE)
        return None

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._operation("set_modified", str(path))
        self._inode(str(path)).modified_ms = modified_ms

    def usage(self, path: Path) -> DiskUsage:
        self._operation("usage", str(path))
        used = self._used_pages() * PAGE
        return DiskUsage(self.capacity, used, max(0, self.capacity - used))

    # what mappings do

    def sync_inode(self, path: str, inode: Inode) -> None:
        try:
            fault = self._operation("sync", path)
            if fault is not None:
                inode.write_back_half(len(self.trace))
                raise self._failure(fault, path)
        except OSError:
            inode.forget_dirty()
            raise
        inode.write_back()

    def write_through(self, path: str, inode: Inode, offset: int, data: memoryview) -> None:
        fault = self._operation("write_through", path)
        if fault is not None:
            data = data[: len(data) // 2]
        inode.map()[offset : offset + len(data)] = data
        self._look_at(inode)
        if fault is not None:
            raise self._failure(fault, path)

    def rewrite(self, inode: Inode, offset: int, length: int) -> None:
        self._look_at(inode)
        touched = page_bits(offset, length)
        for page in range(touched.bit_length()):
            if touched >> page & 1:
                inode.touch(page, len(self.trace))

    def unmapped(self, inode: Inode) -> None:
        if inode in self._mapped and not self._dead:
            self._look_at(inode)
        inode.maps -= 1
        if inode.maps == 0:
            self._mapped.pop(inode, None)

    # names

    def _node(self, path: str) -> Node | None:
        if path == "/":
            return Mark.DIRECTORY
        directory, name = _split(path)
        return self._tree.get(directory, {}).get(name)

    def _make(self, name: str, path: str, inode: Inode, *, sync: bool = True) -> None:
        """Add a new file and, by default, sync it; a failure leaves nothing, a power cut may."""
        fault = self._operation(name, path)
        self._check_absent(path)
        self._check_room(inode.blocks)
        self._change({path: inode})
        try:
            if fault is not None:
                inode.resize(inode.size // 2)
                raise self._failure(fault, path)
            if sync:
                self.sync_inode(path, inode)
        except OSError:
            self._change({path: Mark.GONE})
            raise

    def _change(self, change: Change) -> None:
        _apply(change, self._tree)
        self._pending.append((len(self.trace), change))

    def _inode(self, path: str) -> Inode:
        node = self._node(path)
        if isinstance(node, Inode):
            return node
        raise _error(errno.ENOENT if node is None else errno.EISDIR, path)

    def _content(self, inode: Inode) -> bytes:
        if inode in self._mapped:
            self._look_at(inode)
        return inode.seen

    def _check_absent(self, path: str) -> None:
        self._check_directory(_split(path)[0])
        if self._node(path) is not None:
            raise _error(errno.EEXIST, path)

    def _check_directory(self, path: str) -> None:
        node = self._node(path)
        if node is not Mark.DIRECTORY:
            above = node is None and not isinstance(self._node(_split(path)[0]), Inode)
            raise _error(errno.ENOENT if above else errno.ENOTDIR, path)

    # room

    def _used_pages(self) -> int:
        self._unlinked = [inode for inode in self._unlinked if inode.is_mapped]
        return sum(inode.blocks for inode in (*_inodes(self._tree), *self._unlinked))

    def _check_room(self, more_pages: int) -> None:
        if not more_pages or self.capacity == CAPACITY:
            return
        if (self._used_pages() + more_pages) * PAGE > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory or "/", name


def _is_in(path: str, directory: str) -> bool:
    """Whether it is a name of that directory itself."""
    return path.startswith(directory) and _split(path)[0] == directory


def _apply(change: Change, tree: Tree) -> None:
    for path, node in change.items():
        directory, name = _split(path)
        names = tree.setdefault(directory, {})
        if node is not Mark.GONE:
            names[name] = node
        elif names.pop(name, None) is Mark.DIRECTORY:
            tree.pop(path, None)
        if node is Mark.DIRECTORY:
            tree.setdefault(path, {})


def _reachable(tree: Tree, path: str = "/") -> Tree:
    """Without what lies in directories that did not survive."""
    names = tree.get(path, {})
    reachable = {path: names}
    for name, node in names.items():
        if node is Mark.DIRECTORY:
            reachable |= _reachable(tree, f"{'' if path == '/' else path}/{name}")
    return reachable


def _translate(tree: Tree, copy: Callable[[Inode], Inode]) -> Tree:
    return {
        path: {name: copy(n) if isinstance(n, Inode) else n for name, n in names.items()}
        for path, names in tree.items()
    }


def _inodes(tree: Tree) -> builtins.list[Inode]:
    found = (n for names in tree.values() for n in names.values() if isinstance(n, Inode))
    return list(dict.fromkeys(found))


def _once(copy: Callable[[Inode], Inode]) -> Callable[[Inode], Inode]:
    """Copy each file once, however many names it has."""
    copies: dict[Inode, Inode] = {}

    def copy_once(inode: Inode) -> Inode:
        if inode not in copies:
            copies[inode] = copy(inode)
        return copies[inode]

    return copy_once


def _error(number: int, path: str) -> OSError:
    """OSError picks the subclass (FileNotFoundError and so on) by the number."""
    return OSError(number, os.strerror(number), path)
