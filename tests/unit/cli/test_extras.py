"""The commands without the extras of mqstore-cli: all show their help, and one that needs a package
that is not installed names the extra that has it."""

from __future__ import annotations

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
import sys
from mqstore.cli.extras import PACKAGES
sys.modules |= {name: None for names in PACKAGES.values() for name in names}
from mqstore.cli import main
from mqstore.cli.kube import main as kube
{"mqstore": main.app, "kubectl": kube.main}[sys.argv.pop(1)]()
"""
NEED_AN_EXTRA: Final = {
    "run": ["run"],
    "dump": ["store", "dump", "DIR"],
    "verify": ["store", "verify", "DIR"],
    "repair": ["store", "repair", "DIR"],
    "adopt": ["store", "adopt", "DIR"],
    "accept-loss": ["store", "accept-loss", "DIR", "--dry-run"],
}


def run_without_extras(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", ["mqstore", "kubectl"])
def test_a_program_shows_its_commands_without_extras(program: str) -> None:
    found = run_without_extras(program, "--help")

    assert (found.returncode, found.stderr) == (0, "")
    assert "Commands" in found.stdout


@pytest.mark.parametrize("words", NEED_AN_EXTRA.values(), ids=NEED_AN_EXTRA)
def test_a_command_shows_its_help_without_its_extra(words: list[str]) -> None:
    found = run_without_extras("mqstore", *words, "--help")

    assert (found.returncode, found.stderr) == (0, "")
    assert "Usage" in found.stdout


@pytest.mark.parametrize("words", NEED_AN_EXTRA.values(), ids=NEED_AN_EXTRA)
def test_a_command_names_the_extra_that_it_lacks(words: list[str]) -> None:
    found = run_without_extras("mqstore", *words)

    assert (found.returncode, found.stdout) == (2, "")
    why = f"mqstore.storage is not installed: pip install 'mqstore-cli[{words[0]}]'"
    assert found.stderr == f"mqstore: {why}\n"


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
    assert named == needed


def test_a_backup_leaves_out_what_belongs_to_the_running_shard(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)

    assert {tmp_path / name for name in OF_THE_RUNNING_SHARD} == {paths.write_pause, paths.pins}
