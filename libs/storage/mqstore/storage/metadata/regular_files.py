"""Rejects a store with a link, pipe, socket or device before a file of it is opened, locked or
written."""

from __future__ import annotations

from pathlib import Path

from mqstore.storage.errors import StoreUnsupported
from mqstore.storage.layout import SMALL_FILE_MAX
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.file_limits import LINKED, size_text


def require(files: FileSystem, paths: StorePaths, *, writes: bool = False) -> None:
    """Check that the store's paths are regular files and directories, and before the store is
    changed (``writes``), that no other name leads to them. Raises StoreUnsupported.

    The root and storePathCommitLog may be links. The file system rejects irregular files in deeper
    directories, and writable maps of files with several names, when they are opened.
    """
    directories = (
        paths.root,
        paths.ours,
        paths.config,
        paths.commit_log,
        paths.log_identity,
        paths.consume_queue,
        paths.consume_queue_ext,
        paths.index,
    )
    for directory in directories:
        for name in files.irregular(directory):
            raise StoreUnsupported(
                f"{directory / name} is a symbolic link, a pipe, a socket or a device, and a store "
                "has regular files only; put the file itself there (a log on another volume is "
                "named by storePathCommitLog), or remove it"
            )
    for directory in (paths.ours, paths.config):
        for name in files.list(directory):
            _require_small(files, directory / name)
    for directory in (*directories, paths.blocks) if writes else ():
        for name in files.list(directory):
            _require_one_name(files, directory / name)


def _require_one_name(files: FileSystem, path: Path) -> None:
    found = files.stat(path)
    if found is not None and found.links > 1:
        raise StoreUnsupported(f"{path} {LINKED}")


def _require_small(files: FileSystem, path: Path) -> None:
    found = files.stat(path)
    if found is not None and not found.is_directory and found.size > SMALL_FILE_MAX:
        raise StoreUnsupported(f"{path} {size_text(found.size)}; put the right file there")
