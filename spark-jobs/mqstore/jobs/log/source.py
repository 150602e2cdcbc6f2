"""The commit log as jobs read it: segments, and their bytes by physical offset.

The driver takes one snapshot (``at_path.look``, ``at_url.look``). The ``Log`` of the snapshot goes
to Spark's workers, where each task opens a ``LogReader`` of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A file of the log, up to the end of its readable part. Offsets are physical, in bytes."""

    name: str
    base: int
    """Offset of the file's first byte."""
    start: int
    """Offset of the first record, if the segment has one."""
    end: int
    tag: str | None = None
    """Entity tag of the segment at a service; bytes with the same tag are consistent."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """The range that one task reads. A record begins at ``start``, and at ``stop`` unless that is
    the end of the segment."""

    segment: LogSegment
    start: int
    stop: int

    @property
    def ends_segment(self) -> bool:
        """Whether the range ends at the end of its segment."""
        return self.stop == self.segment.end


class LogReader(Protocol):
    """Reads bytes of a log. Not safe for several threads at once. All methods raise JobError."""

    def read(self, segment: LogSegment, offset: int, size: int) -> bytes:
        """``size`` bytes from a physical offset on, all within the segment."""

    def near(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """A physical offset from ``offset`` to before ``stop`` where a record is known to begin.

        As low as is quickly found; None if no such offset is known.
        """

    def next(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """The lowest physical offset from ``offset`` to before ``stop`` where a record begins."""


class Log(Protocol):
    """The place of a log: a value that is pickled for each task."""

    def opened(self) -> AbstractContextManager[LogReader]:
        """Open a reader for the context. Raises JobError."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A log and its segments at one moment."""

    log: Log
    segments: tuple[LogSegment, ...]
    """In order of their offsets."""
