"""Scripts of the console that compute, tested with Node's own test runner."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

NODE_MIN: Final = (20, 19)
HERE: Final = Path(__file__).parent


@cache
def missing() -> str | None:
    """Return why the scripts cannot be tested; None if they can."""
    node = shutil.which("node")
    if node is not None:
        version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        if numbers >= NODE_MIN:
            return None
    return "needs Node 20.19 or newer, only to test the scripts of the console"


@pytest.mark.parametrize("path", sorted(HERE.glob("*.test.mjs")), ids=lambda path: path.name)
def test_the_scripts_compute_as_they_say(path: Path) -> None:
    if (why := missing()) is not None:
        pytest.skip(why)
    done = subprocess.run(
        ["node", "--test", "--test-reporter=spec", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
