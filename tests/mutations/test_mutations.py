"""The lines that mutations break exist in the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.breaking import Mutation
from tests.mutations.table import MUTATIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.what for each in MUTATIONS])
def test_each_breaks_code_that_is_there(mutation: Mutation) -> None:
    broken = mutation.apply(mutation.path().read_text())

    compile(broken, str(mutation.path()), "exec")
    assert mutation.shown_by is None or (ROOT / mutation.shown_by.split("::")[0]).exists()


def test_a_broken_engine_is_noticed() -> None:
    number = next(n for n, each in enumerate(MUTATIONS) if each.what.startswith("`sync` answered"))
    command = [sys.executable, "-m", "tests.mutations", str(number), "--states=10"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "noticed after" in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(len(MUTATIONS)), ids=[each.what for each in MUTATIONS])
def test_each_is_noticed(number: int) -> None:
    command = [sys.executable, "-m", "tests.mutations", str(number), "--states=6000"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
