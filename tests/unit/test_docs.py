"""The documentation names tests, files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import guarantees

ROOT = Path(__file__).parents[2]
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ROOT_PAGES)])
IN_CODE = re.compile(r"`([^`\n]+)`")
TEST_PATH = re.compile(r"\btests/[\w/-]+(?:\.\w+)?")
TEST_NAME = re.compile(r"\btest_\w+(?!\w|\.py)")
DEFINED = re.compile(r"^\s*def (test_\w+)", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CHANGE_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.fixture(scope="module")
def defined() -> set[str]:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    return {name for source in sources for name in DEFINED.findall(source)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_exists(page: Path, defined: set[str]) -> None:
    named = " ".join(IN_CODE.findall(page.read_text(encoding="utf-8")))
    paths = TEST_PATH.findall(named)

    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert set(TEST_NAME.findall(TEST_PATH.sub("", named))) - defined == set()


def test_every_guarantee_is_given_once_and_held_by_tests_that_exist(defined: set[str]) -> None:
    given = [each for rows in guarantees.read().values() for each in rows]
    named = [test for each in given for test in each.tests]

    assert len({each.text for each in given}) == len(given) > 100
    assert all(each.tests for each in given)
    assert [test for test in named if not _is_test(test, defined)] == []


def _is_test(name: str, defined: set[str]) -> bool:
    """Whether this is a path of tests, the name of a test, or a command of the Makefile."""
    if name.startswith("tests/"):
        return (ROOT / name).exists()
    if name.startswith("make "):
        return f"\n{name.removeprefix('make ')}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    return name in defined


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))

    assert [link for link in links if not _resolves(page, link)] == []


def _resolves(page: Path, link: str) -> bool:
    if link.startswith("https://"):
        return True
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_licence_is_the_whole_apache_license() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert text.rstrip().endswith("limitations under the License.")


def test_the_changelog_begins_with_what_is_not_released_and_uses_the_standard_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= CHANGE_KINDS
