"""A store to be damaged, made once for each module."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.storage.store_repair.damages import Patient, make_store


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("repair") / "store"
    make_store(path)
    return path


@pytest.fixture
def patient(original: Path, tmp_path: Path) -> Patient:
    return Patient(Path(shutil.copytree(original, tmp_path / "store")))
