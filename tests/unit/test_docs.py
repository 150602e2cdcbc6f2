"""What the documentation names exists: a guarantee rests on tests that can be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
IN_CODE = re.compile(r"`([^`\n]+)`")
TEST_PATH = re.compile(r"\btests/[\w/-]+(?:\.py)?")
TEST_NAME = re.compile(r"\btest_\w+(?!\w|\.py)")
DEFINED = re.compile(r"^\s*def (test_\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def defined() -> set[str]:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    return {name for source in sources for name in DEFINED.findall(source)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_is_named_exists(page: Path, defined: set[str]) -> None:
    named = " ".join(IN_CODE.findall(page.read_text(encoding="utf-8")))
    paths = TEST_PATH.findall(named)

    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert set(TEST_NAME.findall(TEST_PATH.sub("", named))) - defined == set()


def test_the_pages_name_tests_at_all(defined: set[str]) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert len(set(TEST_NAME.findall(text)) & defined) > 5
