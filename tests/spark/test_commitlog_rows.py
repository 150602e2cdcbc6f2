"""Spark reads the same rows from a log as the store's own reader, with any splits and filters."""

from __future__ import annotations

import random
import runpy
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from mqstore.jobs.columns import MESSAGES, ON_DEMAND
from mqstore.jobs.commitlog import commitlog, corrupt_stretches
from mqstore.jobs.data_source import CommitLogSource
from mqstore.jobs.errors import NoStore, WrongUsage
from mqstore.jobs.log.ranges import RANGE_MIN
from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.paths import segment_name
from tests.unit.jobs.written import (
    BODY_AT,
    offsets_of,
    overwrite,
    put_forged,
    written,
)
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, open_store, put_some

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "count_by_hour.py"
LARGE = CONFIG.model_copy(update={"mapped_file_size_commit_log": 4 << 20})
HOSTS = [Host.parse("10.0.0.1", 10911), Host.parse("fe80::1", 65535)]


def random_message(store: MessageStore, dice: random.Random) -> Message:
    pairs = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "U", "REAL_TOPIC": "R", "日本": "é😀"}
    chosen = dict(dice.sample(sorted(pairs.items()), dice.randint(0, 5)))
    encoded = properties.encode(chosen, trailing_separator=store.format.trailing_property_separator)
    found = Message(
        dice.choice(["T", "%RETRY%g", "日本"]),
        dice.randint(0, 3),
        dice.randbytes(dice.randint(0, 9000)),
        encoded,
        dice.choice(HOSTS),
        dice.choice(HOSTS),
        dice.choice([0, 1_700_000_000_000, 2**62]),
        flag=dice.randint(-5, 5),
    )
    found.reconsume_times = dice.randint(0, 16)
    return found


def random_store(root: Path, seed: int, count: int = 1500) -> list[Record]:
    """A store of a few segments; its records as the strict reader of one record reads them."""
    dice = random.Random(seed)
    with open_store(root, LARGE) as store:
        placed = [
            put_message(store, random_message(store, dice), Durability.ASYNC) for _ in range(count)
        ]
        return [store.log.record_at(each.physical_offset) for each in placed]


def row_of(found: Record) -> dict[str, Any]:
    def time(milliseconds: int) -> datetime | None:
        if milliseconds > 253402300799999:
            return None
        since = timedelta(milliseconds=milliseconds)
        return (datetime.fromtimestamp(0, UTC) + since).replace(tzinfo=None)

    def host(of: Host) -> str:
        return f"[{of.address_text}]:{of.port}" if of.is_v6 else f"{of.address_text}:{of.port}"

    base = found.physical_offset - found.physical_offset % (4 << 20)
    return {
        "physical_offset": found.physical_offset,
        "size": found.size,
        "topic": found.topic,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "store_time": time(found.store_timestamp_ms),
        "born_time": time(found.born_timestamp_ms),
        "store_host": host(found.store_host),
        "born_host": host(found.born_host),
        "flag": found.flag,
        "sys_flag": found.sys_flag,
        "tags": found.tags,
        "keys": found.keys,
        "uniq_key": found.uniq_key,
        "real_topic": (found.properties or {}).get("REAL_TOPIC"),
        "reconsume_times": found.reconsume_times,
        "prepared_transaction_offset": found.prepared_transaction_offset,
        "body_crc": found.body_crc,
        "version": found.version,
        "segment": segment_name(base),
        "properties": found.properties or {},
        "body": found.body,
    }


def rows(messages: DataFrame) -> list[dict[str, Any]]:
    # Spark's dates are local to the driver; compared are the instants.
    utc = messages.select(
        *(
            f.date_format(name, "yyyy-MM-dd HH:mm:ss.SSS").alias(name)
            if name.endswith("_time")
            else name
            for name in messages.columns
        )
    )
    found = [row.asDict() for row in utc.orderBy("physical_offset").collect()]
    return [{name: _plain(value) for name, value in row.items()} for row in found]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def texts(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat(" ", "milliseconds") if isinstance(value, datetime) else value
        for name, value in row.items()
    }


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Record]]:
    root = tmp_path_factory.mktemp("known") / "store"
    return str(root), random_store(root, 1)


@pytest.mark.parametrize(("seed", "partition_bytes"), [(2, RANGE_MIN), (3, 3 << 20)])
def test_every_column_of_every_record_is_as_the_store_reads_it(
    spark: SparkSession, tmp_path: Path, seed: int, partition_bytes: int
) -> None:
    stored = random_store(tmp_path / "store", seed)
    messages = commitlog(
        spark, str(tmp_path / "store"), columns=list(MESSAGES), partition_bytes=partition_bytes
    )
    assert messages.rdd.getNumPartitions() >= 2
    assert rows(messages) == [texts(row_of(each)) for each in stored]


def test_without_columns_bodies_and_properties_stay_undecoded(
    spark: SparkSession, known: tuple[str, list[Record]]
) -> None:
    assert set(MESSAGES) - set(commitlog(spark, known[0]).columns) == ON_DEMAND
    assert commitlog(spark, known[0], columns=["body", "size"]).columns == ["body", "size"]


