"""Who may write: RocketMQ's own ``lock`` file, taken before any other file is touched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mqstore.storage.errors import DirectoryNotUsable, StoreLocked
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileLock, FileSystem


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

    Raises StoreLocked (says who holds it, as far as can be told) and DirectoryNotUsable.
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
        raise DirectoryNotUsable(
            f"{paths.root} cannot be used as a store ({error.strerror or error}); "
            "choose a directory that this user may write"
        ) from error


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
