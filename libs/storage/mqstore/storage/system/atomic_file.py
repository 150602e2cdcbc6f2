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
    """Unlink durably; nothing happens when it is not there."""
    if files.stat(path) is None:
        return
    files.unlink(path)
    files.sync_directory(path.parent)
