"""The rebuild on Spark: one pass over the log, then one over its items by ranges of slots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self, TypeVar

from mqstore.jobs.errors import EXIT_FINE
from mqstore.jobs.job_run import JobRun, Outcome, Report
from mqstore.jobs.log.ranges import RANGE_MIN, size_for
from mqstore.jobs.log.ranges import plan as plan_ranges
from mqstore.jobs.log.source import LogRange, LogSegment
from mqstore.jobs.rebuild.gathered import Gathered, Work, gathered
from mqstore.jobs.rebuild.tasks import Extraction, FoundChunk
from mqstore.storage.index import BuildPlan, IndexPlan

T = TypeVar("T")

RANGE_SIZE: Final = 32 << 20
"""Bytes of a range of a task: small, so that all tasks read about the same number of bytes."""
TASK_SIZE: Final = 512 << 20
"""Approximate bytes of log per task: the overhead of one task equals the work of extracting the
items of 150 to 250 MiB."""
RANGES_PER_CORE: Final = 4
SPARK_SETTINGS: Final = {"spark_shuffle_compress": "false"}
"""Hashes and offsets hardly compress, and compression costs processor time twice."""
_HIGH: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of reading a log: the plan of its index files, and its items."""

    log_bytes: int
    plan: IndexPlan
    items: Gathered

    def outcome(self, more: Report, exit_code: int = EXIT_FINE) -> Outcome:
        """The result for the summary; ``more`` holds additional fields of the report."""
        fields = {
            "bytes": self.log_bytes,
            "records": self.plan.records,
            "items": self.plan.items,
            "files": self.plan.file_count,
            "indexBytes": self.plan.staged_bytes,
        }
        return Outcome(fields | more, exit_code, self.log_bytes)


class SparkBuild:
    """Builds the index of one store. A context, whose end releases the items. Used once."""

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
        items = self._gathered(self._extraction, ranges)
        if not _joined(ranges, items.chunks):
            # Damage crosses the end of a range: read whole segments, as dispatch does.
            items.drop()
            items = self._gathered(self._extraction, self._whole_segments())
        return self._scan_of(items)

    def scan_beside_queues(self) -> Scan | None:
        """Read the whole log once while its queues are still being completed.

        Queue entries cannot cut the segments yet. None where whole segments are too few to give
        all cores about as much work. Raises JobError, QueuesBehind among them.
        """
        cores = self._run.spark.sparkContext.defaultParallelism
        if len(self._segments) < RANGES_PER_CORE * cores:
            return None
        extraction = replace(self._extraction, has_queues=False)
        return self._scan_of(self._gathered(extraction, self._whole_segments()))

    def _whole_segments(self) -> list[LogRange]:
        return [LogRange(each, each.start, each.end) for each in self._segments]

    def _scan_of(self, items: Gathered) -> Scan:
        plan = IndexPlan([chunk for _, chunk in items.chunks], self._extraction.layout)
        return Scan(self._log_bytes, plan, items)

    def build_plan(self, scan: Scan) -> BuildPlan:
        """The plan of the index files and their headers."""
        return BuildPlan.of(
            scan.plan, scan.plan.files(partial(self._extraction.item, self._segments))
        )

    def fill(self, scan: Scan, work: Work[T]) -> list[T]:
        """Run ``work`` on the items of each part, in the order of the log."""
        with self._run.stage("building index files"):
            return scan.items.each_part(work)

    def _ranges(self) -> list[LogRange]:
        cores = self._run.spark.sparkContext.defaultParallelism
        size = max(RANGE_MIN, size_for(self._log_bytes, RANGES_PER_CORE * cores, RANGE_SIZE))
        with self._extraction.log.opened() as reader:
            return list(plan_ranges(reader, self._segments, size, 0, _HIGH))

    def _gathered(self, extraction: Extraction, ranges: list[LogRange]) -> Gathered:
        with self._run.stage("reading the log") as spark:
            context = spark.sparkContext
            tasks = task_count(ranges, context.defaultParallelism)
            found = gathered(context, extraction, ranges, tasks)
        self._scans.callback(found.drop)
        return found


def _joined(ranges: Sequence[LogRange], chunks: Sequence[FoundChunk]) -> bool:
    """Whether the chunks of each range end at the end of the range."""
    ends: dict[int, int] = {}
    for start, chunk in chunks:
        ends[start] = max(ends.get(start, 0), chunk.end)
    return all(ends[each.start] == each.stop for each in ranges)


def task_count(ranges: Sequence[LogRange], cores: int) -> int:
    """Number of tasks: a multiple of the cores, so that all cores finish at about the same time."""
    total = sum(each.stop - each.start for each in ranges)
    rounds = max(1, round(total / (cores * TASK_SIZE)))
    return max(1, min(cores * rounds, len(ranges)))
