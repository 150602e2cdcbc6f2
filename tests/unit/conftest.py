"""Fixtures that many unit tests use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a store, which does not exist yet."""
    return tmp_path / "store"
