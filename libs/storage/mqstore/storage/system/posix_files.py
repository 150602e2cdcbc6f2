"""The real file system behind ``seams.FileSystem``. Linux; thread-safe.

Every sync is ``os.fsync`` or ``os.fdatasync``, which release the GIL and cover mapped pages.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import RLock
from typing import Final

from mqstore.storage._kernel import PlaceWatch
from mqstore.storage.errors import StoreLocked
from mqstore.storage.layout import SMALL_FILE_MAX
from mqstore.storage.seams import DiskUsage, FileLock, FileStat, MappedBytes
from mqstore.storage.system import native
from mqstore.storage.system.file_limits import LINKED, too_large

LOCK_CONTENT: Final = b"lock"
"""The content of RocketMQ's ``lock`` file; its first byte is locked."""
COPY_CHUNK_SIZE: Final = 1 << 20
_FLOCK: Final = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, process id."""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4
"""The field of a line that holds the path, with octal escapes; see proc(5)."""
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
_MAKING_DIRECTORIES: Final = RLock()
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY
_FILE_MODE: Final = 0o666
"""Mode of new files before the process's umask, see ``umask``; the mode of directories is 0777."""
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL


class _Descriptor:
    """A descriptor that is closed with its last reference, so never during a sync."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class PosixMapping:
    """A mapped file. Only a writable one keeps a descriptor, or what finds the file again."""

    def __init__(
        self,
        view: memoryview,
        descriptor: _Descriptor | None,
        origin: tuple[Path, int, int] | None = None,
    ) -> None:
        """``origin``: path, device and inode of the file that ``sync`` opens, without a
        descriptor."""
        self.size = len(view)
        self._view: memoryview | None = view
        self._descriptor = descriptor
        self._origin = origin

    @property
    def view(self) -> memoryview:
        """The whole file."""
        if self._view is None:
            raise ValueError("the file was unmapped; map it again")
        return self._view

    def sync(self) -> None:
        """Sync the file; do nothing after ``unmap``, or when mapped read-only.

        A failed write that no descriptor has reported yet is reported to the next one that is
        opened, since the map keeps the file in memory: see fsync(2).
        """
        descriptor, origin = self._descriptor, self._origin
        if descriptor is not None:
            os.fdatasync(descriptor.number)
        elif origin is not None:
            with contextlib.suppress(FileNotFoundError):  # unlinked meanwhile
                _sync_again(*origin)

    def rewrite(self, offset: int, length: int) -> None:
        """Store a range's bytes again, so that the next ``sync`` writes them."""
        view = self.view
        for start in range(offset, offset + length, COPY_CHUNK_SIZE):
            end = min(start + COPY_CHUNK_SIZE, offset + length)
            view[start:end] = bytes(view[start:end])

    def write(self, offset: int, data: memoryview) -> None:
        """Copy ``data`` into the page cache."""
        descriptor = self._descriptor
        if descriptor is None:
            raise ValueError("the file is not mapped for writing; map it so")
        while data:
            written = os.pwrite(descriptor.number, data, offset)
            offset, data = offset + written, data[written:]

    def populate(self, offset: int, length: int) -> None:
        """Fault pages in for writing. A hint."""
        view = self._view
        if view is not None and not view.readonly:
            native.populate(view, offset, length)

    def load(self, offset: int, length: int) -> None:
        """Fault pages in for reading. A hint."""
        view = self._view
        if view is not None:
            native.load(view, offset, length)

    def lock(self) -> None:
        """Keep every page in memory."""
        native.lock(self.view)

    def unlock(self) -> None:
        """Undo ``lock``."""
        view = self._view
        if view is not None:
            native.unlock(view)

    def unmap(self) -> None:
        """Drop this object's reference and the descriptor."""
        self._view = self._descriptor = self._origin = None


class PosixLock:
    """RocketMQ's ``lock`` on an open file description; it ends with the process at the latest."""

    def __init__(self, path: Path, descriptor: _Descriptor) -> None:
        self._path = path
        self._descriptor: _Descriptor | None = descriptor

    def release(self) -> None:
        """Release the lock."""
        self._descriptor = None

    def is_in_place(self) -> bool:
        """Whether the locked file is still the one at its path."""
        descriptor = self._descriptor
        if descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(descriptor.number), self._path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False


