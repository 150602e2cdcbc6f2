"""Spark's data source ``commitlog``: ``spark.read.format("commitlog").load(path or address)``.

Spark makes a reader in a Python process of its own beside the driver, and sends a partition to
wherever it is read; a partition says by itself all that its task needs.
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
from mqstore.storage._kernel import RecordColumns

NAME: Final = "commitlog"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass
class LogPartition(InputPartition):
    """What one task reads, and from where."""

    log: Log
    part: LogRange

    def __repr__(self) -> str:
        return f"{self.part.segment.name} from {self.part.start} to {self.part.stop}"


class CommitLogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = ReadOptions.of(self.options)
        return columns.ddl(columns.chosen(options.table, options.columns))

    def reader(self, schema: StructType) -> CommitLogReader:
        options = ReadOptions.of(self.options)
        reader = NarrowedReader if options.pushdown else CommitLogReader
        return reader(options, _asked(options.table, schema))


class CommitLogReader(DataSourceReader):
    def __init__(self, options: ReadOptions, asked: dict[str, str]) -> None:
        self.options = options
        self.asked = asked

    def partitions(self) -> list[InputPartition]:
        options = self.options
        seen = options.look()
        with seen.log.opened() as reader:
            ranges = plan(reader, seen.segments, options.partition_bytes, options.low, options.high)
            return [LogPartition(seen.log, part) for part in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):
            return  # of a log without bytes Spark makes one partition that is None
        options, part = self.options, partition.part
        rows = RecordColumns(
            [name for name in self.asked if name != SEGMENT and options.table == "messages"],
            topics=None if options.topics is None else map(str.encode, options.topics),
            lowest=options.low,
            since_ms=options.since_ms,
            until_ms=options.until_ms,
        )
        with partition.log.opened() as reader:
            for corrupt in RangeScan(reader, part, rows, high=options.high).steps():
                if options.table == "messages":
                    yield message_batch(self.asked, rows, part.segment.name)
                    continue
                rows.take()
                behind = [c for c in corrupt if c.physical_offset + c.size > options.low]
                yield corrupt_batch(self.asked, behind)


class NarrowedReader(CommitLogReader):
    """Takes filters. Spark 4.3 refuses such a reader where its setting for that is off, and keeps
    what it has taken for every other query over the same DataFrame: so it has to be asked for."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """What a filter rules out is not made a row; Spark still looks at each row itself."""
        for each in filters:
            self.options = narrowed(self.options, each)
        return filters


def _asked(table: str, schema: StructType) -> dict[str, str]:
    """The columns of a schema; WrongUsage where it is not one of ours."""
    wanted = columns.chosen(table, schema.names)
    for field in schema.fields:
        if field.dataType.simpleString() != wanted[field.name]:
            raise WrongUsage(
                f"column {field.name} is {wanted[field.name]}, not {field.dataType.simpleString()}"
            )
    return wanted


def narrowed(options: ReadOptions, pushed: Filter) -> ReadOptions:
    """Without what a filter surely rules out."""
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
    """Whether no other bytes than its own are read as this text."""
    return "\ufffd" not in topic


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND
