"""The destination of a job's files: a directory, or any other place that fsspec opens by its URL.

A file appears under its name only when it is complete: it is written under a temporary name beside
its own, and then renamed. A killed run leaves only files with temporary names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, Final

import fsspec

from mqstore.jobs.errors import JobError, OutputRefused

STAGED: Final = "_staged."
"""Prefix of temporary names: Spark ignores them, and ``*.parquet`` does not match them."""
Writer = Callable[[IO[bytes]], object]


@dataclass(frozen=True, slots=True)
class Output:
    """A place. Its methods raise OutputRefused."""

    url: str

    @property
    def place(self) -> str:
        """The same for whatever way it was written: with its protocol, and absolute."""
        with _refusals(self.url):
            files, root = self._opened()
            return str(files.unstrip_protocol(root))

    def check(self) -> None:
        """Whether something can be written there: by writing."""
        with _refusals(self.url):
            files, root = self._opened()
            name = f"{root}/{STAGED}{uuid.uuid4().hex}"
            files.makedirs(root, exist_ok=True)
            files.pipe_file(name, b"")
            files.rm_file(name)

    def publish(self, files: Mapping[str, Writer]) -> None:
        """Write all, then give all their names; names are relative, with ``/``."""
        staged: dict[str, str] = {}
        with _refusals(self.url):
            try:
                for name, write in files.items():
                    staged[name] = self.stage(name, write)
            except BaseException:
                self.drop(staged.values())
                raise
            self.reveal(staged)

    def stage(self, name: str, write: Writer) -> str:
        """Write a file under another name beside its own; the name that it has until then."""
        with _refusals(self.url):
            staged, opened = self.create(name)
            with opened as file:
                write(file)
            return staged

    def create(self, name: str) -> tuple[str, IO[bytes]]:
        """As ``stage``, for a caller who writes and closes it."""
        with _refusals(self.url):
            files, root = self._opened()
            path = PurePosixPath(name)
            staged = str(path.with_name(f"{STAGED}{uuid.uuid4().hex}"))
            files.makedirs(f"{root}/{path.parent}", exist_ok=True)
            return staged, files.open(f"{root}/{staged}", "wb")

    def reveal(self, staged: Mapping[str, str]) -> None:
        """Give staged files, by their own names, those names; what had them is replaced."""
        with _refusals(self.url):
            files, root = self._opened()
            for name, at in staged.items():
                files.mv(f"{root}/{at}", f"{root}/{name}")

    def drop(self, names: Iterable[str]) -> None:
        """Remove files, those that are there."""
        with _refusals(self.url):
            files, root = self._opened()
            for name in names:
                with suppress(FileNotFoundError):
                    files.rm_file(f"{root}/{name}")

    def names(self, directory: str) -> list[str]:
        """Names of the files of a directory, relative to it; none if it does not exist."""
        with _refusals(self.url):
            files, root = self._opened()
            try:
                found = files.ls(f"{root}/{directory}", detail=False)
            except FileNotFoundError:
                return []
            return sorted(f"{directory}/{PurePosixPath(path).name}" for path in found)

    def open(self, name: str) -> IO[bytes]:
        """To be read; the caller closes it."""
        with _refusals(self.url):
            files, root = self._opened()
            found: IO[bytes] = files.open(f"{root}/{name}", "rb")
            return found

    def _opened(self) -> tuple[Any, str]:
        files, root = fsspec.core.url_to_fs(self.url)
        return files, root.rstrip("/")


@contextmanager
def _refusals(url: str) -> Iterator[None]:
    try:
        yield
    except JobError:
        raise
    except OSError as error:
        raise OutputRefused(f"{url} cannot be written to: {error.strerror or error}") from error
    except (ImportError, ValueError) as error:
        raise OutputRefused(f"{url} is no place to write to: {error}") from error
    except Exception as error:
        if type(error).__module__ == "builtins":
            raise
        # What stores in the cloud raise, as for missing credentials, is of types of their own.
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise OutputRefused(f"{url} cannot be written to: {why}") from error
