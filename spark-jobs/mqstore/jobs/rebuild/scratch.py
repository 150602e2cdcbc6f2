"""A directory of this machine for index files that are compared and not published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def scratch() -> Iterator[Path]:
    """Removed at the end."""
    with TemporaryDirectory(prefix="index-rebuild-") as directory:
        yield Path(directory)
