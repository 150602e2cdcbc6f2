"""Counts of a shard's log, by Spark: all messages in one pass, half messages in another.

The marks of a queue are the next offsets of its readers. ``past`` is the number of marks at or
below the offset of a message; the readers of these marks have not consumed the message. So one pass
counts for any number of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mqstore.jobs.expiry.counts import AGES_H, NOT_QUEUED, Count
from mqstore.storage.formats import HALF_TOPIC, OP_TOPIC, QUEUED_TYPES, TRANSACTION_MASK

COLUMNS: Final = (
    *("physical_offset", "size", "topic", "queue_id", "queue_offset", "store_time"),
    *("sys_flag", "segment"),
)
HALF_COLUMNS: Final = (
    *("physical_offset", "size", "topic", "queue_offset", "store_time", "segment"),
    *("uniq_key", "real_topic", "body"),
)
Marks = Mapping[tuple[str, int], Sequence[int]]
"""Offsets, ascending, each once, by topic and queue."""


def counted(spark: SparkSession, messages: DataFrame, marks: Marks, now_ms: int) -> pa.Table:
    """Count messages for ``LogCounts``; ``messages`` has COLUMNS.

    The result has one row for each segment, queue, ``past`` and age: about 80 bytes for all
    messages that a segment has of a queue.
    """
    stored_ms = f.unix_millis("store_time")
    edges = ", ".join(map(str, AGES_H))
    counts = (
        _past(spark, messages, marks)
        .withColumn("hours", (f.lit(now_ms) - stored_ms) / 3_600_000)
        .withColumn("age", f.expr(f"size(filter(array({edges}), edge -> edge <= hours))"))
        .groupBy("segment", "topic", "queue_id", "past", "age")
        .agg(
            f.count("*").alias("messages"),
            f.sum("size").alias("bytes"),
            f.min("physical_offset").alias("first_offset"),
            f.min(stored_ms).alias("oldest_ms"),
            f.max(stored_ms).alias("newest_ms"),
        )
    )
    return counts.toArrow()


def undecided(records: DataFrame, decided_below: int) -> list[Count]:
    """segment, topic, messages, bytes, oldest_ms of the newest copies of undecided half messages.

    ``records`` has HALF_COLUMNS of both transaction topics; all half messages below queue offset
    ``decided_below`` are over, and those that an op record names. Copies are one by UNIQ_KEY.
    """
    named = (
        records.where(f.col("topic") == OP_TOPIC)
        .select(f.explode(f.split(f.decode("body", "UTF-8"), ",")).alias("text"))
        .select(f.expr("try_cast(trim(text) as bigint)").alias("queue_offset"))
        .where("queue_offset is not null")
        .distinct()
        .withColumn("is_named", f.lit(True))
    )
    halves = records.where((f.col("topic") == HALF_TOPIC) & f.col("real_topic").isNotNull()).join(
        named, "queue_offset", "left"
    )
    is_over = f.coalesce("is_named", f.lit(False)) | (f.col("queue_offset") < decided_below)
    newest = (
        halves.withColumn("key", f.coalesce("uniq_key", f.col("physical_offset").cast("string")))
        .groupBy("key")
        .agg(
            f.max(is_over).alias("is_over"),
            f.max_by(
                f.struct("segment", "real_topic", "size", "store_time"), "physical_offset"
            ).alias("last"),
        )
        .where("not is_over")
        .select("last.*")
    )
    found = newest.groupBy("segment", f.col("real_topic").alias("topic")).agg(
        f.count("*").alias("messages"),
        f.sum("size").alias("bytes"),
        f.unix_millis(f.min("store_time")).alias("oldest_ms"),
    )
    return [Count(**row.asDict()) for row in found.collect()]


def _past(spark: SparkSession, messages: DataFrame, marks: Marks) -> DataFrame:
    rows = [(topic, queue_id, list(offsets)) for (topic, queue_id), offsets in marks.items()]
    schema = "topic string, queue_id int, marks array<bigint>"
    known = f.broadcast(spark.createDataFrame(rows, schema))
    is_queued = (f.col("sys_flag").bitwiseAND(TRANSACTION_MASK)).isin(*QUEUED_TYPES)
    passed = f.expr("coalesce(size(filter(marks, mark -> mark <= queue_offset)), 0)")
    return messages.join(known, ["topic", "queue_id"], "left").withColumn(
        "past", f.when(is_queued, f.greatest(passed, f.lit(0))).otherwise(NOT_QUEUED)
    )
