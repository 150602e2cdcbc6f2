"""The rebuild as Spark runs it: one pass over the log, one shuffle, one pass over the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mqstore.jobs.errors import EXIT_FINE
from mqstore.jobs.job_run import JobRun, Outcome, Report
from mqstore.jobs.log.ranges import RANGE_MIN, size_for
from mqstore.jobs.log.ranges import plan as plan_ranges
from mqstore.jobs.log.source import LogRange, LogSegment
from mqstore.jobs.rebuild.tasks import Extraction, Key, Told
from mqstore.storage.derived.index_build import BuildPlan
from mqstore.storage.derived.index_plan import IndexPlan

if TYPE_CHECKING:
    from pyspark import RDD

T = TypeVar("T")

RANGE_SIZE: Final = 32 << 20
"""Bytes of one of the ranges that tasks get: small, so that all have about as much to read."""
TASK_SIZE: Final = 256 << 20
"""Bytes of log that a task reads at most, about: Spark takes as long for a task that does nothing
as reading 100 MiB takes."""
RANGES_PER_CORE: Final = 4
SPARK_SETTINGS: Final = {"spark_shuffle_compress": "false"}
"""Hashes and offsets hardly shrink, and a core is busy with them twice."""
_HIGH: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Scan:
    """A log that was read: what its files will be, and its items in Spark's keeping."""

    log_bytes: int
    plan: IndexPlan
    items: RDD[tuple[Key, Any]]

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
    """One store's index. Used once."""

    def __init__(self, run: JobRun, extraction: Extraction, segments: Sequence[LogSegment]) -> None:
        self._run = run
        self._extraction = extraction
        self._segments = [segment for segment in segments if segment.end > segment.start]
        self._log_bytes = sum(each.end - each.start for each in self._segments)

    def scan(self) -> Scan:
        """Read the whole log once. Raises JobError."""
        ranges = self._ranges()
        items = self._extracted(ranges)
        told = self._told(items)
        if not _joined(ranges, told):
            # Damage leads from one range into the next: whole segments, as dispatch goes.
            ranges = [LogRange(each, each.start, each.end) for each in self._segments]
            items = self._extracted(ranges)
            told = self._told(items)
        plan = IndexPlan([chunk for _, chunk in told], self._extraction.layout)
        return Scan(self._log_bytes, plan, items)

    def build_plan(self, scan: Scan) -> BuildPlan:
        """Which files, with what in their headers."""
        return BuildPlan.of(
            scan.plan, scan.plan.files(partial(self._extraction.item, self._segments))
        )

    def fill(
        self, scan: Scan, work: Callable[[Iterable[tuple[Key, bytes]]], Iterable[T]]
    ) -> list[T]:
        """Do the work with each part's items, in the order of the log."""
        with self._run.stage("building index files") as spark:
            parts = list(range(self._extraction.parts))
            return list(spark.sparkContext.runJob(scan.items, work, parts))

    def _ranges(self) -> list[LogRange]:
        cores = self._run.spark.sparkContext.defaultParallelism
        size = max(RANGE_MIN, size_for(self._log_bytes, RANGES_PER_CORE * cores, RANGE_SIZE))
        with self._extraction.log.opened() as reader:
            return list(plan_ranges(reader, self._segments, size, 0, _HIGH))

    def _extracted(self, ranges: list[LogRange]) -> RDD[tuple[Key, Any]]:
        parts, context = self._extraction.parts, self._run.spark.sparkContext
        tasks = task_count(ranges, context.defaultParallelism)
        found = context.parallelize(ranges, tasks).flatMap(self._extraction.keyed)
        return found.repartitionAndSortWithinPartitions(parts + 1, _part_of)

    def _told(self, items: RDD[tuple[Key, Any]]) -> list[Told]:
        with self._run.stage("reading the log") as spark:
            found = spark.sparkContext.runJob(items, _values, [self._extraction.parts])
        return list(found)


def _part_of(key: Key) -> int:
    return key[0]


def _values(found: Iterable[tuple[Key, Told]]) -> Iterator[Told]:
    return (told for _, told in found)


def _joined(ranges: Sequence[LogRange], told: Sequence[Told]) -> bool:
    """Whether each range ended where it was to end."""
    ends: dict[int, int] = {}
    for start, chunk in told:
        ends[start] = max(ends.get(start, 0), chunk.end)
    return all(ends[each.start] == each.stop for each in ranges)


def task_count(ranges: Sequence[LogRange], cores: int) -> int:
    """A multiple of the cores, so that all of them end at about the same time."""
    total = sum(each.stop - each.start for each in ranges)
    rounds = -(-total // (cores * TASK_SIZE))
    return max(1, min(cores * rounds, len(ranges)))
