"""What the images are built from: wheels, which hold only what their pyproject.toml names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PROJECTS = sorted(
    path
    for pattern in ("libs/*", "services/*", "spark-jobs")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_every_folder_with_modules_is_in_its_wheel(path: Path) -> None:
    named = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    found = {module.parent for module in (path.parent / "mqstore").rglob("*.py")}
    assert set(named) == {".".join(each.relative_to(path.parent).parts) for each in found}


def test_images_are_labelled_with_the_version_that_they_are_tagged_with() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "mqstore" / "Chart.yaml").read_text(encoding="utf-8"))
    for name in ("services", "spark"):
        lines = (ROOT / "docker" / f"{name}.Dockerfile").read_text(encoding="utf-8").splitlines()
        assert f"ARG VERSION={chart['version']}" in lines
    assert chart["appVersion"] == chart["version"]
