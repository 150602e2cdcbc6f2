"""Every command that only looks leaves a store directory untouched: names, types, modes, inodes,
times and bytes. Jobs that need Spark are in tests/spark/test_read_only_jobs.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from mqstore.cli.main import app
from mqstore.jobs.expiry import facts_at_path
from mqstore.jobs.log import at_path
from tests.long_runs import few_first
from tests.unit.storage.stores import CONFIG
from tests.unit.untouched import STORES, entries_of, make_read_only

INDEX_SIZES: Final = [
    f"--hash-slots={CONFIG.max_hash_slot_num}",
    f"--index-num={CONFIG.max_index_num}",
]
LOOKING_COMMANDS: Final = {
    "dump": ["store", "dump", *INDEX_SIZES],
    "dump --queries": ["store", "dump", "--queries", *INDEX_SIZES],
    "info": ["store", "info", *INDEX_SIZES],
    "verify": ["store", "verify", *INDEX_SIZES],
    "repair --dry-run": ["store", "repair", "--dry-run", *INDEX_SIZES],
    "rebuild": ["store", "rebuild", *INDEX_SIZES],
    "verify --json": ["store", "verify", "-o", "json", *INDEX_SIZES],
}
"""Arguments of every command that only looks, without the directory, which comes last: a new one
is a row here."""
DRY_RUNS_THAT_MAY_REFUSE: Final = {
    "adopt --dry-run": ["store", "adopt", "--dry-run"],
    "accept-loss --dry-run": ["store", "accept-loss", "--dry-run"],
}
"""Likewise; these stores lack nothing and belong to their own directory: there is nothing to do."""
LOOKING_PARTS: Final[dict[str, Callable[[Path], object]]] = {
    "data source": at_path.look,
    "expiry report": facts_at_path.look,
}
"""The reads of a directory that jobs make before Spark does."""
_IN_TURN: Final = """
import json, sys
from mqstore.cli.main import app
for command in json.loads(sys.argv[1]):
    try:
        app(command)
    except SystemExit as end:
        if end.code not in (None, 0, 1):
            sys.exit(f"{command}: {end.code}")
"""
"""A program that runs commands one after another, in one process."""
_PLAIN_USER: Final = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
]


@pytest.mark.parametrize("state", few_first(STORES, 3))
def test_a_command_that_looks_changes_nothing(tmp_path: Path, state: str) -> None:
    root = tmp_path / "store"
    STORES[state](root)
    before = entries_of(root)
    for name, arguments in LOOKING_COMMANDS.items():
        result = CliRunner().invoke(app, [*arguments, str(root)])
        assert result.exit_code in (0, 1), (name, result.output)
        assert entries_of(root) == before, name
    for name, arguments in DRY_RUNS_THAT_MAY_REFUSE.items():
        result = CliRunner().invoke(app, [*arguments, str(root)])
        assert result.exit_code in (0, 2), (name, result.output)
        assert entries_of(root) == before, name
    for name, look in LOOKING_PARTS.items():
        look(root)
        assert entries_of(root) == before, name


@pytest.mark.parametrize("state", few_first(["killed", "a broker's, killed, without lock"]))
def test_a_command_that_looks_can_do_so_where_nothing_may_be_written(
    tmp_path: Path, state: str
) -> None:
    root = tmp_path / "store"
    STORES[state](root)
    make_read_only(root)
    before = entries_of(root)
    commands = [
        [*LOOKING_COMMANDS[name], str(root)]
        for name in ("dump", "info", "verify", "repair --dry-run")
    ]
    found = subprocess.run(
        [
            *(_PLAIN_USER if os.geteuid() == 0 else []),
            *(sys.executable, "-c", _IN_TURN, json.dumps(commands)),
        ],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, (found.stderr, found.stdout[-500:])
    assert entries_of(root) == before
