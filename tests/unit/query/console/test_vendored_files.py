"""The third-party files of the console are those of the list, unchanged."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

from mqstore.query.console.files import ROOT as STATIC
from mqstore.query.console.files import load
from tests.locks import ROOT

LISTED: Final[dict[str, Any]] = json.loads((ROOT / "requirements/console.json").read_text())
VENDOR: Final = STATIC / "vendor"
SIZE_MAX: Final = 400_000
"""Bytes of all files of the console, compressed; a visit loads those of its page."""


def test_each_file_has_its_hash_and_no_other_is_there() -> None:
    listed = {each["target"]: each["sha256"] for each in LISTED["files"]}
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
    }
    assert found == listed


def test_each_package_has_an_exact_version_an_integrity_and_its_license() -> None:
    with_license = {each["package"] for each in LISTED["files"] if "LICENSE" in each["target"]}
    for package in LISTED["packages"]:
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["integrity"].startswith("sha512-")
        assert package["name"] in with_license
    assert "://" not in json.dumps(LISTED)


def test_scripts_import_files_that_exist_and_only_library_modules_name_vendored_ones() -> None:
    for path in STATIC.rglob("*.js"):
        imported = re.findall(r"(?:from |import |import\()\"([^\"]+)\"", path.read_text())
        for address in imported:
            assert address.startswith("."), f"{path}: {address}"
            target = (path.parent / address).resolve()
            assert target.is_file(), f"{path}: {address}"
            if target.is_relative_to(VENDOR) and not path.is_relative_to(VENDOR):
                assert path.parent.name in {"lib", "parts"} or path == STATIC / "pages.js"


def test_no_file_of_ours_makes_markup_from_text() -> None:
    for path in _ours():
        text = path.read_text()
        for name in ("dangerouslySetInnerHTML", "innerHTML", "eval(", "document.write", ' style="'):
            assert name not in text, f"{path}: {name}"


def test_what_every_page_needs_is_loaded_at_once() -> None:
    """Otherwise a browser finds each module only when it has read the one that imports it."""
    preloaded = set(
        re.findall(r'modulepreload" href="([^"]+)"', (STATIC / "index.html").read_text())
    )
    shared = {
        path.relative_to(STATIC).as_posix()
        for name in ("lib", "parts")
        for path in (STATIC / name).glob("*.js")
    }
    assert shared <= preloaded
    assert all((STATIC / path).is_file() for path in preloaded)


def test_the_console_is_small() -> None:
    assert sum(len(each.compressed) for each in load().values()) < SIZE_MAX


def _ours() -> list[Path]:
    found = [*STATIC.rglob("*.js"), *STATIC.rglob("*.html")]
    return [path for path in found if not path.is_relative_to(VENDOR)]
