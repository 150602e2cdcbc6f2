"""Replacing a small file so that a crash leaves either the old content or the new."""

from __future__ import annotations

from pathlib import Path

from mqstore.storage.seams import FileSystem


def replace_file(files: FileSystem, path: Path, data: bytes) -> None:
    """Write beside, sync, rename over, sync the directory. Raises OSError."""
    beside = path.with_name(path.name + ".tmp")
    files.write(beside, data)
    files.rename(beside, path)
    files.sync_directory(path.parent)


def remove_file(files: FileSystem, path: Path) -> None:
    """Unlink durably. One that is not there may have been unlinked by somebody whose sync failed,
    so that is synced all the same. Raises OSError."""
    if files.stat(path) is not None:
        files.unlink(path)
    elif files.stat(path.parent) is None:
        return
    files.sync_directory(path.parent)
