"""Prometheus' own programs: on the PATH, or as `make prometheus` gets them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

BUILD: Final = Path(__file__).parents[1] / "build"


def find_tool(name: str) -> str | None:
    """Return the path of prometheus or promtool; None if it is not there."""
    built = BUILD / name
    return shutil.which(name) or (str(built) if built.is_file() else None)


needs_prometheus = pytest.mark.skipif(
    None in (find_tool("prometheus"), find_tool("promtool")),
    reason="needs prometheus and promtool; `make prometheus` gets them",
)
