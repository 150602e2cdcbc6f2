"""``mqstore store adopt``: its lines, exit codes, and that a dry run changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.main import app
from tests.unit.storage.stores import all_bodies, bodies, open_store, put_some


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of a store, with a copy of its log beside it in ``log``."""
    with open_store(tmp_path / "store", store_path_commit_log=str(tmp_path / "a" / "log")) as store:
        put_some(store, 9)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    shutil.copytree(tmp_path / "a" / "log", tmp_path / "log")
    return tmp_path / "copy"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


def tree(directory: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in directory.rglob("*")}


def test_a_dry_run_says_what_would_change_and_changes_nothing(copied: Path) -> None:
    before = tree(copied.parent)
    result = run("adopt", copied, "--commit-log", copied.with_name("log"), "--dry-run")
    assert result.exit_code == 0
    assert f"{copied.with_name('log')} would become the log of {copied}" in result.stdout
    assert tree(copied.parent) == before


def test_a_copy_opens_once_it_adopted_its_own_log(copied: Path) -> None:
    assert run("verify", copied).exit_code == 2
    assert run("dump", copied).exit_code == 2
    log = copied.with_name("log")

    assert run("adopt", copied, "--commit-log", log).exit_code == 0

    again = run("adopt", copied)
    assert (again.exit_code, f"{log} is the log of {copied}" in again.stdout) == (0, True)
    assert run("verify", copied).exit_code == 0
    with open_store(copied) as store:
        assert bodies(store) == all_bodies(9)


def test_what_cannot_be_adopted_ends_with_2_and_both_roots(copied: Path) -> None:
    result = run("adopt", copied)
    assert result.exit_code == 2
    assert str(copied.with_name("store")) in result.stderr
