"""The commit log as jobs see it: segments, and bytes of them by physical offset.

Who plans looks once (``at_path.look``, ``at_url.look``); the ``Log`` that this gives goes to
Spark's workers, where ``opened`` gives the ``LogReader`` that a task reads with.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A file of the log, as far as it is read. Offsets are physical, in bytes."""

    name: str
    base: int
    """Of the file's first byte."""
    start: int
    """A record begins here, if anything does."""
    end: int
    tag: str | None = None
    """What a service calls this state of it; bytes with the same tag fit together."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """What one task reads: a record begins at ``start`` and, but for the segment's end, at
    ``stop``."""

    segment: LogSegment
    start: int
    stop: int

    @property
    def ends_segment(self) -> bool:
        return self.stop == self.segment.end


class LogReader(Protocol):
    """Not for several threads at once. All methods raise JobError."""

    def read(self, segment: LogSegment, offset: int, size: int) -> bytes:
        """So many bytes from a physical offset on, all of which the segment has."""

    def near(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """Some physical offset from ``offset`` to before ``stop`` where a record is known to
        begin, as low as is quickly found; None where none is known."""

    def next(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """The lowest of them."""


class Log(Protocol):
    """Where a log's bytes are: a value that is pickled for each task."""

    def opened(self) -> AbstractContextManager[LogReader]: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A log as it was when it was looked at."""

    log: Log
    segments: tuple[LogSegment, ...]
    """In order of their offsets."""
