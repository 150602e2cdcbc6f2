"""A file that is mapped while a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqstore.storage.seams import FileSystem, MappedBytes


@contextmanager
def open_map(
    files: FileSystem, path: Path, *, writable: bool = False, sparse: bool = False
) -> Iterator[MappedBytes]:
    """Map a whole file as ``FileSystem.map``; unmapped at the end. Raises OSError."""
    mapped = files.map(path, writable=writable, sparse=sparse)
    try:
        yield mapped
    finally:
        mapped.unmap()
