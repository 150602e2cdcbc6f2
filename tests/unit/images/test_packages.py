"""Wheels of the images hold only the files that their pyproject.toml names."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from setuptools.command.build_py import build_py
from setuptools.config.pyprojecttoml import apply_configuration
from setuptools.dist import Distribution

ROOT = Path(__file__).parents[3]
PROJECTS = sorted(
    path
    for pattern in ("libs/*", "services/*", "spark-jobs")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_every_file_of_a_folder_is_in_its_wheel(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    distribution = apply_configuration(Distribution({"script_name": "setup.py"}), path)
    build = build_py(distribution)
    build.finalize_options()

    modules = {Path(file) for _, _, file in build.find_all_modules()}
    data = {
        Path(folder, name)
        for _, folder, _, names in build.get_data_files_without_manifest()
        for name in names
    }
    assert modules | data == {each for each in Path("mqstore").rglob("*") if _is_source(each)}


def _is_source(path: Path) -> bool:
    """Whether a file is none that a build or an import has made, and no page for its developers."""
    return path.is_file() and path.suffix not in {".so", ".c", ".pyc", ".md"}


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_every_distribution_names_the_licence(path: Path) -> None:
    name = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]

    assert metadata(name)["License-Expression"] == "Apache-2.0"


def test_images_are_labelled_with_the_version_that_they_are_tagged_with() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "mqstore" / "Chart.yaml").read_text(encoding="utf-8"))
    for name in ("services", "spark"):
        lines = (ROOT / "docker" / f"{name}.Dockerfile").read_text(encoding="utf-8").splitlines()
        assert f"ARG VERSION={chart['version']}" in lines
    assert chart["appVersion"] == chart["version"]


@pytest.mark.parametrize("tool", ["docker", "podman", "buildah"])
def test_an_image_is_built_on_the_base_that_is_named(tmp_path: Path, tool: str) -> None:
    (tmp_path / tool).write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    (tmp_path / tool).chmod(0o755)
    base = "registry.example.org/python@sha256:" + "0" * 64
    make = shutil.which("make")
    assert make is not None
    for given in ([f"BASE_IMAGE={base}"], []):
        subprocess.run(
            [make, "-s", "images", *given],
            cwd=ROOT,
            env={"PATH": str(tmp_path)},
            check=True,
        )
    named, default = (
        (tmp_path / "called").read_text().splitlines()[start : start + 2] for start in (0, 2)
    )
    assert all(f"--build-arg BASE_IMAGE={base} " in line for line in named)
    assert not any("BASE_IMAGE" in line for line in default)


def test_images_are_labelled_with_their_base() -> None:
    for name in ("services", "spark"):
        text = (ROOT / "docker" / f"{name}.Dockerfile").read_text(encoding="utf-8")
        assert 'org.opencontainers.image.base.name="${BASE_IMAGE}"' in text
        assert "FROM ${BASE_IMAGE}" in text
