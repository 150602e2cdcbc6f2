"""A test that hangs fails, and the run goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGING = """
import threading
from hypothesis import given, strategies as st

@given(st.integers())
def test_waits_for_a_lock_that_it_holds(number):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_passes():
    pass
"""


@pytest.mark.slow
def test_a_hypothesis_test_that_hangs_is_one_failure(tmp_path: Path) -> None:
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGING)
    options = ["-p", "tests.conftest", "-c", "pyproject.toml", "--timeout", "1", "-n", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "took longer than 1 s" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
