"""``mqstore store rebuild``: its lines, exit codes and dry run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mqstore.storage.paths import segment_name
from tests.unit.cli.store_commands import invoke
from tests.unit.storage.stores import open_store, put_some
from tests.unit.untouched import entries_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("T", queues=3)
        put_some(store, 200)
        store.wait_for_index()
    return path


def summary_of(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_without_yes_only_the_plan_is_printed(root: Path) -> None:
    before = entries_of(root)
    for options in ((), ("--dry-run",), ("--yes", "--dry-run")):
        plan = invoke("rebuild", root, *options, "-o", "json")
        assert (plan.exit_code, entries_of(root)) == (0, before)
        summary = summary_of(plan)
        assert (summary["t"], summary["found"], summary["lost"]) == ("planned", {}, 0)
        assert set(summary["changes"]) == {"blank-entries", "remake-queues", "remake-index"}
    assert (
        invoke("rebuild", root)
        .stdout.splitlines()[-1]
        .endswith(f"mqstore store rebuild {root} --yes")
    )
    (last,) = invoke("rebuild", root, "--index").stdout.splitlines()[-1:]
    assert last.endswith(f"mqstore store rebuild {root} --index --yes")


@pytest.mark.parametrize(
    ("option", "changes"),
    [("--queues", {"blank-entries", "remake-queues"}), ("--index", {"remake-index"})],
)
def test_with_yes_the_chosen_part_is_made_again(root: Path, option: str, changes: set[str]) -> None:
    done = invoke("rebuild", root, option, "--yes", "-o", "json")

    assert done.exit_code == 0
    summary = summary_of(done)
    assert (summary["t"], set(summary["changes"]), summary["left"]) == ("rebuilt", changes, {})
    assert invoke("verify", root).exit_code == 0


def test_damage_of_the_log_is_in_the_plan_and_in_the_exit_code(root: Path) -> None:
    with (root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))

    plan, done = (
        invoke("rebuild", root, "-o", "json"),
        invoke("rebuild", root, "--yes", "-o", "json"),
    )

    assert (plan.exit_code, done.exit_code) == (1, 1)
    assert summary_of(plan)["lost"] == summary_of(done)["lost"] > 10
    assert invoke("verify", root).exit_code == 0


def test_a_store_in_use_and_what_is_no_store_are_refused(root: Path, tmp_path: Path) -> None:
    with open_store(root):
        result = invoke("rebuild", root, "--yes")
        assert result.exit_code == 2
        assert "is in use by another process" in result.stderr
    result = invoke("rebuild", tmp_path / "missing", "--yes")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
