"""The expiry report of real stores says what their messages say, one by one."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqstore.client import NewMessage, ProblemError
from mqstore.jobs.command import refusal
from mqstore.jobs.errors import AccessRefused
from mqstore.jobs.expiry import facts_at_path
from mqstore.jobs.expiry.facts import ShardFacts
from mqstore.jobs.expiry_report import Options, report_shard
from mqstore.jobs.job_run import JobRun, Outcome
from mqstore.jobs.output import Output
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC
from mqstore.storage.message_store import Durability, MessageStore
from tests.services.service_processes import running
from tests.spark.deletions import DeletingRun
from tests.unit.jobs.expiry_examples import ANY_HOUR, disks
from tests.unit.jobs.written import offsets_of, overwrite, written
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, message, open_store

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

HOUR_S = 3600
ANY_TIME: dict[str, Any] = {"delete_when": ANY_HOUR, "file_reserved_time": 72}
KEEPING = CONFIG.model_copy(update={"delete_when": ANY_HOUR})


def reported(
    spark: SparkSession, shard: str, out: Path, token_file: str | None = None
) -> tuple[Outcome, dict[str, Any]]:
    """How the job ended, and its report."""
    options = Options(Output(str(out)), (1, 24, 100), (24,), None, token_file, None, dry_run=False)
    outcome = report_shard(JobRun("expiry-report", spark), shard, options=options)
    (name,) = [name for name in outcome.report["files"] if name.endswith(".json")]
    return outcome, json.loads((out / name).read_text())


def aged(root: Path, hours: int) -> None:
    """Each segment last written so many hours before the next one."""
    names = sorted((root / "commitlog").iterdir())
    for number, path in enumerate(reversed(names)):
        when = time.time() - number * hours * HOUR_S
        os.utime(path, (when, when))


def random_store(
    root: Path, seed: int
) -> tuple[list[Record], dict[tuple[str, str], dict[int, int]]]:
    """Its messages, and what groups have consumed."""
    dice = random.Random(seed)
    with open_store(root, KEEPING) as store:
        for topic in "TUV":
            store.create_topic(topic, queues=3)
        placed = [
            put_message(
                store,
                message(store, n, topic=dice.choice("TTUV"), queue_id=dice.randrange(3)),
                Durability.ASYNC,
            )
            for n in range(2500)
        ]
        consumed = {
            (group, topic): {queue: dice.randint(0, 200) for queue in range(dice.randint(1, 3))}
            for group, topic in (("g", "T"), ("g", "U"), ("h", "T"), ("i", "U"))
        }
        for (group, topic), offsets in consumed.items():
            commits = [Commit(topic, queue, offset) for queue, offset in offsets.items()]
            store.offsets.commit(group, commits)
        records = [store.log.record_at(each.physical_offset) for each in placed]
    return records, consumed


def test_what_goes_and_who_loses_it_is_what_the_messages_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    records, consumed = random_store(root, seed=1)
    aged(root, 10)
    outcome, report = reported(spark, str(root), tmp_path / "out")
    assert outcome.exit_code == 1
    assert report["messages"] == len(records)
    ends = [each["endOffset"] for each in report["expiring"]]
    assert ends == sorted(ends[:3]) + sorted(ends[3:])
    assert 0 < ends[0] < ends[2] < report["maxOffset"]
    for each in report["expiring"]:
        gone = [found for found in records if found.physical_offset < each["endOffset"]]
        key = each["reservedHours"], each["horizonHours"]
        assert (each["messages"], each["bytes"]) == (len(gone), sum(g.size for g in gone))
        assert {
            (topic["topic"], topic["messages"])
            for topic in report["topicsExpiring"]
            if (topic["reservedHours"], topic["horizonHours"]) == key
        } == set(Counter(found.topic for found in gone).items())
        assert {
            (risk["name"], risk["topic"], risk["messages"])
            for risk in report["risks"]
            if (risk["reservedHours"], risk["horizonHours"]) == key
        } == {
            (*lost, count)
            for lost, count in Counter(
                (group, topic)
                for (group, topic), offsets in consumed.items()
                for found in gone
                if found.topic == topic and found.queue_offset >= offsets.get(found.queue_id, 0)
            ).items()
        }


def test_its_tables_are_read_by_day_and_a_second_run_replaces_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    import duckdb  # its types complain when a process ends that has imported it

    root, out = written(tmp_path / "store"), tmp_path / "out"
    aged(root, 80)
    reported(spark, str(root), out)
    _, report = reported(spark, str(root), out)
    rows = [(each["topic"], each["messages"]) for each in report["topics"]]
    found = duckdb.connect().execute(
        f"select topic, messages from read_parquet('{out}/topics/*/*.parquet', hive_partitioning=1)"
    )
    assert found.fetchall() == rows
    by_day = spark.read.parquet(str(out / "segments")).groupBy("report_date").count().collect()
    assert [row["count"] for row in by_day] == [len(report["segments"])]
    assert [path.name for path in out.rglob("_staged*")] == []
    (page,) = out.rglob("*.html")
    assert page.read_text().startswith("<!doctype html>")


def half(store: MessageStore, key: str, topic: str = "T") -> None:
    pairs = {"UNIQ_KEY": key, "REAL_TOPIC": topic, "TRAN_MSG": "true", "PGROUP": "p"}
    new = message(store, 0, topic=HALF_TOPIC)
    new.properties = properties.encode(
        pairs, trailing_separator=store.format.trailing_property_separator
    )
    put_message(store, new, Durability.ASYNC)


def decided(store: MessageStore, body: bytes) -> None:
    new = message(store, 0, topic=OP_TOPIC)
    new.body = body
    put_message(store, new, Durability.ASYNC)


def test_undecided_half_messages_are_lost(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, KEEPING) as store:
        for key in ("below", "named", "one-of-many", "again", "open", "again", "last"):
            half(store, key)
        decided(store, b"1")
        decided(store, b"2,6,")
        store.offsets.commit("CID_RMQ_SYS_TRANS", [Commit(HALF_TOPIC, 0, 1)])
        for number in range(500):
            put_message(store, message(store, number, topic="U"), Durability.ASYNC)
    aged(root, 80)
    outcome, report = reported(spark, str(root), tmp_path / "out")
    assert outcome.exit_code == 1
    assert {(risk["kind"], risk["topic"], risk["messages"]) for risk in report["risks"]} == {
        ("half", "T", 2)  # "again" counts once
    }


def test_an_empty_store_is_reported_as_one(spark: SparkSession, tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    outcome, report = reported(spark, str(tmp_path / "store"), tmp_path / "out")
    assert (outcome.exit_code, report["messages"], report["risks"]) == (0, 0, [])


def test_a_disk_that_fills_is_a_finding_without_any_loss(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(tmp_path / "store").close()
    look = facts_at_path.look

    def look_at_a_full_disk(root: Path, settings: Path | None) -> ShardFacts:
        return replace(look(root, settings), disks=disks(87), config=StoreConfig())

    monkeypatch.setattr(facts_at_path, "look", look_at_a_full_disk)
    outcome, report = reported(spark, str(tmp_path / "store"), tmp_path / "out")

    assert (outcome.exit_code, report["atRisk"], report["diskFills"]) == (1, False, True)
    assert outcome.report["diskFills"] is True


def test_a_segment_that_is_deleted_meanwhile_ends_it_and_nothing_is_put_out(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = written(tmp_path / "store")
    first = min((root / "commitlog").iterdir())
    options = Options(
        *(Output(str(tmp_path / "out")), (24,), (), None, None, None),
        dry_run=False,
        archive=Output(str(tmp_path / "archive")),
    )
    job = DeletingRun(spark, first, before="counting")
    capsys.readouterr()
    assert job.over([str(root)], partial(report_shard, options=options)) == 2
    (shard,) = json.loads(capsys.readouterr().out)["shards"]
    assert shard["error"].startswith(f"segment {first.name} was deleted while it was read")
    left = [path for name in ("out", "archive") for path in (tmp_path / name).rglob("*.*")]
    assert left == []


def test_of_a_torn_tail_what_recovery_keeps_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    root = written(tmp_path / "store", 100)
    (root / "mqstore" / "clean-close.json").unlink()
    offsets = offsets_of(root)
    overwrite(root, offsets[-1] + 40, bytes(60))
    (root / "abort").touch()
    _, report = reported(spark, str(root), tmp_path / "out")
    assert report["messages"] == len(offsets) - 1


def without_times(found: Any) -> Any:
    if not isinstance(found, list):
        return found
    return [each | {"goesMs": 0} for each in found]


def test_by_addresses_the_same_is_said_as_by_path(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with running(root, mapped_file_size_commit_log=1 << 20, **ANY_TIME) as run:
        with run.client() as client:
            client.create_topic("T", queues=1)
            for _ in range(4):
                client.produce("T", [NewMessage(body="x" * 9000)] * 80, durability="sync")
            client.commit("g", "T", {0: 10})
            client.flush()
        aged(root, 15)  # what is over, the writer deletes
        by_url = reported(spark, f"{run.query_url},{run.writer_url}", tmp_path / "url")
        with run.client() as client:
            kept = client.expiry_report().report
        run.stop()
    by_path = reported(spark, str(root), tmp_path / "path")
    for name in ("expiring", "risks", "topicsExpiring", "rule", "minOffset", "shard"):
        assert without_times(by_url[1][name]) == without_times(by_path[1][name])
    assert by_url[0].exit_code == by_path[0].exit_code == 1
    assert by_url[1]["risks"][0]["name"] == "g"
    assert kept is not None  # store-writer has it
    assert (kept["madeMs"], kept["risks"]) == (by_url[1]["madeMs"], by_url[0].report["risks"])


def test_wrong_credentials_end_it_with_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong")
    with running(tmp_path / "store", token_consume="c" * 32) as run:
        shard = f"{run.query_url},{run.writer_url}"
        with pytest.raises(ProblemError) as caught:
            reported(spark, shard, tmp_path / "out", str(tmp_path / "token"))
    assert isinstance(refusal(caught.value), AccessRefused)
