"""Backups at a URL: objects of any file system that fsspec has.

Small objects are written in one request, so that stores of objects have them whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, Final

import fsspec

from mqstore.storage.backup import CHUNK

_AT_ONCE_MAX: Final = 8 << 20
"""Bytes of an object that is written in one request."""


class UrlObjects:
    """See ``mqstore.storage.backup.Objects``."""

    def __init__(self, url: str) -> None:
        """Raises OSError for a URL that fsspec does not open."""
        self.place = url
        try:
            with self._errors():
                self._files, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise OSError(f"{url} cannot be opened: {error}") from error
        self._root: str = root.rstrip("/")
        self.place = str(self._files.unstrip_protocol(self._root))

    @property
    def has_any(self) -> bool:
        """Whether the place has an object or is a folder. Raises OSError."""
        with self._errors():
            self._files.invalidate_cache()
            try:
                self._files.ls(self._root)
            except FileNotFoundError:
                return False
            return True

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``Objects``."""
        with self._errors():
            self._files.invalidate_cache()
            try:
                found: list[dict[str, Any]] = self._files.ls(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
            return {
                f"{folder}/{PurePosixPath(each['name']).name}": int(each["size"])
                for each in found
                if each["type"] == "file"
            }

    def read(self, name: str) -> Iterator[bytes]:
        """See ``Objects``."""
        with self._errors(), self._files.open(self._path(name), "rb") as file:
            while piece := file.read(CHUNK):
                yield piece

    def write(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """See ``Objects``."""
        path = self._path(name)
        with self._errors():
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            if size <= _AT_ONCE_MAX:
                self._files.pipe_file(path, b"".join(pieces))
                return
            try:
                with self._files.open(path, "wb") as file:
                    for piece in pieces:
                        file.write(piece)
            except BaseException:
                with suppress(Exception):  # the first error counts; no manifest names the object
                    self._files.rm_file(path)
                raise

    def remove(self, name: str) -> None:
        """See ``Objects``."""
        with self._errors(), suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def clear_remains(self, folder: str) -> None:
        """See ``Objects``: here interrupted writes leave objects that no manifest names."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise OSError for an error of the file system's own types, as of missing credentials."""
        try:
            yield
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("builtins", "mqstore"):
                raise
            why = " ".join(str(error).split())
            raise OSError(f"{self.place}: {type(error).__name__}: {why}") from error
