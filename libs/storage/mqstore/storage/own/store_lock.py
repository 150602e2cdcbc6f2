"""Who may write: RocketMQ's own ``lock`` file, taken before any other file is touched."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqstore.storage.errors import DirectoryNotUsable, DiskRefuses, StoreLocked
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileLock, FileSystem

DISK_ERRORS: Final = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ESTALE}
    | {errno.ETIMEDOUT, errno.EREMOTEIO, errno.EUCLEAN, errno.ENOMEDIUM}
)
"""What a disk or volume answers that has failed, is full, or was made read-only for it."""


@dataclass(slots=True)
class StoreLock:
    """The held lock, and when its file had been modified before and after we took it."""

    _lock: FileLock
    modified_before_ms: int | None
    modified_ms: int | None

    def release(self) -> None:
        self._lock.release()


def take(files: FileSystem, paths: StorePaths, *, create: bool) -> StoreLock:
    """Lock the directory, making it first when ``create``.

    Raises StoreLocked (says who holds it, as far as can be told), DirectoryNotUsable, DiskRefuses.
    """
    try:
        _prepare(files, paths.root, create=create)
        before = _modified_ms(files, paths.lock)
        lock = files.lock(paths.lock)
        return StoreLock(lock, before, _modified_ms(files, paths.lock))
    except StoreLocked as error:
        raise StoreLocked(
            f"{paths.root} is in use by {_holder(files, paths)}; stop it first"
        ) from (error)
    except OSError as error:
        raise not_usable(
            f"{paths.root} cannot be used as a store ({error.strerror or error}); "
            "choose a directory that this user may write",
            error,
        ) from error


def not_usable(why: str, error: OSError) -> DirectoryNotUsable:
    """The error to raise for one that the system gave: a DiskRefuses where it is the disk's."""
    return (DiskRefuses if error.errno in DISK_ERRORS else DirectoryNotUsable)(why)


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
    except (OSError, ValueError, KeyError, TypeError):
        return "another process, mqstore or a RocketMQ broker"
