"""The rebuild as Spark runs it: one pass over the log, one over its items by ranges of slots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, TypeVar

from mqstore.jobs.errors import EXIT_FINE
from mqstore.jobs.job_run import JobRun, Outcome, Report
from mqstore.jobs.log.ranges import RANGE_MIN, size_for
from mqstore.jobs.log.ranges import plan as plan_ranges
from mqstore.jobs.log.source import LogRange, LogSegment
from mqstore.jobs.rebuild.gathered import Gathered, Work, gathered
from mqstore.jobs.rebuild.tasks import Extraction, Told
from mqstore.storage.index.build import BuildPlan
from mqstore.storage.index.plan import IndexPlan

T = TypeVar("T")

RANGE_SIZE: Final = 32 << 20
"""Bytes of one of the ranges that tasks get: small, so that all have about as much to read."""
TASK_SIZE: Final = 512 << 20
"""Bytes of log that a task reads, about: for one that does nothing Spark takes as much of the
processor as finding the items of 150 to 250 MiB."""
RANGES_PER_CORE: Final = 4
SPARK_SETTINGS: Final = {"spark_shuffle_compress": "false"}
"""Hashes and offsets hardly shrink, and a core is busy with them twice."""
_HIGH: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Scan:
    """A log that was read: what its files will be, and its items in Spark's keeping."""

    log_bytes: int
    plan: IndexPlan
    items: Gathered

    def outcome(self, more: Report, exit_code: int = EXIT_FINE) -> Outcome:
        """``more``: what else is to be told of it."""
        told = {
            "bytes": self.log_bytes,
            "records": self.plan.records,
            "items": self.plan.items,
            "files": self.plan.file_count,
            "indexBytes": self.plan.staged_bytes,
        }
        return Outcome(told | more, exit_code, self.log_bytes)


class SparkBuild:
    """One store's index. A context: at its end the items are dropped. Used once."""

    def __init__(self, run: JobRun, extraction: Extraction, segments: Sequence[LogSegment]) -> None:
        self._run = run
        self._extraction = extraction
        self._segments = [segment for segment in segments if segment.end > segment.start]
        self._log_bytes = sum(each.end - each.start for each in self._segments)
        self._scans = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scans.close()

    def scan(self) -> Scan:
        """Read the whole log once. Raises JobError."""
        ranges = self._ranges()
        items = self._gathered(ranges)
        if not _joined(ranges, items.told):
            # Damage leads from one range into the next: whole segments, as dispatch goes.
            items.drop()
            items = self._gathered(
                [LogRange(each, each.start, each.end) for each in self._segments]
            )
        plan = IndexPlan([chunk for _, chunk in items.told], self._extraction.layout)
        return Scan(self._log_bytes, plan, items)

    def build_plan(self, scan: Scan) -> BuildPlan:
        """Which files, with what in their headers."""
        return BuildPlan.of(
            scan.plan, scan.plan.files(partial(self._extraction.item, self._segments))
        )

    def fill(self, scan: Scan, work: Work[T]) -> list[T]:
        """Do the work with each part's items, in the order of the log."""
        with self._run.stage("building index files"):
            return scan.items.each_part(work)

    def _ranges(self) -> list[LogRange]:
        cores = self._run.spark.sparkContext.defaultParallelism
        size = max(RANGE_MIN, size_for(self._log_bytes, RANGES_PER_CORE * cores, RANGE_SIZE))
        with self._extraction.log.opened() as reader:
            return list(plan_ranges(reader, self._segments, size, 0, _HIGH))

    def _gathered(self, ranges: list[LogRange]) -> Gathered:
        with self._run.stage("reading the log") as spark:
            context = spark.sparkContext
            tasks = task_count(ranges, context.defaultParallelism)
            found = gathered(context, self._extraction, ranges, tasks)
        self._scans.callback(found.drop)
        return found


def _joined(ranges: Sequence[LogRange], told: Sequence[Told]) -> bool:
    """Whether each range ended where it was to end."""
    ends: dict[int, int] = {}
    for start, chunk in told:
        ends[start] = max(ends.get(start, 0), chunk.end)
    return all(ends[each.start] == each.stop for each in ranges)


def task_count(ranges: Sequence[LogRange], cores: int) -> int:
    """A multiple of the cores, so that all of them end at about the same time."""
    total = sum(each.stop - each.start for each in ranges)
    rounds = max(1, round(total / (cores * TASK_SIZE)))
    return max(1, min(cores * rounds, len(ranges)))
