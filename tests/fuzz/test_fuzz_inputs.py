"""Mutated inputs of every kind: named errors only, nothing read outside, memory bounded.

Each run is a process of its own, since a read outside an input ends it. `make fuzz` builds the
kernel with the sanitizers of addresses and of undefined behaviour, and tries far more inputs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(5_000, id="some"),
        pytest.param(100_000, id="many", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.slow
def test_mutated_inputs_end_in_named_errors(records: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--records", str(records)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-4000:]
    assert f"{records} mutated records" in done.stdout


@pytest.mark.slow
def test_make_fuzz_finds_no_access_outside_and_no_undefined_behaviour() -> None:
    if _sanitizer() is None:
        pytest.skip("no gcc with its address sanitizer (libasan): `make fuzz` needs both")

    done = subprocess.run(
        ["make", "fuzz", "FUZZ_RECORDS=2000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert "2000 mutated records" in done.stdout


def _sanitizer() -> Path | None:
    """The sanitizer's library, or None where gcc or it is missing."""
    if shutil.which("gcc") is None:
        return None
    found = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
    return Path(found) if Path(found).is_absolute() else None