Wanted = Callable[[Record, Record], bool]
FILTERS: list[tuple[str, Wanted]] = [
    ("topic = '日本'", lambda r, _: r.topic == "日本"),
    (
        "topic in ('T', '%RETRY%g') and queue_id = 1",
        lambda r, _: r.topic in ("T", "%RETRY%g") and r.queue_id == 1,
    ),
    ("topic = 'T' or size > 5000", lambda r, _: r.topic == "T" or r.size > 5000),
    ("physical_offset = {offset}", lambda r, m: r.physical_offset == m.physical_offset),
    (
        "physical_offset > {offset} and topic = 'T'",
        lambda r, m: r.physical_offset > m.physical_offset and r.topic == "T",
    ),
    (
        "store_time >= timestamp_millis({when}) and physical_offset <= {offset}",
        lambda r, m: (
            r.store_timestamp_ms >= m.store_timestamp_ms and r.physical_offset <= m.physical_offset
        ),
    ),
    (
        "store_time < timestamp_millis({when})",
        lambda r, m: r.store_timestamp_ms < m.store_timestamp_ms,
    ),
]


def test_filters_over_one_table_find_what_they_should(
    spark: SparkSession, known: tuple[str, list[Record]]
) -> None:
    root, stored = known
    middle = stored[700]
    columns = ["physical_offset", "topic", "queue_id", "size", "store_time"]
    messages = commitlog(spark, root, columns=columns)
    one_job = [
        messages.filter(
            text.format(offset=middle.physical_offset, when=middle.store_timestamp_ms)
        ).select(f.lit(number), "physical_offset")
        for number, (text, _) in enumerate(FILTERS)
    ]
    found = {tuple(row) for row in reduce(DataFrame.union, one_job).collect()}
    assert found == {
        (number, each.physical_offset)
        for number, (_, wanted) in enumerate(FILTERS)
        for each in stored
        if wanted(each, middle)
    }


def test_a_filter_that_is_pushed_down_finds_the_same(
    spark: SparkSession, known: tuple[str, list[Record]]
) -> None:
    root, stored = known
    spark.dataSource.register(CommitLogSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    messages = spark.read.format("commitlog").option("pushdown", "true").load(root)
    found = messages.filter("topic = '日本'").select("physical_offset").collect()
    assert {row[0] for row in found} == {
        each.physical_offset for each in stored if each.topic == "日本"
    }


def test_arguments_of_the_helper_narrow_as_a_filter_does(
    spark: SparkSession, known: tuple[str, list[Record]]
) -> None:
    root, stored = known
    low, high = stored[300], stored[1200]
    messages = commitlog(
        spark,
        root,
        columns=["physical_offset"],
        topic=["T", "日本"],
        since=low.store_timestamp_ms,
        until=datetime.fromtimestamp(high.store_timestamp_ms / 1000, UTC),
        offsets=(low.physical_offset, high.physical_offset),
    )
    expected = [
        each.physical_offset
        for each in stored[300:1200]
        if each.topic in ("T", "日本")
        and low.store_timestamp_ms <= each.store_timestamp_ms < high.store_timestamp_ms
    ]
    assert sorted(row[0] for row in messages.collect()) == expected


def test_ranges_outside_of_the_offsets_are_not_read(
    spark: SparkSession, known: tuple[str, list[Record]]
) -> None:
    root, stored = known
    whole = commitlog(spark, root, partition_bytes=RANGE_MIN).rdd.getNumPartitions()
    offsets = (stored[0].physical_offset, stored[10].physical_offset)
    some = commitlog(spark, root, partition_bytes=RANGE_MIN, offsets=offsets)
    assert some.rdd.getNumPartitions() == 1 < whole
    assert some.count() == 10


def test_damage_and_forgeries_are_no_messages_and_are_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_store(tmp_path / "store") as store:
        put_some(store, 100)
        put_forged(store, 100)
        put_some(store, 100, start=101)
    starts = offsets_of(tmp_path / "store")
    overwrite(tmp_path / "store", starts[5] + BODY_AT, b"?")
    overwrite(tmp_path / "store", starts[100], bytes(8))
    messages = commitlog(spark, str(tmp_path / "store"), columns=["physical_offset"])
    lost = {starts[5], starts[100]}
    assert sorted(row[0] for row in messages.collect()) == [s for s in starts if s not in lost]
    stretches: list[Row] = corrupt_stretches(spark, str(tmp_path / "store")).collect()
    assert {(each.physical_offset, each.defect) for each in stretches} == {
        (starts[5], "body-corrupt"),
        (starts[100], "magic-unknown"),
    }


def test_a_store_without_messages_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store"):
        pass
    assert commitlog(spark, str(tmp_path / "store")).count() == 0
    assert corrupt_stretches(spark, str(tmp_path / "store")).count() == 0


def test_what_cannot_be_read_is_reported_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(NoStore, match="is no directory"):
        commitlog(spark, str(tmp_path / "nowhere"))
    with pytest.raises(WrongUsage, match="no column 'colour'"):
        commitlog(spark, str(written(tmp_path / "store", 1)), columns=["colour"])


def test_a_schema_that_is_not_ours_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = str(written(tmp_path / "store", 1))
    commitlog(spark, root)
    with pytest.raises(Exception, match="column topic is string, not int"):
        spark.read.format("commitlog").schema("topic int").load(root).collect()


@pytest.fixture
def arguments() -> Iterator[list[str]]:
    before = sys.argv
    sys.argv = [str(EXAMPLE)]
    yield sys.argv
    sys.argv = before


def test_the_example_counts_by_topic_and_hour(
    spark: SparkSession,
    known: tuple[str, list[Record]],
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments.append(known[0])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ended.value.code == 0
    counted = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert sum(int(line[3]) for line in counted[1:]) == len(known[1])
    assert {line[1].strip() for line in counted[1:]} == {each.topic for each in known[1]}
