"""The four seams: file system, clock, scheduling, randomness.

The engine imports none of them; it is handed a ``Seams``. Production, the copy-on-write overlay
and the simulated disk are three implementations of ``FileSystem`` (``posix_files``,
``overlay_files`` and ``simulation``).
"""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileStat:
    """Metadata of one path in the file system."""

    size: int
    modified_ms: int
    """Last modification, milliseconds since the epoch."""
    is_directory: bool
    place: tuple[int, int] = (0, 0)
    """Volume and number of the file: another file at the same path has others."""
    links: int = 1
    """Names of the file: several are hard links."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the volume that holds a path, as an unprivileged user may use them."""

    total: int
    used: int
    free: int
    device: int = 0
    """The same number for every path of one volume."""


class MappedBytes(Protocol):
    """A whole file mapped into memory.

    ``view`` stays valid as long as it or a slice of it is kept, also after ``unmap`` and
    after the file was unlinked: memory is given back when the last slice goes.
    """

    @property
    def view(self) -> memoryview:
        """The whole file, writable if it was mapped so."""

    @property
    def size(self) -> int:
        """Bytes of the file."""

    def sync(self) -> None:
        """fdatasync: every byte stored before the call is on disk at return. OSError if not."""

    def rewrite(self, offset: int, length: int) -> None:
        """Store a range's bytes again as they are, so that the next ``sync`` writes them.

        After a sync that failed the kernel calls pages clean that the disk never got.
        """

    def write(self, offset: int, data: memoryview) -> None:
        """Copy into the page cache, without the GIL; seen by every map of the file. OSError."""

    def populate(self, offset: int, length: int) -> None:
        """Fault pages in for writing, without the GIL. A hint: never raises."""

    def load(self, offset: int, length: int) -> None:
        """Bring pages into memory as they are, and clean, without the GIL. A hint: never raises."""

    def lock(self) -> None:
        """Keep every page in memory (mlock, and madvise WILLNEED), without the GIL.

        OSError when the system refuses, as it does beyond RLIMIT_MEMLOCK.
        """

    def unlock(self) -> None:
        """Undo ``lock``, without the GIL. Never raises."""

    def unmap(self) -> None:
        """Drop our own reference and close the descriptor. Idempotent."""


class FileLock(Protocol):
    """A held lock of one file."""

    def release(self) -> None:
        """Give the lock up. Idempotent."""

    def is_in_place(self) -> bool:
        """Whether the locked file is still the one at its path: once it was deleted or replaced,
        another process can lock the path too. OSError."""


