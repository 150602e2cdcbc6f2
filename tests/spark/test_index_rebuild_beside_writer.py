"""The index rebuilt by Spark while a store-writer has the store open and goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from pyspark.sql import SparkSession

from mqstore.client import NewMessage
from mqstore.jobs.errors import JobError
from mqstore.jobs.job_run import JobRun
from mqstore.jobs.rebuild.lease import Lease
from mqstore.jobs.rebuild.settings import Mode, RebuildSettings
from mqstore.jobs.rebuild.shard import rebuild_shard
from tests.services.service_processes import Run, running

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

Rebuild = Callable[..., dict[str, Any]]
COUNT = 500
TOKENS: dict[str, Any] = {
    "token_produce": "p" * 32,
    "token_consume": "c" * 32,
    "token_admin": "a" * 32,
    "token_system": "s" * 32,
}
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "max_hash_slot_num": 1000,
    "max_index_num": 300,
}


@pytest.fixture
def rebuild(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Rebuild:
    """Rebuild one shard with these settings; returns its report."""

    def go(shard: str, **settings: Any) -> dict[str, Any]:
        given: dict[str, Any] = {"disk_ratio": 100, "name": "by-hand"}
        chosen = RebuildSettings(**(given | settings))
        capsys.readouterr()
        JobRun("index-rebuild", spark).over([shard], partial(rebuild_shard, chosen))
        (report,) = json.loads(capsys.readouterr().out.splitlines()[-1])["shards"]
        assert isinstance(report, dict)
        return report

    return go


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Path]]:
    root = tmp_path_factory.mktemp("served") / "store"
    with running(root, **SMALL, **TOKENS) as run:
        with run.client(token=TOKENS["token_admin"]) as client:
            client.create_topic("T")
        produce(run, 0)
        yield run, root


def produce(run: Run, start: int) -> None:
    with run.client(token=TOKENS["token_produce"]) as client:
        for at in range(start, start + COUNT, 100):
            numbers = range(at, at + 100)
            client.produce("T", [NewMessage(body="x" * 5000, keys=(f"k{n}",)) for n in numbers])


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(TOKENS["token_system"])
    return str(path)


def missing(run: Run, count: int = COUNT) -> list[int]:
    """Keys, of so many, that no complete reply finds exactly once."""
    with run.client(token=TOKENS["token_consume"]) as client:
        found = [client.messages_by_key("T", f"k{n}") for n in range(count)]
    return [n for n, each in enumerate(found) if not each.complete or len(each.messages) != 1]


@pytest.mark.parametrize("way", ["by path", "by address", "as the store says"])
def test_an_index_that_was_deleted_is_whole_again_and_the_writer_names_the_job(
    rebuild: Rebuild, services: tuple[Run, Path], token: str, way: str
) -> None:
    run, root = services
    shutil.rmtree(root / "index")
    place = {
        "by path": f"{root},{run.writer_url}",
        "by address": f"{run.query_url},{run.writer_url}",
        "as the store says": str(root),
    }
    report = rebuild(place[way], token_file=token)
    assert report["exitCode"] == 0, report
    assert report["owner"] == "index-rebuild job by-hand"
    assert (report["records"], report["items"]) == (COUNT, 2 * COUNT)
    there = sorted(path.name for path in (root / "index").iterdir())
    assert there[: len(report["published"])] == report["published"]
    assert missing(run) == []
    with run.client(token=TOKENS["token_system"]) as client:
        last = client.index_rebuilds().last
    assert last is not None
    assert (last.id, last.outcome, last.owner) == (report["rebuild"], "published", report["owner"])


def test_a_second_rebuild_is_refused_with_the_owner_of_the_first(
    rebuild: Rebuild, services: tuple[Run, Path], token: str
) -> None:
    run, root = services
    with run.client(token=TOKENS["token_system"]) as client:
        first = client.begin_index_rebuild("another owner", ttl_s=600)
        report = rebuild(f"{root},{run.writer_url}", token_file=token)
        assert report["exitCode"] == 2
        assert "another owner" in report["error"]
        running_now = client.index_rebuilds().running
        assert running_now is not None
        assert running_now.id == first.id
        client.end_index_rebuild(first.id)


def test_a_segment_that_goes_meanwhile_ends_it_with_why_and_the_old_index_serves(
    rebuild: Rebuild, services: tuple[Run, Path], token: str
) -> None:
    run, root = services
    first = min((root / "commitlog").iterdir())
    first.rename(root / "aside")
    try:
        report = rebuild(f"{root},{run.writer_url}", token_file=token)
    finally:
        (root / "aside").rename(first)
    assert report["exitCode"] == 2
    assert f"segment {first.name} was deleted while it was read" in report["error"]
    with run.client(token=TOKENS["token_system"]) as client:
        last = client.index_rebuilds().last
    assert last is not None
    assert last.outcome == "given-up"
    assert missing(run) == []


def test_verify_begins_nothing_and_reports_each_difference(
    rebuild: Rebuild, services: tuple[Run, Path], token: str
) -> None:
    run, root = services
    with run.client(token=TOKENS["token_system"]) as client:
        client.flush()
        before = client.index_rebuilds()
        place = f"{root},{run.writer_url}"
        dry = rebuild(place, token_file=token, mode=Mode.DRY_RUN)
        same = rebuild(place, token_file=token, mode=Mode.VERIFY)
        oldest = min((root / "index").iterdir())
        with oldest.open("r+b") as file:  # the hash of item 7
            file.seek(40 + 4 * SMALL["max_hash_slot_num"] + 20 * 7)
            file.write(b"\x01")
        spoilt = rebuild(place, token_file=token, mode=Mode.VERIFY)
        assert client.index_rebuilds() == before
    assert (dry["items"], dry["dryRun"]) == (2 * COUNT, True)
    assert (same["exitCode"], same["differences"]) == (0, 0), same
    assert spoilt["exitCode"] == 1
    assert {"missing", "surplus"} <= {each["kind"] for each in spoilt["found"]}
    by_address = f"{run.query_url},{run.writer_url}"
    assert rebuild(by_address, token_file=token, mode=Mode.DRY_RUN) == dry | {
        "shard": by_address,
        "seconds": ANY,
    }
    refused = rebuild(by_address, token_file=token, mode=Mode.VERIFY)
    assert "--verify compares files; name the store's directory" in refused["error"]


def test_a_job_that_its_writer_gave_up_ends_so(services: tuple[Run, Path]) -> None:
    run, _ = services
    with run.client(token=TOKENS["token_system"]) as client:
        lease = Lease(client, client.begin_index_rebuild("by-hand"), beat_s=0.01)
        lease.require()
        client.end_index_rebuild(lease.rebuild.id)
        lease.join()
        with pytest.raises(JobError, match="the writer gave the rebuild up"):
            lease.require()


def test_what_only_a_store_at_rest_can_get_and_a_wrong_token_are_refused(
    rebuild: Rebuild, services: tuple[Run, Path], token: str, tmp_path: Path
) -> None:
    run, root = services
    place = f"{root},{run.writer_url}"
    for mode in Mode:
        assert "at rest only" in rebuild(place, token_file=token, hash_slots=31, mode=mode)["error"]
    (tmp_path / "other").write_text(TOKENS["token_consume"])
    report = rebuild(place, token_file=str(tmp_path / "other"))
    assert report["exitCode"] == 2
    assert "403" in report["error"]