class PosixFileSystem:
    """The ``seams.FileSystem`` of production."""

    def stat(self, path: Path) -> FileStat | None:
        """The state of a file or directory; None when it is missing."""
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise _irregular(path)
        modified_ms = found.st_mtime_ns // 1_000_000
        place = found.st_dev, found.st_ino
        is_directory = stat.S_ISDIR(found.st_mode)
        links = 1 if is_directory else found.st_nlink
        return FileStat(found.st_size, modified_ms, is_directory, place, links)

    def watch_places(self, places: Mapping[Path, tuple[int, int]]) -> Callable[[], bool]:
        """A check whether each path still has its file, in about 2 µs."""
        return PlaceWatch([(os.fsencode(path), place) for path, place in places.items()]).is_same

    def list(self, directory: Path) -> list[str]:
        """The names in a directory, sorted."""
        try:
            descriptor = os.open(directory, _DIRECTORY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            if directory.is_symlink():
                raise _irregular(directory) from None
            return []
        try:
            with os.scandir(descriptor) as entries:
                return sorted(entry.name for entry in entries)
        finally:
            os.close(descriptor)

    def irregular(self, directory: Path) -> builtins.list[str]:
        """The names of links, pipes, sockets and devices in a directory, sorted."""
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if not _is_regular(entry))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def real_path(self, path: Path) -> Path:
        """The absolute path with every symbolic link resolved."""
        return Path(os.path.realpath(path))

    def is_mount_point(self, path: Path) -> bool:
        """Whether a file system is mounted at ``path``."""
        mounted = os.fsencode(os.path.realpath(path))
        with _MOUNTS.open("rb") as mounts:
            return any(_unescape(line.split()[_MOUNT_POINT]) == mounted for line in mounts)

    def make_directories(self, path: Path, *, sync: bool = True) -> None:
        """Create a directory and its parents, by default synced into their parents."""
        if self.stat(path) is not None:
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "is there and no directory", str(path))
            return
        with _MAKING_DIRECTORIES:  # a visible directory must be on disk
            self._make_directory(path, sync)

    def _make_directory(self, path: Path, sync: bool) -> None:
        self.make_directories(path.parent, sync=sync)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        if not sync:
            return
        try:
            self.sync_directory(path.parent)
            self.sync_directory(path.parent.parent)
        except OSError:
            with contextlib.suppress(OSError):
                path.rmdir()
            raise

    def read(self, path: Path) -> bytes:
        """Read a whole small file."""
        with _open_for(path, os.O_RDONLY) as descriptor:
            parts, rest = [], SMALL_FILE_MAX + 1
            while rest and (part := os.read(descriptor, min(rest, COPY_CHUNK_SIZE))):
                parts.append(part)
                rest -= len(part)
            if not rest:
                raise too_large(path, os.fstat(descriptor).st_size)
            return b"".join(parts)

    def read_range(self, path: Path, offset: int, length: int, *, keep: bool) -> bytes:
        """Read some bytes of a file, fewer at its end."""
        with _open_for(path, os.O_RDONLY) as descriptor:
            parts = []
            while length and (part := os.pread(descriptor, length, offset)):
                parts.append(part)
                if not keep:
                    os.posix_fadvise(descriptor, offset, len(part), os.POSIX_FADV_DONTNEED)
                offset, length = offset + len(part), length - len(part)
            return b"".join(parts)

    def write(self, path: Path, data: bytes) -> None:
        """Create or replace a small file's content, and sync it."""
        with _open_for(path, os.O_WRONLY | os.O_CREAT) as descriptor:
            _require_one_name(path, descriptor)
            os.ftruncate(descriptor, 0)
            _write_all(descriptor, data)
            os.fsync(descriptor)

    def append(self, path: Path, data: bytes) -> None:
        """Add bytes to the end of a small file, and sync its content."""
        with _open_for(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as descriptor:
            _write_all(descriptor, data)
            os.fdatasync(descriptor)

    def create(
        self, path: Path, size: int, *, reserve: int | None = None, sync: bool = True
    ) -> None:
        """Create a zero-filled file, reserve blocks, and by default sync it."""

        def fill(descriptor: int) -> None:
            os.ftruncate(descriptor, size)
            _reserve(descriptor, 0, size if reserve is None else min(reserve, size), path)

        _make_file(path, fill, sync)

    def reserve(self, path: Path, offset: int, length: int) -> None:
        """Reserve disk blocks for a range of a file."""
        with _open_for(path, os.O_RDWR) as descriptor:
            size = os.fstat(descriptor).st_size
            _reserve(descriptor, offset, min(length, size - offset), path)

    def extend(self, path: Path, size: int) -> None:
        """Lengthen a file with zeros, and sync it."""
        with _open_for(path, os.O_RDWR) as descriptor:
            if size < os.fstat(descriptor).st_size:
                raise OSError(errno.EINVAL, f"is longer than {size} bytes already", str(path))
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)

    def copy(self, source: Path, target: Path, offset: int = 0, length: int | None = None) -> None:
        """Copy some bytes into a new file, and sync it."""
        with _open_for(source, os.O_RDONLY) as origin:
            size = os.fstat(origin).st_size
            end = size if length is None else min(size, offset + length)
            _make_file(target, lambda descriptor: _copy_range(origin, descriptor, offset, end))

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the target."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        """Sync a directory."""
        descriptor = os.open(path, _DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def map(self, path: Path, *, writable: bool, sparse: bool = False) -> MappedBytes:
        """Map a whole file."""
        descriptor = _Descriptor(_open(path, os.O_RDWR if writable else os.O_RDONLY))
        if writable:
            _require_one_name(path, descriptor.number)
        found = os.fstat(descriptor.number)
        view = native.map_shared(descriptor.number, found.st_size, writable=writable)
        if sparse:
            native.expect_no_neighbours(view)
        if not writable:
            return PosixMapping(view, None)
        if not sparse:
            return PosixMapping(view, descriptor)
        return PosixMapping(view, None, (path, found.st_dev, found.st_ino))

    def map_memory(self, size: int) -> MappedBytes:
        """Map zero-filled memory."""
        return PosixMapping(native.map_anonymous(size), None)

    def map_private(self, path: Path) -> memoryview:
        """Map a whole file, writable; stores stay in this process's memory."""
        with _open_for(path, os.O_RDONLY) as descriptor:
            return native.map_private(descriptor, os.fstat(descriptor).st_size)

    def lock(self, path: Path) -> FileLock:
        """Take RocketMQ's lock on a file."""
        descriptor = _Descriptor(_open(path, os.O_RDWR | os.O_CREAT))
        try:
            fcntl.fcntl(descriptor.number, fcntl.F_OFD_SETLK, _whole_lock())
        except (BlockingIOError, PermissionError):
            raise StoreLocked(
                f"{path} is held by another process (a broker or a store-writer); stop that first"
            ) from None
        if not os.fstat(descriptor.number).st_size:
            os.pwrite(descriptor.number, LOCK_CONTENT, 0)
            os.fsync(descriptor.number)
        return PosixLock(path, descriptor)

    def is_locked(self, path: Path) -> bool:
        """Whether a process holds the lock."""
        try:
            with _open_for(path, os.O_RDONLY) as descriptor:
                answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_lock())
        except FileNotFoundError:
            return False
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def next_data(self, path: Path, offset: int) -> int | None:
        """The next position at which the file may hold data."""
        with _open_for(path, os.O_RDONLY) as descriptor:
            try:
                return os.lseek(descriptor, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return None
                if error.errno in (
                    errno.EINVAL,
                    errno.EOPNOTSUPP,
                ):  # the file system does not support SEEK_DATA
                    return offset
                raise

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time."""
        os.utime(path, ns=(path.stat().st_atime_ns, modified_ms * 1_000_000))

    def usage(self, path: Path) -> DiskUsage:
        """The usage of the volume that holds ``path`` or its nearest existing parent."""
        while not path.exists() and path != path.parent:
            path = path.parent
        found = os.statvfs(path)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        free = found.f_bavail * found.f_frsize
        device = path.stat().st_dev
        return DiskUsage(total=used + free, used=used, free=free, device=device)


def _open(path: Path, flags: int) -> int:
    """Open a regular file. A link is not followed, and a pipe does not block."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, _FILE_MODE)
    except FileNotFoundError:
        raise
    except OSError:
        if not _may_be_regular(path):
            raise _irregular(path) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise (
        IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if (path.is_dir())
        else _irregular(path)
    )


def _may_be_regular(path: Path) -> bool:
    with contextlib.suppress(OSError):
        mode = path.lstat().st_mode
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return True


def _is_regular(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def _irregular(path: Path) -> OSError:
    why = "is a symbolic link, a pipe, a socket or a device, and a store has regular files only"
    return OSError(errno.ELOOP, why, str(path))


def _require_one_name(path: Path, descriptor: int) -> None:
    if os.fstat(descriptor).st_nlink > 1:
        raise OSError(errno.EMLINK, LINKED, str(path))


@contextlib.contextmanager
def _open_for(path: Path, flags: int) -> Iterator[int]:
    descriptor = _open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync_again(path: Path, device: int, inode: int) -> None:
    with _open_for(path, os.O_RDONLY) as descriptor:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (device, inode):
            raise OSError(errno.ESTALE, "is another file than was mapped", str(path))
        os.fdatasync(descriptor)


def _make_file(path: Path, fill: Callable[[int], None], sync: bool = True) -> None:
    """Create a file, fill and sync it; it is unlinked again on failure."""
    with _open_for(path, _NEW_FILE) as descriptor:
        try:
            fill(descriptor)
            if sync:
                os.fsync(descriptor)
        except BaseException:
            path.unlink()
            raise


def _reserve(descriptor: int, offset: int, length: int, path: Path) -> None:
    if length <= 0:
        return
    try:
        os.posix_fallocate(descriptor, offset, length)
    except OSError as error:
        number = error.errno or errno.EIO
        why = f"{os.strerror(number)}; {length} bytes cannot be reserved"
        raise OSError(number, why, str(path)) from None


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copy_range(origin: int, descriptor: int, offset: int, end: int) -> None:
    while offset < end:
        chunk = os.pread(origin, min(COPY_CHUNK_SIZE, end - offset), offset)
        if not chunk:
            raise OSError(errno.EIO, "the source became shorter while it was copied")
        _write_all(descriptor, chunk)
        offset += len(chunk)


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), field)


def _whole_lock() -> bytes:
    """A write lock on byte 0, the range that RocketMQ locks, without a process id."""
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