class FileSystem(Protocol):
    """All operations of the engine on files. Paths are absolute; failures raise OSError.

    A symbolic link, pipe, socket or device at the end of a path is an OSError in each operation
    that looks at it or opens it: nothing is followed, and nothing blocks.
    """

    def stat(self, path: Path) -> FileStat | None:
        """None when it is not there."""

    def watch_places(self, places: Mapping[Path, tuple[int, int]]) -> Callable[[], bool]:
        """Returns a fast check whether each path still has the file or directory of that ``place``.

        False is no proof: ``stat`` decides. The check raises nothing, and any thread may call it.
        """

    def list(self, directory: Path) -> list[str]:
        """Names in a directory, sorted; empty when there is none, or only a file of that name."""

    def irregular(self, directory: Path) -> builtins.list[str]:
        """Names of its links, pipes, sockets and devices, sorted; none where there is none."""

    def real_path(self, path: Path) -> Path:
        """Absolute, with every symbolic link followed, as far as the path exists."""

    def is_mount_point(self, path: Path) -> bool:
        """Whether a file system or a part of one is mounted there: nothing can be renamed into it
        from beside it."""

    def make_directories(self, path: Path, *, sync: bool = True) -> None:
        """Create a directory and its parents; each new entry is synced into its parent, and so
        is the parent's own, as who made that may have died before. What cannot be synced is
        removed again, so that the next call does not take it for durable. Without ``sync``, the
        caller syncs the parents before it relies on them."""

    def read(self, path: Path) -> bytes:
        """A whole small file; OSError (EFBIG) for one of more than SMALL_FILE_MAX bytes."""

    def read_range(self, path: Path, offset: int, length: int, *, keep: bool) -> bytes:
        """Some bytes of a file, fewer at its end.

        Unless ``keep``, pages of them that no process has mapped are let go from memory afterwards.
        """

    def write(self, path: Path, data: bytes) -> None:
        """Create or replace a small file's content and sync the file; not atomic by itself.

        OSError (EMLINK) for a file with several names."""

    def append(self, path: Path, data: bytes) -> None:
        """Add bytes to the end of a small file, made when missing, and sync its content.

        On failure some of the bytes may be there."""

    def create(
        self, path: Path, size: int, *, reserve: int | None = None, sync: bool = True
    ) -> None:
        """Make a new zero-filled file of exactly ``size`` bytes and, unless ``sync`` is False, sync
        it.

        ``reserve`` bytes from its start (default: all) get disk blocks (posix_fallocate). On
        failure, ENOSPC included, nothing is left behind. FileExistsError when it is there.
        """

    def reserve(self, path: Path, offset: int, length: int) -> None:
        """Give disk blocks to a range of a file without changing its size."""

    def extend(self, path: Path, size: int) -> None:
        """Lengthen a file with zeros to ``size`` (never shortens: readers may map it) and sync."""

    def copy(self, source: Path, target: Path, offset: int = 0, length: int | None = None) -> None:
        """Copy a byte range into a new file and sync it."""

    def rename(self, source: Path, target: Path) -> None:
        """Atomic replace; durable only after ``sync_directory`` of both parents."""

    def unlink(self, path: Path) -> None:
        """Remove a file's name; durable only after ``sync_directory`` of its parent."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; durable only after ``sync_directory`` of its parent."""

    def sync_directory(self, path: Path) -> None:
        """fsync a directory: its entries are durable at return."""

    def map(self, path: Path, *, writable: bool, sparse: bool = False) -> MappedBytes:
        """Map a whole file.

        Of a ``sparse`` one few pages are in use, and there are many such files: no page is read
        ahead or made around one that is in use, and no descriptor is kept, so that ``sync`` opens
        the file again and ``write`` is not possible. A ``writable`` map of a file with several
        names is an OSError (EMLINK): each store to it would change another file.
        """

    def map_memory(self, size: int) -> MappedBytes:
        """Zero-filled memory of no file; only ``view``, locking and ``unmap`` mean anything."""

    def lock(self, path: Path) -> FileLock:
        """Hold RocketMQ's ``lock`` (byte 0, F_OFD_SETLK) or StoreLocked.

        A new or empty file gets RocketMQ's content, durably; another one is not written.
        """

    def is_locked(self, path: Path) -> bool:
        """Whether some process (either implementation) holds the lock; takes nothing."""

    def next_data(self, path: Path, offset: int) -> int | None:
        """The first byte at or after ``offset`` that may be other than zero; None when there is
        none. A hint of what need not be read: what lies between is a hole or was never written."""

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Date a file's last modification, for bytes that were only stored again. Not synced."""

    def usage(self, path: Path) -> DiskUsage:
        """The room of the volume that holds a path."""


class Clock(Protocol):
    """The two clocks of the machine."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch. May step either way."""

    def monotonic(self) -> float:
        """Seconds; never goes back."""


class Signal(Protocol):
    """A condition variable, or its simulation in steps."""

    def notify(self) -> None:
        """Wake every waiter so that it looks at its predicate again."""

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        """Block until ``predicate()`` or the time is up; returns the predicate's last value."""


class BackgroundService(Protocol):
    """A service that runs in steps: threads call them, and in simulation a seeded loop."""

    @property
    def name(self) -> str:
        """Unique among the services of a store."""

    def step(self, now: float) -> float:
        """Do what is due at monotonic time ``now``; return when to be called next (math.inf: only
        when woken). An exception ends the store: it is handed to the scheduler's ``on_failure``."""


class ServiceHandle(Protocol):
    """A service that was started."""

    def wake(self) -> None:
        """Request a step soon; never blocks, callable from any thread."""

    def stop(self) -> None:
        """No step runs after this returns. Idempotent."""


class Scheduler(Protocol):
    """Runs background services, and lets threads wait for one another."""

    def signal(self) -> Signal:
        """A new signal without waiters."""

    def start(
        self, service: BackgroundService, on_failure: Callable[[BaseException], None]
    ) -> ServiceHandle:
        """Run a service until it is stopped. ``on_failure`` is called with the error that ends
        it."""


@dataclass(frozen=True, slots=True)
class Seams:
    """The four seams of one process."""

    files: FileSystem
    clock: Clock
    scheduler: Scheduler
    random: random.Random
