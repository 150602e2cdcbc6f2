"""The commands without the extras of mqstore-cli: all show their help, and one that needs a package
that is not installed names the extra that has it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from mqstore.cli import extras
from mqstore.cli.kube.backup import OF_THE_RUNNING_SHARD
from mqstore.storage.paths import StorePaths

ROOT: Final = Path(__file__).parents[3]
WITHOUT_EXTRAS: Final = """
import contextlib, io, json, sys
from mqstore.cli.extras import PACKAGES
sys.modules |= {name: None for names in PACKAGES.values() for name in names}
from mqstore.cli import main
from mqstore.cli.kube import main as kube
programs = {"mqstore": main.app, "kubectl": kube.main}
ends = []
for program, *sys.argv[1:] in json.load(sys.stdin):
    output, errors, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            programs[program]()
        except SystemExit as end:
            code = end.code
    ends.append((code or 0, output.getvalue(), errors.getvalue()))
json.dump(ends, sys.stdout)
"""
NEED_AN_EXTRA: Final = {
    "run": ["run"],
    "info": ["store", "info", "DIR"],
    "dump": ["store", "dump", "DIR"],
    "verify": ["store", "verify", "DIR"],
    "repair": ["store", "repair", "DIR"],
    "export": ["store", "export", "DIR"],
    "import": ["store", "import", "DIR", "FILE"],
    "adopt": ["store", "adopt", "DIR"],
    "accept-loss": ["store", "accept-loss", "DIR", "--dry-run"],
}


PROGRAMS: Final = ("mqstore", "kubectl")
BACKUP_LS: Final = ("mqstore", "backup", "ls", "DIR")
COMMANDS: Final = [
    *((program, "--help") for program in PROGRAMS),
    *(("mqstore", *words, "--help") for words in NEED_AN_EXTRA.values()),
    *(("mqstore", *words) for words in NEED_AN_EXTRA.values()),
    BACKUP_LS,
]

Ends = dict[tuple[str, ...], tuple[int, str, str]]

pytestmark = pytest.mark.xdist_group("extras")


@pytest.fixture(scope="module")
def ends() -> Ends:
    """Exit code, output and errors of each command, all run by one process without the extras."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS],
        input=json.dumps(COMMANDS),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [(code, output, errors) for code, output, errors in json.loads(done.stdout)]
    return dict(zip(COMMANDS, found, strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_shows_its_commands_without_extras(ends: Ends, program: str) -> None:
    code, output, errors = ends[program, "--help"]

    assert (code, errors) == (0, "")
    assert "Commands" in output


@pytest.mark.parametrize("words", NEED_AN_EXTRA.values(), ids=NEED_AN_EXTRA)
def test_a_command_shows_its_help_without_its_extra(ends: Ends, words: list[str]) -> None:
    code, output, errors = ends["mqstore", *words, "--help"]

    assert (code, errors) == (0, "")
    assert "Usage" in output


@pytest.mark.parametrize("words", NEED_AN_EXTRA.values(), ids=NEED_AN_EXTRA)
def test_a_command_names_the_extra_that_it_lacks(ends: Ends, words: list[str]) -> None:
    code, output, errors = ends["mqstore", *words]

    assert (code, output) == (2, "")
    why = f"mqstore.storage is not installed: pip install 'mqstore-cli[{words[0]}]'"
    assert errors == f"mqstore: {why}\n"


def test_backups_in_a_directory_need_the_engine_only(ends: Ends) -> None:
    why = "mqstore.storage is not installed: pip install 'mqstore-cli[store]'"
    assert ends[BACKUP_LS] == (2, "", f"mqstore: {why}\n")


def test_every_command_of_a_store_is_among_them() -> None:
    of_the_store = {f"{name}_lines.py".replace("-", "_") for name in NEED_AN_EXTRA if name != "run"}

    commands = ROOT / "libs" / "cli" / "mqstore" / "cli"
    assert {each.name for each in commands.glob("*_lines.py")} == of_the_store


def test_each_extra_installs_the_packages_that_its_commands_need() -> None:
    text = (ROOT / "libs" / "cli" / "pyproject.toml").read_text(encoding="utf-8")
    named = tomllib.loads(text)["project"]["optional-dependencies"]

    needed = {
        extra: [package.replace(".", "-") for package in packages]
        for extra, packages in extras.PACKAGES.items()
    }
    assert named.pop("parquet") == ["pyarrow>=18"]
    assert named == needed


def test_a_backup_leaves_out_what_belongs_to_the_running_shard(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)

    assert {tmp_path / name for name in OF_THE_RUNNING_SHARD} == {paths.write_pause, paths.pins}
