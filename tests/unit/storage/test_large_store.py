"""Memory does not grow with the log: 4 GiB of it in a process that may have 512 MiB."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from mqstore.storage.paths import StorePaths
from tests.unit.storage.large_store import STEPS, append, exceed, read, recover

SIZE: Final = 4 << 30
ROOM: Final = 2 * SIZE
"""Free bytes without which the disk is left alone."""


def run(step: str, root: Path) -> subprocess.CompletedProcess[str]:
    assert step in STEPS
    command = [sys.executable, "-m", "tests.unit.storage.large_store", step, str(root), str(SIZE)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def count(step: str, root: Path) -> int:
    done = run(step, root)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.nightly
def test_a_store_of_4_gib_needs_no_512_mib(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < ROOM:
        pytest.skip(f"less than {ROOM} bytes are free at {tmp_path}")
    root, paths = tmp_path / "store", StorePaths(tmp_path / "store")
    try:
        put = count(append.__name__, root)
        assert count(recover.__name__, root) == put
        for derived in (paths.consume_queue, paths.index):
            shutil.rmtree(derived)
        assert count(recover.__name__, root) == put
        assert count(read.__name__, root) == put
    finally:
        shutil.rmtree(root, ignore_errors=True)


def test_the_limit_of_a_large_stores_process_holds(tmp_path: Path) -> None:
    done = run(exceed.__name__, tmp_path)
    assert done.returncode != 0
    assert "MemoryError" in done.stderr
