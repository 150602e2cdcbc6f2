"""The commit log as a DataFrame: what a notebook or a job begins with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from mqstore.jobs import columns as known
from mqstore.jobs.data_source import NAME, CommitLogSource
from mqstore.jobs.log.ranges import RANGE_SIZE, size_for
from mqstore.jobs.read_options import ReadOptions

TASKS_PER_CORE: Final = 3
"""At least, where the log has the bytes for it: one slow task then holds up little."""

Time = int | str | datetime
"""Milliseconds since 1970, or a date and time with its zone."""


def commitlog(
    spark: SparkSession,
    where: str,
    *,
    columns: Sequence[str] | None = None,
    topic: str | Iterable[str] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    offsets: tuple[int, int] | None = None,
    partition_bytes: int | None = None,
    token_file: str | None = None,
    ca: str | None = None,
) -> DataFrame:
    """Return all messages of a store, from its path or the address of a shard's query service.

    ``columns`` are those of docs/jobs.md, by default all but ``properties`` and ``body``; only what
    is named is decoded. Stored from ``since`` to before ``until``; ``offsets``: that begin from the
    first physical offset to before the second one. What is named here is never made a row;
    later filters are Spark's. Raises JobError at once for what cannot be read.
    """
    given = {
        "columns": None if columns is None else ",".join(columns),
        "topic": topic if topic is None or isinstance(topic, str) else ",".join(topic),
        "since": _text(since),
        "until": _text(until),
        "fromOffset": None if offsets is None else str(offsets[0]),
        "toOffset": None if offsets is None else str(offsets[1]),
        "partitionBytes": None if partition_bytes is None else str(partition_bytes),
        "tokenFile": token_file,
        "ca": ca,
    }
    return _loaded(spark, where, given)


def corrupt_stretches(
    spark: SparkSession, where: str, *, token_file: str | None = None, ca: str | None = None
) -> DataFrame:
    """Every stretch of the log that is no whole record. Raises as ``commitlog``."""
    return _loaded(spark, where, {"table": "corrupt", "tokenFile": token_file, "ca": ca})


def _loaded(spark: SparkSession, where: str, given: dict[str, str | None]) -> DataFrame:
    options = {name: text for name, text in given.items() if text is not None} | {"path": where}
    read = ReadOptions.of(options)
    schema = known.ddl(known.chosen(read.table, read.columns))
    if "partitionBytes" not in options:
        total = sum(each.end - each.start for each in read.look().segments)
        least = TASKS_PER_CORE * spark.sparkContext.defaultParallelism
        options["partitionBytes"] = str(size_for(total, least, RANGE_SIZE))
    spark.dataSource.register(CommitLogSource)
    return spark.read.format(NAME).schema(schema).options(**options).load()


def _text(time: Time | None) -> str | None:
    return time.isoformat() if isinstance(time, datetime) else None if time is None else str(time)
