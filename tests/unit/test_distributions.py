"""Contents of each distribution and each lock of third-party packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.locks import ROOT, read_lock

LOCKS: Final = sorted(path.stem for path in (ROOT / "requirements").glob("*.txt"))
JOBS: Final = ROOT / "spark-jobs" / "pyproject.toml"
PROJECTS: Final = sorted(
    [*ROOT.glob("libs/*/pyproject.toml"), *ROOT.glob("services/*/pyproject.toml")]
)


@pytest.mark.parametrize("path", [*PROJECTS, JOBS], ids=lambda path: path.parent.name)
def test_a_distribution_has_the_license(path: Path) -> None:
    assert (path.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_a_version_and_hashes_for_each_package_and_no_address(name: str) -> None:
    lock = read_lock(name)
    assert lock
    for requirement, hashes in lock.items():
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)?", requirement)
        assert hashes
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes)
    assert "://" not in (ROOT / "requirements" / f"{name}.txt").read_text()


def test_a_package_has_one_version_and_one_set_of_hashes_in_all_locks() -> None:
    hashes: dict[str, set[tuple[str, ...]]] = {}
    versions: dict[str, set[str]] = {}
    for requirement, found in (pair for name in LOCKS for pair in read_lock(name).items()):
        pinned = Requirement(requirement)
        versions.setdefault(pinned.name, set()).add(str(pinned.specifier))
        hashes.setdefault(pinned.name, set()).add(tuple(found))
    assert {name for name, found in versions.items() if len(found) > 1} == set()
    assert {name for name, found in hashes.items() if len(found) > 1} == set()


def test_locks_satisfy_what_the_distributions_and_the_tools_require() -> None:
    services = [each for path in PROJECTS for each in dependencies(path)]
    assert unsatisfied("run", services) == []
    assert unsatisfied("spark", [*dependencies(JOBS), *dependencies(JOBS, "spark")]) == []
    assert unsatisfied("test", dependencies(JOBS)) == []
    client = ROOT / "libs" / "client" / "pyproject.toml"
    assert unsatisfied("test", dependencies(client, "otel")) == []
    for path in (ROOT / "requirements").glob("*.in"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert unsatisfied(path.stem, lines) == []


def dependencies(path: Path, extra: str | None = None) -> list[str]:
    """Requirements of a ``pyproject.toml``, without our own distributions."""
    project: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    found = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [each for each in found if not each.startswith("mqstore-")]


def unsatisfied(lock: str, requirements: list[str]) -> list[str]:
    """Those of the requirements that the versions of the lock do not satisfy."""
    pins = {each.name: each.specifier for each in map(Requirement, read_lock(lock))}
    found = []
    for requirement in map(Requirement, requirements):
        versions = [each.version for each in pins.get(canonicalize_name(requirement.name), [])]
        if not any(requirement.specifier.contains(version) for version in versions):
            found.append(str(requirement))
    return found
