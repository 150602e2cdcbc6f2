"""Expiring messages are archived completely and read by others before they are deleted."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqstore.client import NewMessage
from mqstore.jobs.archive import export
from mqstore.jobs.archive.digest import digest
from mqstore.jobs.columns import MESSAGES
from mqstore.jobs.command import refusal
from mqstore.jobs.commitlog import commitlog
from mqstore.jobs.errors import ArchiveDamaged, WrongUsage
from mqstore.jobs.expiry_report import Options, report_shard
from mqstore.jobs.job_run import JobRun, Outcome
from mqstore.jobs.log import at_path
from mqstore.jobs.log.source import LogRange
from mqstore.jobs.output import Output
from mqstore.storage.message_store import Durability
from tests.services.service_processes import running
from tests.spark.deletions import DeletingRun
from tests.unit.jobs.expiry_examples import ANY_HOUR
from tests.unit.jobs.written import BODY_AT, offsets_of, overwrite, put_body, written
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, message, open_store

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

HOUR_S = 3600
KEEPING = CONFIG.model_copy(update={"delete_when": ANY_HOUR})


def archived(spark: SparkSession, shard: str, root: Path, run: JobRun | None = None) -> Outcome:
    options = Options(
        *(Output(str(root / "out")), (24,), (), None, None, None),
        dry_run=False,
        archive=Output(str(root / "archive")),
    )
    return report_shard(run or JobRun("expiry-report", spark), shard, options=options)


def aged(root: Path, hours: int) -> None:
    for number, path in enumerate(sorted((root / "commitlog").iterdir(), reverse=True)):
        when = time.time() - number * hours * HOUR_S
        os.utime(path, (when, when))


def topics_written(root: Path) -> Path:
    """A store with several topics, one of which looks like a number, and one with a percent."""
    with open_store(root, KEEPING) as store:
        for number in range(1200):
            topic = ("T", "007", "%RETRY%g")[number % 3]
            put_message(store, message(store, number, topic=topic), Durability.ASYNC)
    aged(root, 80)
    return root


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Rows of Spark and of DuckDB alike: maps as dicts, times as instants."""

    def value(each: Any) -> Any:
        if isinstance(each, datetime):
            return round((each if each.tzinfo else each.replace(tzinfo=UTC)).timestamp() * 1000)
        return bytes(each) if isinstance(each, bytearray) else each

    return [tuple(map(value, row)) for row in rows]


def test_all_columns_of_what_goes_are_read_back_by_spark_and_duckdb(
    spark: SparkSession, tmp_path: Path
) -> None:
    import duckdb  # its types complain when a process ends that has imported it

    root = topics_written(tmp_path / "store")
    summary = archived(spark, str(root), tmp_path).report["archive"]
    files = f"{tmp_path}/archive/messages"
    names = [name for name in MESSAGES if name != "store_time" and name != "born_time"]
    log = commitlog(spark, str(root), columns=names, offsets=(0, summary["upTo"]))
    expected = plain(log.orderBy("physical_offset").collect())
    assert len(expected) == summary["messages"] > 900
    by_spark = spark.read.parquet(files).select(names).orderBy("physical_offset").collect()
    assert plain(by_spark) == expected
    by_duckdb = duckdb.connect().execute(
        f"select {', '.join(names)} from read_parquet('{files}/*/*/*.parquet') "
        "order by physical_offset"
    )
    assert plain(by_duckdb.fetchall()) == expected
    topics = {path.name for path in (tmp_path / "archive" / "messages").iterdir()}
    assert topics == {"by_topic=T", "by_topic=007", "by_topic=%25RETRY%25g"}


def test_a_second_run_archives_only_what_came_to_its_end_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = topics_written(tmp_path / "store")
    first = archived(spark, str(root), tmp_path).report["archive"]
    manifests = sorted((tmp_path / "archive" / "manifests").iterdir())
    assert len(manifests) == first["segments"] > 2
    assert json.loads(manifests[-1].read_text())["toOffset"] == first["upTo"]
    second = archived(spark, str(root), tmp_path).report["archive"]
    assert (second["segments"], second["messages"]) == (0, 0)
    with open_store(root, KEEPING) as store:
        mark = store.retention.archive
        assert mark is not None
        assert (mark.offset, mark.place) == (first["upTo"], f"file://{tmp_path}/archive")


