"""The objects of backups, by name, in a directory or in any other place.

``DirectoryObjects`` is the implementation for a directory. ``mqstore.cli`` has one for URLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from mqstore.storage.seams import FileSystem
from mqstore.storage.system.open_map import open_map

CHUNK: Final = 1 << 20
"""Bytes that are read and written at a time; whole blocks of the log."""
_STAGED: Final = ".staged"


class Objects(Protocol):
    """Objects by names such as ``log/NAME``. Every method raises OSError."""

    @property
    def place(self) -> str:
        """The place for messages, without credentials."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Names and sizes of the whole objects of a folder; none without the folder."""

    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of an object, in pieces. Raises FileNotFoundError."""

    def write(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """Make an object of exactly ``size`` bytes, durable at return.

        Until then the name has the object that it had before, or none. Where a place cannot keep
        that promise, checksums show what is not whole.
        """

    def remove(self, name: str) -> None:
        """Remove an object, if it is there; durable at return."""

    def clear_remains(self, folder: str) -> None:
        """Remove what interrupted writes have left in a folder."""


class DirectoryObjects:
    """Objects as files of a directory: staged, synced, then renamed."""

    def __init__(self, files: FileSystem, root: Path) -> None:
        self._files = files
        self._root = root

    @property
    def place(self) -> str:
        """See ``Objects``."""
        return str(self._root)

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``Objects``."""
        found = {}
        for name in self._files.list(self._root / folder):
            stat = self._files.stat(self._root / folder / name)
            if stat is not None and not stat.is_directory and not name.endswith(_STAGED):
                found[f"{folder}/{name}"] = stat.size
        return found

    def _path(self, name: str) -> Path:
        """The path of an object. Raises OSError where its folder is a symbolic link: nothing
        outside of the place is read or written."""
        path = self._root / name
        self._files.stat(path.parent)
        return path

    def read(self, name: str) -> Iterator[bytes]:
        """See ``Objects``."""
        path, position = self._path(name), 0
        while piece := self._files.read_range(path, position, CHUNK, keep=False):
            position += len(piece)
            yield piece

    def write(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """See ``Objects``."""
        path = self._path(name)
        staged = path.with_name(path.name + _STAGED)
        self._make_directory(path.parent)
        if self._files.stat(staged) is not None:
            self._files.unlink(staged)
        try:
            self._fill(staged, size, pieces)
        except BaseException:
            if self._files.stat(staged) is not None:
                self._files.unlink(staged)
            raise
        self._files.rename(staged, path)
        self._files.sync_directory(path.parent)

    def _make_directory(self, path: Path) -> None:
        try:
            self._files.make_directories(path)
        except OSError as error:
            why = f"cannot be made ({error.strerror}); name a place that this user may write"
            raise OSError(error.errno, why, str(path)) from error

    def _fill(self, path: Path, size: int, pieces: Iterable[bytes]) -> None:
        self._files.create(path, size, sync=False)
        with open_map(self._files, path, writable=True) as mapped:
            position = 0
            for piece in pieces:
                mapped.view[position : position + len(piece)] = piece
                position += len(piece)
            if position != size:
                raise OSError(f"{path} got {position} of {size} bytes")
            mapped.sync()

    def remove(self, name: str) -> None:
        """See ``Objects``."""
        path = self._path(name)
        if self._files.stat(path) is not None:
            self._files.unlink(path)
            self._files.sync_directory(path.parent)

    def clear_remains(self, folder: str) -> None:
        """See ``Objects``."""
        for name in self._files.list(self._root / folder):
            if name.endswith(_STAGED):
                self._files.unlink(self._root / folder / name)
