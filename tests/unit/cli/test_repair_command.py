"""``mqstore store repair``: its lines, exit codes and dry run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.main import app
from mqstore.storage.paths import segment_name
from tests.unit.storage.stores import open_store, put_some
from tests.unit.untouched import entries_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("T", queues=3)
        put_some(store, 200)
    return path


def run(root: Path, *options: str, command: str = "repair") -> Result:
    return CliRunner().invoke(app, ["store", command, str(root), *options])


def lines_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def poke(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_whole_store_needs_no_repair(root: Path) -> None:
    result = run(root)
    assert result.exit_code == 0
    (summary,) = lines_of(result)
    assert summary == {
        "t": "repaired",
        "dryRun": False,
        "records": 200,
        "restored": 0,
        "tombstones": 0,
        "left": 0,
    }


def test_a_changed_byte_is_put_back_and_a_lost_page_gets_tombstones(root: Path) -> None:
    original = (root / "commitlog" / segment_name(0)).read_bytes()
    poke(root, 100, b"\xff")
    before = entries_of(root)
    dry = run(root, "--dry-run")
    assert (dry.exit_code, entries_of(root)) == (1, before)
    first, summary = lines_of(dry)
    assert (first["kind"], first["phys"], first["size"]) == ("restore-bytes", 100, 4)
    assert (summary["dryRun"], summary["restored"]) == (True, 1)

    done = run(root)

    assert done.exit_code == 0
    first, _ = lines_of(done)
    assert (root / "mqstore" / "quarantine" / first["quarantined"] / "data").stat().st_size == 4
    assert (root / "commitlog" / segment_name(0)).read_bytes() == original
    poke(root, 8192, bytes(4096))
    assert run(root, command="verify").exit_code == 1
    lost = run(root)
    assert lost.exit_code == 1
    *tombstones, summary = lines_of(lost)
    assert {each["kind"] for each in tombstones} == {"place-tombstone"}
    assert {each["topic"] for each in tombstones} == {"T"}
    assert summary["tombstones"] == len(tombstones) > 10
    assert run(root).exit_code == 0
    assert run(root, command="verify").exit_code == 0


def test_a_store_that_a_writer_holds_is_refused(root: Path) -> None:
    with open_store(root):
        result = run(root)
    assert result.exit_code == 2
    assert lines_of(result)[0]["t"] == "refused"
