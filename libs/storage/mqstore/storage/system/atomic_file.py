"""Replaces small files so that a crash leaves either the old content or the new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mqstore.storage.seams import FileSystem


def replace_file(files: FileSystem, path: Path, data: bytes) -> None:
    """Write a temporary file, sync it, rename it over ``path``, sync the directory.

    Raises OSError.
    """
    put_in_place(files, path, data)
    files.sync_directory(path.parent)


def put_in_place(files: FileSystem, path: Path, data: bytes) -> None:
    """Replace as ``replace_file``, but a power cut may restore the old content. Raises OSError."""
    change_together(files, {path: data})


def change_together(
    files: FileSystem, replaced: Mapping[Path, bytes], removed: Iterable[Path] = ()
) -> None:
    """Replace and remove several files; the caller then syncs their directory once.

    Until that sync a power cut may leave each of them old or new. Raises OSError.
    """
    for path, data in replaced.items():
        files.write(_beside(path), data)
    for path in replaced:
        files.rename(_beside(path), path)
    for path in removed:
        if files.stat(path) is not None:
            files.unlink(path)


def remove_file(files: FileSystem, path: Path) -> None:
    """Unlink a file durably. Raises OSError.

    The directory is synced even when the file is missing: another process may have unlinked it and
    failed to sync.
    """
    if files.stat(path) is not None:
        files.unlink(path)
    elif files.stat(path.parent) is None:
        return
    files.sync_directory(path.parent)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")
