"""Mutated inputs of every kind: named errors only, nothing read outside, memory bounded.

Each run is a process of its own, since a read outside an input ends it. `make fuzz` runs the same
with far more inputs, the kernel built with the address sanitizer.
"""

from __future__ import annotations

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