def test_what_went_before_it_was_archived_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    root = topics_written(tmp_path / "store")
    aged(root, 0)
    outcome = archived(spark, str(root), tmp_path)
    summary = outcome.report["archive"]
    assert (outcome.exit_code, summary["segments"], summary["missedBytes"]) == (0, 0, 0)
    min((root / "commitlog").iterdir()).unlink()  # as at the disk's ceiling
    outcome = archived(spark, str(root), tmp_path)
    assert outcome.exit_code == 1
    assert outcome.report["archive"]["missedBytes"] == CONFIG.mapped_file_size_commit_log


def test_beside_a_writer_retention_waits_for_it(spark: SparkSession, tmp_path: Path) -> None:
    root, rule = tmp_path / "store", {"delete_when": ANY_HOUR, "file_reserved_time": 72}
    with running(root, mapped_file_size_commit_log=1 << 20, **rule) as run, run.client() as client:  # type: ignore[arg-type]  # settings
        client.create_topic("T", queues=1)
        for _ in range(3):
            client.produce("T", [NewMessage(body="x" * 9000)] * 80, durability="sync")
        client.flush()
        then = time.time() - 60 * HOUR_S
        os.utime(min((root / "commitlog").iterdir()), (then, then))  # the others' age is none
        with pytest.raises(WrongUsage, match="has a writer, which has to know of the archive"):
            archived(spark, str(root), tmp_path)
        outcome = archived(spark, f"{run.query_url},{run.writer_url}", tmp_path)
        mark = client.archive().archive
        assert mark is not None
        assert mark.offset == outcome.report["archive"]["upTo"] > 0
        held = [each["heldBy"] for each in client.retention().segments]
        assert held[0] == []
        assert held[-1] == [f"archive file://{tmp_path}/archive"]
        client.end_archive()
        assert client.archive().archive is None


def test_damage_in_a_segment_is_named_in_its_manifest(spark: SparkSession, tmp_path: Path) -> None:
    root = topics_written(tmp_path / "store")
    damaged = offsets_of(root)[5]
    overwrite(root, damaged + BODY_AT, b"\xff" * 4)
    aged(root, 80)
    outcome = archived(spark, str(root), tmp_path)
    assert outcome.exit_code == 1
    assert outcome.report["archive"]["corruptStretches"] == 1
    first = min((tmp_path / "archive" / "manifests").iterdir())
    (corrupt,) = json.loads(first.read_text())["corrupt"]
    assert (corrupt["offset"], corrupt["defect"]) == (damaged, "body-corrupt")


def test_a_segment_that_goes_before_it_is_archived_ends_it_and_nothing_is_archived(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = topics_written(tmp_path / "store")
    first = min((root / "commitlog").iterdir())
    job = DeletingRun(spark, first, before="archiving")
    with pytest.raises(Exception, match="SegmentGone") as caught:
        archived(spark, str(root), tmp_path, job)
    found = refusal(caught.value)
    assert found is not None
    assert str(found).startswith(f"segment {first.name} was deleted while it was read")
    assert found.exit_code == 2
    archive = tmp_path / "archive"
    assert [path.name for path in archive.rglob("*.json")] == []
    assert [path for path in archive.rglob("*.parquet") if not path.name.startswith("_")] == []


def test_what_is_not_read_back_as_it_was_written_is_not_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that changes a value between writing and reading: the digest of one group differs."""
    seen = at_path.look(written(tmp_path / "store"))
    segment, out = seen.segments[0], Output(str(tmp_path / "archive"))
    calls = iter(range(1000))
    monkeypatch.setattr(export, "digest", lambda table: digest(table) ^ (next(calls) == 1))
    with pytest.raises(ArchiveDamaged, match="not what was written is read back"):
        export.export(seen.log, LogRange(segment, segment.start, segment.end), out, "s")
    assert [path for path in (tmp_path / "archive").rglob("*") if path.is_file()] == []


def test_a_body_may_be_anything(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", KEEPING) as store:
        put_body(store, b"")
        put_body(store, bytes(range(256)) * 200)
    seen = at_path.look(tmp_path / "store")
    segment, out = seen.segments[0], Output(str(tmp_path / "archive"))
    done = export.export(seen.log, LogRange(segment, segment.start, segment.end), out, "s")
    assert [(file.topic, file.rows) for file in done.files] == [("T", 2)]
