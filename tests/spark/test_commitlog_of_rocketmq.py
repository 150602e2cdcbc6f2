"""A store that real RocketMQ wrote and we never opened: Spark finds what RocketMQ itself finds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from mqstore.jobs.columns import MESSAGES
from mqstore.jobs.commitlog import commitlog
from tests.compat.compare import Dump
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.shapes import EVERYTHING, expand
from tests.compat.versions import mainly

pytestmark = [pytest.mark.slow, pytest.mark.referee, pytest.mark.xdist_group("spark")]

YEAR_1_MS, YEAR_9999_MS = -62135596800000, 253402300799999
NAMES = {
    "physical_offset": "phys",
    "size": "size",
    "topic": "topic",
    "queue_id": "q",
    "queue_offset": "qoff",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "born_ms": "bornTs",
    "store_ms": "storeTs",
    "reconsume_times": "reconsume",
    "prepared_transaction_offset": "pto",
    "body_crc": "bodyCrc",
    "tags": "tags",
    "keys": "keys",
    "uniq_key": "uniqKey",
}


def of_spark(row: Row) -> dict[str, Any]:
    found = {theirs: row[ours] for ours, theirs in NAMES.items()}
    digest = hashlib.sha256(bytes(row.body)).hexdigest()
    return found | {"props": row.properties, "bodySha256": digest}


def of_rocketmq(line: dict[str, Any]) -> dict[str, Any]:
    found = {theirs: line.get(theirs) for theirs in NAMES.values()}
    if not YEAR_1_MS <= line["bornTs"] <= YEAR_9999_MS:
        found["bornTs"] = None
    return found | {"props": line["props"] or {}, "bodySha256": line["bodySha256"]}


@mainly("5.4.0")
def test_spark_and_rocketmq_find_the_same_messages(
    spark: SparkSession, referee: Referee, tmp_path: Path
) -> None:
    script = expand(2, EVERYTHING, referee.format)
    store = tmp_path / "store"
    referee.write(script, store)
    messages = (
        commitlog(spark, str(store), columns=list(MESSAGES))
        .withColumn("born_ms", f.unix_millis("born_time"))
        .withColumn("store_ms", f.unix_millis("store_time"))
        .orderBy("physical_offset")
    )
    found = [of_spark(row) for row in messages.collect()]
    theirs = Dump.of(referee.dump(copy_of(store), script.config))
    assert len(found) > 10
    assert found == [of_rocketmq(line) for line in theirs.messages]
