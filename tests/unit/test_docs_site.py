"""The documentation site builds from the code, and loads nothing from another place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate.hook import GENERATORS
from mqstore.wire.problems import REGISTRY

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc=["']?https?:|<link[^>]*\shref=["']?https?:"""
)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("docs-site"),  # one build for all of them
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; every warning of the build is an error."""
    where = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(where)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return where


def test_no_page_loads_anything_from_another_place(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    assert [page.name for page in pages if LOADED.search(page.read_text())] == []


def test_every_generated_part_is_filled(site: Path) -> None:
    used: set[str] = set()
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        used |= set(re.findall(r"<!-- generate: (\S+)", page.read_text()))
        assert "<!-- generate:" not in (site / "reference" / f"{page.stem}.html").read_text()
    assert used == set(GENERATORS)


def test_the_reference_has_every_problem_and_the_operations_of_each_service(site: Path) -> None:
    problems = (site / "reference" / "problems.html").read_text()
    assert [name for name in REGISTRY if name not in problems] == []
    for service, path in (
        ("store-writer", "POST /v1/topics/{topic}/messages"),
        ("query", "GET /v1/messages/{id}"),
        ("transaction-coordinator", "POST /v1/transactions/{id}:commit"),
    ):
        assert path in (site / "reference" / f"rest-{service}.html").read_text()
