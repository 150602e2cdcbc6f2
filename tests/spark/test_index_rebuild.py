"""The index rebuilt by Spark: RocketMQ's own bytes, whatever was there; and what it refuses."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqstore.jobs.job_run import JobRun
from mqstore.jobs.log import at_path
from mqstore.jobs.log.at_path import LogAtPath
from mqstore.jobs.log.source import LogRange
from mqstore.jobs.rebuild import shard, spark_build
from mqstore.jobs.rebuild.at_rest import note_owner
from mqstore.jobs.rebuild.gathered import Shuffled, Spilled
from mqstore.jobs.rebuild.settings import Mode, RebuildSettings
from mqstore.jobs.rebuild.shard import rebuild_shard
from mqstore.jobs.rebuild.spark_build import Scan, SparkBuild
from mqstore.jobs.rebuild.tasks import Extraction
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.index.plan import Layout
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from tests.compat.compare import Dump
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.shapes import EVERYTHING, expand
from tests.spark.deletions import DeletingRun
from tests.unit.jobs.written import overwrite
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, message, open_store, put_some

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Run:
    """Rebuild one shard with these settings; returns its report."""

    def go(root: Path, **settings: Any) -> dict[str, Any]:
        chosen = RebuildSettings(**({"disk_ratio": 100} | settings))
        capsys.readouterr()
        JobRun("index-rebuild", spark).over([str(root)], partial(rebuild_shard, chosen))
        (report,) = json.loads(capsys.readouterr().out.splitlines()[-1])["shards"]
        assert isinstance(report, dict)
        return report

    return go


def index_of(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def files_in_scratch(spark: SparkSession) -> list[Path]:
    """The items that Spark keeps between two stages."""
    scratch = spark.sparkContext.getConf().get("spark.local.dir")
    assert scratch is not None
    return list(Path(scratch).rglob("index-items-*"))


def written(root: Path, count: int = 700) -> Path:
    with open_store(root) as store:
        put_some(store, count)
        store.wait_for_index()
    return root


def found_in(root: Path) -> set[int]:
    """Which messages are found by their key, once the store is opened as usual."""
    with open_store(root) as store:
        assert store.dispatcher.catch_up.complete
        return {n for n in range(700) if store.index.query("T", f"k{n}", 100).offsets}


@pytest.mark.referee
def test_the_bytes_are_those_of_rocketmqs_own_build(
    run: Run, referee: Referee, tmp_path: Path
) -> None:
    script = expand(3, EVERYTHING, referee.format)
    store = tmp_path / "store"
    referee.write(script, store)
    due = index_of(store)
    shutil.rmtree(store / "index")
    sizes = {
        "hash_slots": script.config["maxHashSlotNum"],
        "index_num": script.config["maxIndexNum"],
    }
    report = run(store, **sizes)
    assert report["exitCode"] == 0, report
    assert len(due) > 1
    assert index_of(store) == due
    assert Dump.of(referee.dump(copy_of(store), script.config)).messages


@pytest.mark.parametrize("spoilt", ["damaged", "another's"])
def test_whatever_the_index_was_it_is_whole_afterwards(
    run: Run, tmp_path: Path, spoilt: str
) -> None:
    root = written(tmp_path / "store")
    due, index = index_of(root), root / "index"
    match spoilt:
        case "damaged":
            for number, path in enumerate(index.iterdir()):
                data = path.read_bytes()
                path.write_bytes(data[::-1] if number % 2 else data[:1000])
        case "another's":
            other = tmp_path / "other"
            with open_store(other) as store:
                put_some(store, 200, start=5000)
                store.wait_for_index()
            shutil.rmtree(index)
            shutil.copytree(other / "index", index)
    report = run(root)
    assert (report["exitCode"], report["records"], report["items"]) == (0, 700, 1400)
    assert index_of(root) == due
    assert [path.name for path in sorted(index.iterdir())] == report["published"]
    assert not (root / "mqstore/index-rebuild").exists()
    assert found_in(root) == set(range(700))


def test_a_store_keeps_its_shard_and_its_host(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, shard="7", store_host="10.1.2.3:4567") as store:
        put_some(store, 3)
    assert run(root)["exitCode"] == 0
    with open_store(root, shard="7", store_host="10.1.2.3:4567") as store:
        assert store.shard == "7"
        assert "brokerIP1=10.1.2.3\nlistenPort=4567\n" in store.paths.broker_conf.read_text()
        assert (root / "mqstore/format.json").read_text().count('"10.1.2.3:4567"') == 1
        assert "127.0.0.1" not in (root / "mqstore/format.json").read_text()


def delayed(store: MessageStore, number: int) -> Message:
    new = message(store, number)
    pairs = {"DELAY": "1", "KEYS": f"k{number}"}
    new.properties = properties.encode(
        pairs, trailing_separator=store.format.trailing_property_separator
    )
    return new


@pytest.mark.parametrize("mode", Mode)
def test_a_store_keeps_its_settings_and_delayed_messages_their_time(
    run: Run, tmp_path: Path, mode: Mode
) -> None:
    root = tmp_path / "store"
    settings = {"message_delay_level": "1h 2h", "file_reserved_time": 720}
    with open_store(root, CONFIG.model_copy(update=settings)) as store:
        put_message(store, delayed(store, 1))
        broker_conf = store.paths.broker_conf
    due = {p.relative_to(root): p.read_bytes() for p in root.glob("consumequeue/*/*/*")}
    assert due
    settings_before = broker_conf.read_text()
    if mode is Mode.PUBLISH:
        shutil.rmtree(root / "consumequeue")
    assert run(root, mode=mode)["exitCode"] == 0
    assert {p.relative_to(root): p.read_bytes() for p in root.glob("consumequeue/*/*/*")} == due
    assert broker_conf.read_text() == settings_before


def test_queues_that_are_gone_come_back_with_the_index(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    due = {p.relative_to(root): p.read_bytes() for p in root.glob("consumequeue/*/*/*")}
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    assert run(root)["queueRecords"] == 700
    assert {p.relative_to(root): p.read_bytes() for p in root.glob("consumequeue/*/*/*")} == due


def _without_queues(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """Delete the queues, and let Spark begin beside their completion; what it rebuilds later."""
    shutil.rmtree(root / "consumequeue")
    monkeypatch.setattr(shard, "BEHIND_MIN", 1)
    monkeypatch.setattr(spark_build, "RANGES_PER_CORE", 1)
    scans: list[list[bytes]] = []
    whole = SparkBuild.scan

    def scan(build: SparkBuild) -> Scan:
        scans.append(sorted(path.read_bytes() for path in root.glob("consumequeue/*/*/*")))
        return whole(build)

    monkeypatch.setattr(SparkBuild, "scan", scan)
    return scans


def test_the_log_is_read_while_its_queues_are_completed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = written(tmp_path / "store")
    due = index_of(root)
    queues = sorted(path.read_bytes() for path in root.glob("consumequeue/*/*/*"))
    assert len(list((root / "commitlog").iterdir())) >= 2
    later = _without_queues(root, monkeypatch)
    assert run(root)["records"] == 700
    assert index_of(root) == due
    assert sorted(path.read_bytes() for path in root.glob("consumequeue/*/*/*")) == queues
    assert later == []


def test_damage_that_needs_the_queues_is_read_again_once_they_are_complete(
    run: Run, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = written(tmp_path / "store")
    with open_store(root) as store:
        offset = store.queues.get("T", 0).entry(20).physical_offset  # type: ignore[union-attr]
    overwrite(root, offset, struct.pack(">iI", -1, 0xDEADBEEF))
    other = tmp_path / "other"
    shutil.copytree(root, other)
    due = run(other)
    later = _without_queues(root, monkeypatch)
    assert run(root)["records"] == due["records"] == 699
    assert index_of(root) == index_of(other)
    (queues,) = later
    assert queues == sorted(path.read_bytes() for path in root.glob("consumequeue/*/*/*"))
    assert files_in_scratch(spark) == []


def test_other_counts_and_the_other_format_are_options(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    report = run(root, hash_slots=31, index_num=1001, store_format=StoreFormat.V5_X)
    assert (report["items"], report["files"]) == (2100, 3)
    assert {len(data) for data in index_of(root)} == {40 + 4 * 31 + 20 * 1001}
    with open_store(root) as store:
        assert store.index.query("T", "k5", 10).offsets


def test_verify_reports_each_difference_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    report = run(root, mode=Mode.VERIFY)
    assert (report["exitCode"], report["differences"]) == (0, 0)
    first, *_, last = sorted((root / "index").iterdir())
    data = bytearray(first.read_bytes())
    data[40 + 4 * 100 + 20 * 7] ^= 1  # the hash of item 7
    data[24] ^= 0xFF  # where the file ends
    first.write_bytes(bytes(data))
    last.unlink()
    before = index_of(root)
    report = run(root, mode=Mode.VERIFY)
    assert report["exitCode"] == 1
    kinds = {each["kind"] for each in report["found"]}
    assert {"missing", "surplus", "header"} <= kinds
    assert index_of(root) == before
    assert not (root / "mqstore/index-rebuild").exists()


def header_differences(run: Run, root: Path) -> list[tuple[str, str]]:
    report = run(root, mode=Mode.VERIFY)
    return [(each["kind"], each["field"]) for each in report["found"]]


@pytest.mark.parametrize(("field", "at"), [("begin_ms", 7), ("end_ms", 15)])
def test_verify_reports_times_that_a_header_has_wrong(
    run: Run, tmp_path: Path, field: str, at: int
) -> None:
    root = written(tmp_path / "store")
    first, *_ = sorted((root / "index").iterdir())
    data = bytearray(first.read_bytes())
    data[at] ^= 1
    first.write_bytes(bytes(data))
    assert header_differences(run, root) == [("header", field)]


def test_verify_reports_ends_of_files_that_are_not_cut_as_a_rebuild_cuts_them(
    run: Run, tmp_path: Path
) -> None:
    root = written(tmp_path / "store")
    with open_store(root) as store:
        store.expire(2)
    assert header_differences(run, root) == []
    first, *_ = sorted((root / "index").iterdir())
    data = first.read_bytes()
    end_ms = int.from_bytes(data[8:16]) + 1_000  # its items are whole seconds old
    first.write_bytes(data[:8] + end_ms.to_bytes(8) + data[16:])
    assert header_differences(run, root) == [("header", "end_ms")]


def test_a_dry_run_says_how_much_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    report = run(root, mode=Mode.DRY_RUN)
    assert (report["exitCode"], report["items"], report["dryRun"]) == (0, 1400, True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_what_would_fill_the_disk_is_refused_before_it_begins(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    before = index_of(root)
    report = run(root, disk_ratio=1)
    assert report["exitCode"] == 2
    assert (
        "above 1 % (diskMaxUsedSpaceRatio, or the job's own): make room; nothing" in report["error"]
    )
    assert index_of(root) == before


def test_a_store_that_is_in_use_is_refused_and_another_rebuild_named(
    run: Run, tmp_path: Path
) -> None:
    root = written(tmp_path / "store")
    with open_store(root) as store:
        assert "is in use by another process" in run(root)["error"]
        store.paths.index_staging.mkdir()
        note_owner(store.paths.index_staging)
        report = run(root)
        assert report["exitCode"] == 2
        assert "another index rebuild" in report["error"]


def items_by(way: type[Spilled] | type[Shuffled], spark: SparkSession, root: Path) -> list[Any]:
    seen = at_path.look(root)
    assert isinstance(seen.log, LogAtPath)
    extraction = Extraction(seen.log, Layout(1000, 300, tags=False), 3)
    ranges = [LogRange(each, each.start, each.end) for each in seen.segments]
    found = way(spark.sparkContext, extraction, ranges, 2)
    items = found.each_part(lambda items: [list(items)])
    found.drop()
    return [found.chunks, items]


def test_sparks_shuffle_carries_the_same_items_as_files_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = written(tmp_path / "store")
    report, items = items_by(Spilled, spark, root)
    assert items_by(Shuffled, spark, root) == [report, items]
    assert len(report) > 2
    assert len(items) == 3


def test_nothing_is_left_in_scratch(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    for mode in Mode:
        assert run(root, mode=mode)["exitCode"] == 0
    assert files_in_scratch(spark) == []


@pytest.mark.parametrize("when", [{"before": "reading"}, {"after": "reading"}])
def test_a_segment_that_is_deleted_meanwhile_ends_it_with_why_and_the_index_stays(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path, when: dict[str, str]
) -> None:
    root = written(tmp_path / "store")
    due, first = index_of(root), min((root / "commitlog").iterdir())
    job = DeletingRun(spark, first, **when)
    capsys.readouterr()
    code = job.over([str(root)], partial(rebuild_shard, RebuildSettings(disk_ratio=100)))
    (report,) = json.loads(capsys.readouterr().out)["shards"]
    assert code == report["exitCode"] == 2
    assert f"segment {first.name} was deleted while it was read" in report["error"]
    assert index_of(root) == due
    assert not (root / "mqstore/index-rebuild").exists()
    assert not (root / "mqstore/index-rebuild.json").exists()


def test_an_empty_store_gets_an_empty_index(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "store", 0)
    report = run(root)
    assert (report["exitCode"], report["files"], report["published"]) == (0, 0, [])
