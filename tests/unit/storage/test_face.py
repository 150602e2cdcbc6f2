"""The public face of the engine: its names, its documentation, and the contract that holds it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import grimp
import pytest
from importlinter.contracts.protected import ProtectedContract

import mqstore.storage

ROOT: Final = Path(__file__).parents[3]
NAMES_MAX: Final = 26
"""A name more is a reason to merge two modules of the face."""
DEFINING: Final = {"errors", "topic_names"}
"""Modules that offer all that they define, and need no ``__all__``."""
CONTRACT: Final = "the engine is imported through its public face (__all__ of mqstore.storage)"


def modules() -> dict[str, ModuleType]:
    """The modules of the face by name; its other names are classes."""
    found = {}
    for name in mqstore.storage.__all__:
        if not hasattr(mqstore.storage, name) or isinstance(
            getattr(mqstore.storage, name), ModuleType
        ):
            found[name] = importlib.import_module(f"mqstore.storage.{name}")
    return found


def linter() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["importlinter"]  # type: ignore[no-any-return]


def contract() -> dict[str, Any]:
    (found,) = (each for each in linter()["contracts"] if each["name"] == CONTRACT)
    return dict(found)


def is_kept(graph: grimp.ImportGraph) -> bool:
    options = {name: value for name, value in contract().items() if name not in ("name", "type")}
    return ProtectedContract(CONTRACT, {}, options).check(graph, verbose=False).kept


def test_the_face_has_few_names() -> None:
    assert len(mqstore.storage.__all__) <= NAMES_MAX


@pytest.mark.parametrize("name", mqstore.storage.__all__)
def test_a_name_of_the_face_is_documented(name: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## The engine's public face")[2].partition("\n## ")[0]
    assert f"`{name}`" in section


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_public_module_names_what_it_offers_and_who_uses_it(name: str) -> None:
    module = modules()[name]
    assert module.__doc__ is not None
    assert "Used by" in module.__doc__
    offered = getattr(module, "__all__", [])
    assert (name in DEFINING) == (not offered)
    assert all(hasattr(module, each) for each in offered)


def test_an_unknown_name_of_the_face_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'CommitLog'"):
        mqstore.storage.CommitLog  # type: ignore[attr-defined] # noqa: B018


def test_the_contract_lets_through_the_modules_of_the_face_only() -> None:
    let_through = {each.rpartition(".")[2] for each in contract()["ignore_imports"]}
    assert let_through == set(modules())


def test_the_contract_refuses_the_import_of_an_internal_module() -> None:
    graph = grimp.build_graph(*linter()["root_packages"], cache_dir=None)
    assert is_kept(deepcopy(graph))
    graph.add_import(importer="mqstore.cli.main", imported="mqstore.storage.metadata.sealed_json")
    assert not is_kept(graph)


def test_examples_and_documents_import_the_face_only() -> None:
    allowed = {"mqstore.storage", *(f"mqstore.storage.{name}" for name in modules())}
    paths = [*ROOT.glob("docs/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    for path in paths:
        for found in re.findall(r"(?:from|import) (mqstore\.storage[\w.]*)", path.read_text()):
            assert found in allowed, path


@pytest.mark.slow
def test_each_module_of_the_engine_can_be_imported_first() -> None:
    """A circle of imports shows only with one of its modules as the first."""
    script = """
import os, pkgutil, sys
import mqstore.storage
names = [each.name for each in pkgutil.walk_packages(mqstore.storage.__path__, "mqstore.storage.")]
assert names
for name in names:
    child = os.fork()
    if child == 0:
        __import__(name)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
