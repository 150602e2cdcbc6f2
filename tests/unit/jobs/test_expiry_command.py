"""The command of the expiry report: results, and rejected options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mqstore.jobs.errors import WrongUsage
from mqstore.jobs.expiry_report import app, hours_of
from mqstore.jobs.shard_place import ShardPlace
from tests.unit.jobs.written import written


def run_command(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    return found.exit_code, found.stdout, found.stderr


def test_a_dry_run_says_what_would_be_read_and_writes_nothing(tmp_path: Path) -> None:
    root, out = written(tmp_path / "store"), tmp_path / "out"
    code, output, _ = run_command(str(root), "--out", str(out), "--dry-run")
    assert code == 0
    (shard,) = json.loads(output)["shards"]
    assert shard["wouldRead"] > 64 << 10
    assert shard["segments"] > 1
    assert not out.exists()


def test_one_shard_that_is_no_store_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 10)
    code, output, _ = run_command(str(tmp_path / "no"), str(root), "--out", "x", "--dry-run")
    assert code == 2
    first, second = json.loads(output)["shards"]
    assert first["error"] == f"{tmp_path}/no is no directory; name a store directory"
    assert second["exitCode"] == 0


def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    code, output, errors = run_command("nowhere", "--out", str(tmp_path / "file" / "out"))
    assert (code, output) == (2, "")
    assert "mqstore: " in errors
    assert "cannot be written to" in errors


def test_a_service_that_does_not_answer_ends_with_three() -> None:
    code, output, _ = run_command(
        "http://127.0.0.1:9,http://127.0.0.1:9", "--out", "x", "--dry-run"
    )
    assert code == 3
    assert "writer at /v1/store: " in json.loads(output)["shards"][0]["error"]


def test_hours_are_sorted_and_each_counts_once() -> None:
    assert hours_of("horizons", "72, 24,24") == (24, 72)


@pytest.mark.parametrize("text", ["", "a", "-1", "24h", "99999999"])
def test_what_is_no_hours_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--horizons"):
        hours_of("horizons", text)


def test_a_shard_is_a_directory_or_two_addresses() -> None:
    assert ShardPlace.of("data/store/").where == "data/store"
    both = ShardPlace.of("http://q:8082,http://w:8081/")
    assert (both.where, both.writer_url, both.is_url) == ("http://q:8082", "http://w:8081", True)
    beside = ShardPlace.of("data/store,http://w:8081")
    assert (beside.is_url, beside.writer_url) == (False, "http://w:8081")


@pytest.mark.parametrize(
    ("text", "why"),
    [("http://q:8082", "name its store-writer too"), ("data,other", "address of a store-writer")],
)
def test_what_names_no_shard_is_refused(text: str, why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        ShardPlace.of(text)
