"""The locks of a store's one writer, taken before any other file is touched.

RocketMQ's own ``lock`` excludes a broker. ``mqstore/lock`` excludes a second writer of ours after
``lock`` was deleted. A log directory outside of the root has a lock of its own (``log_owner``).
"""

from __future__ import annotations

import errno
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqstore.storage.errors import DirectoryNotUsable, DiskRefuses, StoreFailed, StoreLocked
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileLock, FileSystem

DISK_ERRORS: Final = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ESTALE}
    | {errno.ETIMEDOUT, errno.EREMOTEIO, errno.EUCLEAN, errno.ENOMEDIUM}
)
"""Errors of a disk or volume that has failed, is full, or was made read-only after an error."""

SIGN: Final = b"mqstore: no broker has started here since this was written\n"
"""Content of ``lock`` while our facts hold.

RocketMQ never reads the file, and a broker writes ``lock`` over its first bytes at each start.
Unlike a modification time, it is copied with the file.
"""

_BROKERS: Final = b"lock"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StoreLock:
    """The held locks, and the modification time of ``lock`` before and after it was taken."""

    modified_before_ms: int | None
    had_sign: bool
    """Whether ``lock``, before it was taken, showed that no broker had started since our last
    opening."""
    modified_ms: int | None = None
    _held: list[tuple[Path, FileLock]] = field(default_factory=list)
    _made: list[Path] = field(default_factory=list)
    """Lock files that did not exist before."""

    def add(self, files: FileSystem, path: Path) -> None:
        """Lock one more file. Raises StoreLocked, OSError."""
        is_new = files.stat(path) is None
        lock = files.lock(path)
        if not lock.is_in_place():  # removed since by a refused opening of another process
            lock.release()
            raise StoreLocked(f"{path} was removed by another process that ends; start again")
        self._held.append((path, lock))
        if is_new:
            self._made.append(path)

    def require(self) -> None:
        """Raise StoreFailed unless every lock file is still the locked one.

        An unreadable disk is not an error here.
        """
        try:
            lost = next((path for path, lock in self._held if not lock.is_in_place()), None)
        except OSError as error:
            log.warning("the lock files cannot be checked, tried again: %s", error)
            return
        if lost is not None:
            raise StoreFailed(
                f"{lost} was deleted or replaced while this process held it, so another process "
                "may write to the store; start this one again, and leave the lock files alone: "
                "a lock ends with its process"
            )

    def undo(self, files: FileSystem, paths: StorePaths) -> None:
        """Release all locks of an opening that was refused, and remove what it has made for them
        unless ``mqstore/`` has other files by now."""
        try:
            if paths.own_lock in self._made and files.list(paths.ours) == [paths.own_lock.name]:
                for path in reversed(self._made):
                    files.unlink(path)
                files.remove_directory(paths.ours)
        except OSError as error:
            log.warning("the lock files of the refused opening remain: %s", error)
        finally:
            self.release()

    def release(self) -> None:
        """Release all locks."""
        while self._held:
            self._held.pop()[1].release()


def take(files: FileSystem, paths: StorePaths, *, create: bool) -> StoreLock:
    """Lock the directory, creating it first when ``create``.

    Raises StoreLocked (names the holder, if known), DirectoryNotUsable, DiskRefuses.
    """
    try:
        _prepare(files, paths.root, create=create)
        held = StoreLock(_modified_ms(files, paths.lock), has_sign(files, paths))
        return _take_both(files, paths, held)
    except StoreLocked as error:
        raise in_use(files, paths, error) from error
    except OSError as error:
        raise not_usable(
            f"{paths.root} cannot be used as a store ({error.strerror or error}); "
            "choose a directory that this user may write",
            error,
        ) from error


def in_use(files: FileSystem, paths: StorePaths, error: StoreLocked | None = None) -> StoreLocked:
    """Build the error for a store that another process has locked; ``error`` names the file."""
    which = f" ({error})" if error is not None else ""
    return StoreLocked(f"{paths.root} is in use by {_holder(files, paths)}; stop it first{which}")


def _take_both(files: FileSystem, paths: StorePaths, held: StoreLock) -> StoreLock:
    try:
        held.add(files, paths.lock)
        held.modified_ms = _modified_ms(files, paths.lock)
        files.make_directories(paths.ours)
        held.add(files, paths.own_lock)
    except BaseException:
        held.release()
        raise
    return held


def not_usable(why: str, error: OSError) -> DirectoryNotUsable:
    """Build the error for an OSError: DiskRefuses where the disk caused it."""
    return (DiskRefuses if error.errno in DISK_ERRORS else DirectoryNotUsable)(why)


def has_sign(files: FileSystem, paths: StorePaths) -> bool:
    """Whether no broker has started on the directory, or on one it was copied from, since our last
    opening. False too for a store that only an earlier release has opened. Raises OSError."""
    content = _content(files, paths)
    return bool(content) and SIGN.startswith(content)  # a halt may have truncated it


def broker_wrote(files: FileSystem, paths: StorePaths) -> bool:
    """Whether a broker has started since the sign was put: it writes ``lock`` over the first bytes
    and leaves the others. Raises OSError."""
    return _content(files, paths) == _BROKERS + SIGN[len(_BROKERS) :]


def put_sign(files: FileSystem, paths: StorePaths, lock: StoreLock) -> None:
    """Write the sign, once all facts that a broker may have changed are durably forgotten.

    The modification time stays: it is in format.json. Raises OSError.
    """
    if _content(files, paths) != SIGN:
        files.write(paths.lock, SIGN)
        if lock.modified_ms is not None:
            files.set_modified(paths.lock, lock.modified_ms)


def _content(files: FileSystem, paths: StorePaths) -> bytes:
    return b"" if files.stat(paths.lock) is None else files.read(paths.lock)


def _prepare(files: FileSystem, root: Path, *, create: bool) -> None:
    stat = files.stat(root)
    if stat is not None and not stat.is_directory:
        raise DirectoryNotUsable(f"{root} is no directory; choose another path")
    if stat is None and not create:
        raise DirectoryNotUsable(f"{root} does not exist; name a store directory")
    files.make_directories(root)


def _modified_ms(files: FileSystem, path: Path) -> int | None:
    stat = files.stat(path)
    return None if stat is None else stat.modified_ms


def _holder(files: FileSystem, paths: StorePaths) -> str:
    """The last owner that format.json names, when that is readable."""
    try:
        owner = json.loads(files.read(paths.format))["owner"]
        return f"another process (last opened by process {owner['pid']} on {owner['host']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process, mqstore or a RocketMQ broker"
