"""Carries the items of a log from the tasks that extract them to the tasks that use them by parts.

On one machine tasks write the items to files in Spark's scratch directory, and only the places in
these files go through Spark. With executors on several machines Spark's shuffle carries the items.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from mqstore.jobs.errors import JobError, QueuesBehind
from mqstore.jobs.log.source import LogRange
from mqstore.jobs.rebuild.segment_views import scratch
from mqstore.jobs.rebuild.tasks import Extraction, FoundChunk, Items

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

T = TypeVar("T")
Key = tuple[int, int]
"""The number of a part, and the physical offset that its items are sorted by."""
Work = Callable[[Iterable[Items]], Iterable[T]]


class Gathered(Protocol):
    """The items that a pass over ranges of a log extracted."""

    @property
    def chunks(self) -> Sequence[FoundChunk]:
        """The chunks in the order of the log, each with the start of its range."""

    def each_part(self, work: Work[T]) -> list[T]:
        """Run ``work`` on the items of each part, in the order of the log; a task has the number of
        its part."""

    def drop(self) -> None:
        """Release the items, which are no longer needed."""


def gathered(
    context: SparkContext, extraction: Extraction, ranges: Sequence[LogRange], tasks: int
) -> Gathered:
    """Read all ranges once. Raises the error of a failed task."""
    way = Spilled if _is_one_machine(context.master) else Shuffled
    return way(context, extraction, ranges, tasks)


def _is_one_machine(master: str | None) -> bool:
    return master is not None and (master == "local" or master.startswith("local["))


class Shuffled:
    """``Gathered`` by Spark's shuffle; the chunks are a part of their own after all others."""

    def __init__(
        self, context: SparkContext, extraction: Extraction, ranges: Sequence[LogRange], tasks: int
    ) -> None:
        self._context = context
        self._parts = extraction.parts
        found = context.parallelize(ranges, tasks).flatMap(partial(_keyed, extraction))
        self._items: RDD[tuple[Key, Any]] = found.repartitionAndSortWithinPartitions(
            self._parts + 1, _part_of
        )
        self.chunks: list[FoundChunk] = list(context.runJob(self._items, _values, [self._parts]))

    def each_part(self, work: Work[T]) -> list[T]:
        """See Gathered."""

        def with_start(found: Iterable[tuple[Key, bytes]]) -> Iterable[T]:
            """Run the work over the items of one part."""
            return work((start, items) for (_, start), items in found)

        return list(self._context.runJob(self._items, with_start, list(range(self._parts))))

    def drop(self) -> None:
        """Spark removes the shuffle's files by itself."""


@cache
def settle() -> None:
    """Exclude everything that a worker has loaded from garbage collection.

    A worker collects garbage after each task, which takes 40 ms otherwise.
    """
    gc.freeze()


def _keyed(extraction: Extraction, part: LogRange) -> Iterator[tuple[Key, Any]]:
    settle()
    for chunk, items in extraction.chunks(part):
        yield (extraction.parts, chunk.start), (part.start, chunk)
        for number, found in enumerate(items):
            if found:
                yield (number, chunk.start), found


def _part_of(key: Key) -> int:
    return key[0]


def _values(found: Iterable[tuple[Key, FoundChunk]]) -> Iterator[FoundChunk]:
    return (chunk for _, chunk in found)


class Run(NamedTuple):
    """The place of a chunk's items in a file, which holds them part by part."""

    path: str
    at: int
    sizes: tuple[int, ...]
    """Bytes of each part."""


class Behind(NamedTuple):
    """The end of a task that needs queue entries which are not there yet; its file is gone."""

    why: str


class Spilled:
    """``Gathered`` in files, one for each task; Spark deletes them too when it stops.

    Raises QueuesBehind, and leaves no file then.
    """

    def __init__(
        self, context: SparkContext, extraction: Extraction, ranges: Sequence[LogRange], tasks: int
    ) -> None:
        self._context = context
        self._parts = extraction.parts
        found = context.parallelize(ranges, tasks).mapPartitions(SpillTask(extraction)).collect()
        spilled = [each for each in found if not isinstance(each, Behind)]
        self.chunks: list[FoundChunk] = [chunk for chunk, _ in spilled]
        self._runs = [(chunk.start, run) for (_, chunk), run in spilled]
        if len(spilled) < len(found):
            self.drop()
            raise QueuesBehind(next(each.why for each in found if isinstance(each, Behind)))

    def each_part(self, work: Work[T]) -> list[T]:
        """See Gathered."""
        runs = self._runs

        def of_part(numbers: Iterable[int]) -> Iterator[T]:
            """Run the work over the items of the numbered parts."""
            for number in numbers:
                yield from work(items_of(number, runs))

        parts = self._context.parallelize(range(self._parts), self._parts)
        return parts.mapPartitions(of_part).collect()

    def drop(self) -> None:
        """Delete the files."""
        for path in {run.path for _, run in self._runs}:
            with suppress(FileNotFoundError):
                Path(path).unlink()
        self._runs = []


@dataclass(frozen=True, slots=True)
class SpillTask:
    """The task that extracts the items of its ranges to a file."""

    extraction: Extraction

    def __call__(self, ranges: Iterable[LogRange]) -> Iterator[tuple[FoundChunk, Run] | Behind]:
        """Run ``spill``. Raises JobError.

        Damage that needs queue entries before they are complete ends the task with ``Behind``.
        """
        settle()
        try:
            yield from self.spill(ranges)
        except QueuesBehind as error:
            yield Behind(str(error))

    def spill(self, ranges: Iterable[LogRange]) -> Iterator[tuple[FoundChunk, Run]]:
        """Write the items of all ranges; yields each chunk and its place. Raises JobError."""
        with _kept_file() as file:
            at = 0
            for part in ranges:
                for chunk, items in self.extraction.chunks(part):
                    sizes = tuple(map(len, items))
                    file.writelines(items)
                    yield (part.start, chunk), Run(file.name, at, sizes)
                    at += sum(sizes)


@contextmanager
def _kept_file() -> Iterator[IO[bytes]]:
    """A new file in the scratch directory, which is kept on success. Raises JobError."""
    try:
        with NamedTemporaryFile(dir=scratch(), prefix="index-items-", delete=False) as file:
            try:
                yield file
            except BaseException:
                Path(file.name).unlink()
                raise
    except OSError as error:
        raise JobError(
            f"items of the index cannot be gathered ({error}): see that Spark has room for them"
            " in its scratch (spark.local.dir)"
        ) from error


def items_of(part: int, runs: Iterable[tuple[int, Run]]) -> Iterator[Items]:
    """One part's items in the order of the runs. Raises OSError."""
    for path, found in groupby(runs, lambda each: each[1].path):
        with Path(path).open("rb") as file:
            for start, run in found:
                if run.sizes[part]:
                    file.seek(run.at + sum(run.sizes[:part]))
                    yield start, file.read(run.sizes[part])
