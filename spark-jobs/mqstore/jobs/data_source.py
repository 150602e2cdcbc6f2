"""Spark's data source ``commitlog``: ``spark.read.format("commitlog").load(path or address)``.

Spark makes the reader in a Python process of its own beside the driver and sends each partition to
the worker that reads it. A partition therefore holds everything that its task needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from mqstore.jobs import columns
from mqstore.jobs.arrow import corrupt_batch, message_batch
from mqstore.jobs.columns import SEGMENT
from mqstore.jobs.errors import WrongUsage
from mqstore.jobs.log.ranges import plan
from mqstore.jobs.log.scan import RangeScan
from mqstore.jobs.log.source import Log, LogRange
from mqstore.jobs.read_options import ReadOptions
from mqstore.storage.formats import RecordColumns

NAME: Final = "commitlog"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass
class LogPartition(InputPartition):
    """The range of the log that one task reads, and the log."""

    log: Log
    part: LogRange

    def __repr__(self) -> str:
        return f"{self.part.segment.name} from {self.part.start} to {self.part.stop}"


class CommitLogSource(DataSource):
    """The data source ``commitlog``, which Spark makes for each load."""

    @classmethod
    def name(cls) -> str:
        """The name that ``spark.read.format`` takes."""
        return NAME

    def schema(self) -> str:
        """The schema of the chosen table and columns, in DDL. Raises WrongUsage."""
        options = ReadOptions.of(self.options)
        return columns.ddl(columns.chosen(options.table, options.columns))

    def reader(self, schema: StructType) -> CommitLogReader:
        """The reader of the columns of ``schema``. Raises WrongUsage."""
        options = ReadOptions.of(self.options)
        reader = NarrowedReader if options.pushdown else CommitLogReader
        return reader(options, _wanted_columns(options.table, schema))


class CommitLogReader(DataSourceReader):
    """Plans the partitions of a log, and reads one in each task.

    ``wanted`` maps the names of the columns to Spark's types.
    """

    def __init__(self, options: ReadOptions, wanted: dict[str, str]) -> None:
        self.options = options
        self.wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """One partition for each range of the log. Raises JobError."""
        options = self.options
        seen = options.look()
        with seen.log.opened() as reader:
            ranges = plan(reader, seen.segments, options.partition_bytes, options.low, options.high)
            return [LogPartition(seen.log, part) for part in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition, a batch for each step of the scan. Raises JobError."""
        if not isinstance(partition, LogPartition):
            return  # for a log without bytes Spark makes one partition that is None
        options, part = self.options, partition.part
        rows = RecordColumns(
            [name for name in self.wanted if name != SEGMENT and options.table == "messages"],
            topics=None if options.topics is None else map(str.encode, options.topics),
            lowest=options.low,
            since_ms=options.since_ms,
            until_ms=options.until_ms,
        )
        with partition.log.opened() as reader:
            for corrupt in RangeScan(reader, part, rows, high=options.high).steps():
                if options.table == "messages":
                    yield message_batch(self.wanted, rows, part.segment.name)
                    continue
                rows.take()
                behind = [c for c in corrupt if c.physical_offset + c.size > options.low]
                yield corrupt_batch(self.wanted, behind)


class NarrowedReader(CommitLogReader):
    """A reader that accepts filters from Spark; the option ``pushdown`` selects it.

    It is not the default for two reasons. Spark 4.3 rejects such a reader if its setting for
    pushdown is off, and it keeps accepted filters for every other query over the same DataFrame.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Narrow the range and rows to read; returns all filters, which Spark applies again."""
        for each in filters:
            self.options = narrowed(self.options, each)
        return filters


def _wanted_columns(table: str, schema: StructType) -> dict[str, str]:
    """The columns of a schema with their types. Raises WrongUsage if a type is not the table's."""
    wanted = columns.chosen(table, schema.names)
    for field in schema.fields:
        if field.dataType.simpleString() != wanted[field.name]:
            raise WrongUsage(
                f"column {field.name} is {wanted[field.name]}, not {field.dataType.simpleString()}"
            )
    return wanted


def narrowed(options: ReadOptions, pushed: Filter) -> ReadOptions:
    """Options without the ranges, topics and times that a filter certainly excludes."""
    match pushed:
        case EqualTo(attribute=("topic",), value=str(topic)) if _is_exact(topic):
            return options.of_topics([topic])
        case In(attribute=("topic",), value=found):
            topics = [topic for topic in found if topic is not None]
            return options.of_topics(topics) if all(map(_is_exact, topics)) else options
        case EqualTo(attribute=("physical_offset",), value=int(offset)):
            return options.within(low=offset, high=offset + 1)
        case GreaterThan(attribute=("physical_offset",), value=int(offset)):
            return options.within(low=offset + 1)
        case GreaterThanOrEqual(attribute=("physical_offset",), value=int(offset)):
            return options.within(low=offset)
        case LessThan(attribute=("physical_offset",), value=int(offset)):
            return options.within(high=offset)
        case LessThanOrEqual(attribute=("physical_offset",), value=int(offset)):
            return options.within(high=offset + 1)
        case (
            GreaterThan(attribute=("store_time",), value=datetime() as time)
            | GreaterThanOrEqual(attribute=("store_time",), value=datetime() as time)
        ):
            return options.within(since_ms=_microseconds(time) // 1000)
        case (
            LessThan(attribute=("store_time",), value=datetime() as time)
            | LessThanOrEqual(attribute=("store_time",), value=datetime() as time)
        ):
            return options.within(until_ms=_microseconds(time) // 1000 + 1)
    return options


def _is_exact(topic: str) -> bool:
    """Whether only one byte string decodes to this text."""
    return "\ufffd" not in topic


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND
