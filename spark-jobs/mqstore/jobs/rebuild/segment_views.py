"""A range of the log as one memory view: a mapped file, or bytes fetched to a scratch file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from mqstore.jobs.errors import SegmentGone
from mqstore.jobs.log.at_path import LogAtPath
from mqstore.jobs.log.source import LogRange
from mqstore.storage.host import PosixFileSystem

if TYPE_CHECKING:
    from mqstore.jobs.log.at_url import LogAtUrl

    LogPlace = LogAtPath | LogAtUrl

PIECE_SIZE: Final = 8 << 20
"""Bytes of one request."""


@contextmanager
def viewed(log: LogPlace, part: LogRange) -> Iterator[tuple[memoryview, int]]:
    """A view, and the physical offset of its first byte. Raises JobError, OSError.

    The view of a file covers the readable part of the segment. The view of an address covers the
    range, whose bytes are in Spark's scratch directory for the context.
    """
    found = _mapped(log, part) if isinstance(log, LogAtPath) else _fetched(log, part)
    yield from found


def _mapped(log: LogAtPath, part: LogRange) -> Iterator[tuple[memoryview, int]]:
    segment = part.segment
    try:
        mapped = PosixFileSystem().map(log.commit_log / segment.name, writable=False)
    except FileNotFoundError:
        raise SegmentGone(
            f"segment {segment.name} was deleted while it was read: retention took it; run the"
            " job again"
        ) from None
    try:
        yield mapped.view[: segment.end - segment.base], segment.base
    finally:
        mapped.unmap()


def _fetched(log: LogAtUrl, part: LogRange) -> Iterator[tuple[memoryview, int]]:
    with TemporaryFile(dir=scratch()) as file:
        with log.opened() as reader:
            for start in range(part.start, part.stop, PIECE_SIZE):
                size = min(PIECE_SIZE, part.stop - start)
                file.write(reader.read(part.segment, start, size))
        file.flush()
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            yield view, part.start


def scratch() -> str | None:
    """The scratch directory that Spark sets for its workers; None for the system's."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
