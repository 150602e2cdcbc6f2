"""``mqstore store repair``: its lines, exit codes and dry run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.paths import segment_name
from tests.unit.cli.store_commands import invoke, lines_of
from tests.unit.storage.stores import open_store, put_some
from tests.unit.untouched import entries_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("T", queues=3)
        put_some(store, 200)
    return path


def poke(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_whole_store_needs_no_repair(root: Path) -> None:
    before = entries_of(root)
    for options in ((), ("--yes",)):
        result = invoke("repair", root, *options)
        assert (result.exit_code, result.stdout) == (0, "nothing to repair\n")
    (summary,) = lines_of(invoke("repair", root, "-o", "json"))
    assert summary == {
        "t": "planned",
        "found": {},
        "changes": {},
        "lost": 0,
        "moved": 0,
        "left": {},
        "brokerStarts": True,
    }
    assert entries_of(root) == before


def test_a_changed_byte_is_put_back_once_the_plan_is_accepted(root: Path) -> None:
    original = (root / "commitlog" / segment_name(0)).read_bytes()
    poke(root, 100, b"\xff")
    before = entries_of(root)

    for options in ((), ("--dry-run",), ("--yes", "--dry-run")):
        plan = invoke("repair", root, *options, "-o", "json")
        assert (plan.exit_code, entries_of(root)) == (1, before)
        *_, planned, summary = lines_of(plan)
        assert (planned["action"], planned["physicalOffset"]) == ("restore-bytes", 100)
        assert (summary["t"], summary["lost"], summary["left"]) == ("planned", 0, {})

    done = invoke("repair", root, "--yes", "-o", "json")

    assert done.exit_code == 0
    *_, changed, summary = lines_of(done)
    assert (changed, summary["t"]) == (planned, "repaired")
    assert (root / "commitlog" / segment_name(0)).read_bytes() == original
    assert invoke("verify", root).exit_code == 0


def test_lost_messages_are_named_and_the_exit_code_says_so(root: Path) -> None:
    poke(root, 8192, bytes(4096))

    plan, done = invoke("repair", root, "-o", "json"), invoke("repair", root, "--yes", "-o", "json")

    assert (plan.exit_code, done.exit_code) == (1, 1)
    *changes, summary = lines_of(done)
    lost = [each for each in changes if each.get("lost")]
    assert {each["action"] for each in lost} == {"place-tombstone"}
    assert {each["topic"] for each in lost} == {"T"}
    assert summary["lost"] == len(lost) > 10
    assert lines_of(plan)[:-1] == changes
    assert invoke("repair", root).exit_code == 0
    assert invoke("verify", root).exit_code == 0


def test_tables_and_csv_have_a_row_for_each_change(root: Path) -> None:
    poke(root, 8192, bytes(4096))

    table, csv = invoke("repair", root), invoke("repair", root, "-o", "csv")

    head, *rows, plan = table.stdout.splitlines()
    assert head.split()[:3] == ["ACTION", "TOPIC", "QUEUE"]
    assert ["place-tombstone", "T"] in [row.split()[:2] for row in rows]
    assert plan.startswith("plan: ")
    assert plan.endswith(f"do it with: mqstore store repair {root} --yes")
    assert len(csv.stdout.splitlines()) == len(rows) + 1


def test_a_store_that_a_writer_holds_is_refused(root: Path) -> None:
    with open_store(root):
        for options in ((), ("--yes",)):
            result = invoke("repair", root, *options)
            assert result.exit_code == 2
            assert "is in use by another process" in result.stderr
            assert len(result.stderr.splitlines()) == 1


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        assert invoke("repair", path, "--yes").exit_code == 2
        assert not (path / "lock").exists()
