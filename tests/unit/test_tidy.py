"""The words, the lengths and the docstrings of every source and document."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, TypeGuard

import pytest

from tests.locks import ROOT

pytestmark = pytest.mark.xdist_group("tidy")  # each source is read and parsed once

FOLDERS: Final = (
    *("libs", "services", "spark-jobs", "charts", "docker", "docs"),
    *("tests", "requirements", ".ci"),
)
NO_TEXT: Final = frozenset({".so", ".png", ".pyc", ".xz"})
BUILT: Final = frozenset({"build", "__pycache__", "target"})
"""Folders that builds write and git ignores."""

BANNED: Final = (
    "told|tell|tells|telling|ask|asks|asked|asking|askers?|nobody|somebody|anybody|everybody|someone"
    "|anyone|everyone|whoever|elsewhere|everywhere|newcomers?|lots?|general way"
)
"""Words for which the field has a term: report, request, client, redirect, batch, slow path."""

WORD: Final = re.compile(rf"(?<![A-Za-z])({BANNED})(?![a-z])", re.IGNORECASE)
FIELD: Final = re.compile("""[\"'`]asked[\"'`]|Tell_City|kubectl mqstore ask` is""")
"""A field of the API (``shards.asked``) where it is quoted, a time zone, and a former command."""

THIRD_PARTY: Final = "console/static/vendor"
"""Folder of files that others wrote."""

NO_SUBJECT: Final = re.compile("(What|Whatever|Who|Whose|Where|Such|That|It|Of|And|So|There) ")
"""Beginnings of docstrings that are fragments: their subject is missing or a pronoun."""

CAMEL: Final = re.compile("(?<=[a-z])(?=[A-Z])")

FUNCTION_LINES: Final = 70
FILE_LINES: Final = 600
CODE: Final = frozenset({".py", ".pyi", ".pyx", ".pxi", ".h", ".sh", ".js", ".css"})

DOCUMENTED: Final = ("libs/", "services/", "spark-jobs/")
"""Folders whose public functions, methods and classes have a docstring."""

EXEMPT: Final = frozenset({"overload", "setter", "deleter"})
"""Decorators of functions whose docstring stands at another definition of the same name."""


def test_no_source_or_document_holds_a_banned_word() -> None:
    assert not banned_words(), "\n".join(banned_words())


def test_the_search_finds_a_banned_word_within_an_identifier() -> None:
    for text in ("_told", "asked_at", "TellAll", "is_told", "ToldTwice", "NOBODY", "Ask again."):
        assert list(words_in(text)), text
    for text in ("request", "intelligent", "tasked", "stellar", "retold"):
        assert not list(words_in(text)), text


def test_files_and_functions_have_at_most_their_number_of_lines() -> None:
    assert sorted(long_files() | findings().long_functions) == []


def test_public_functions_and_classes_have_a_docstring() -> None:
    assert not findings().undocumented, "\n".join(findings().undocumented)


def test_the_search_finds_a_public_function_without_a_docstring() -> None:
    text = """
class Store:
    def __init__(self): ...
    def read(self):
        def inner(): ...
    def _load(self):
        def inner(): ...
    @property
    def size(self): ...
    @size.setter
    def size(self, value): ...
if True:
    def open_store():
        "Open the store."
    async def close_store(): ...
"""
    found = [node.name for node in undocumented_in(ast.parse(text).body)]
    assert found == ["Store", "read", "size", "close_store"]


def test_docstrings_begin_with_their_subject() -> None:
    found = findings().without_subject
    assert not found, "\n".join(found)


@cache
def sources() -> dict[str, str]:
    """The text of each source and document, by its path in the repository."""
    paths = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path != Path(__file__) and not generated(path)
    ]
    paths += [ROOT / "Makefile", *ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.yml")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(paths)}


def generated(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return (
        path.suffix in NO_TEXT
        or path.name == "_kernel.c"
        or THIRD_PARTY in path.as_posix()
        or any(part in BUILT or part.endswith(".egg-info") for part in parts)
    )


@cache
def banned_words() -> list[str]:
    """Path, line number and word of each banned word; line 0 is the path itself."""
    found = []
    for path, text in sources().items():
        found += [f"{path}:0: {word}" for _, word in words_in(path)]
        found += [f"{path}:{line}: {word}" for line, word in words_in(text)]
    return found


def words_in(text: str) -> Iterator[tuple[int, str]]:
    """Line number and word of each banned word; the parts of an identifier are words too."""
    words = CAMEL.sub(" ", FIELD.sub("", text))
    for match in WORD.finditer(words):
        yield words.count("\n", 0, match.start()) + 1, match[1]


@cache
def long_files() -> set[str]:
    return {
        path
        for path, text in sources().items()
        if Path(path).suffix in CODE and text.count("\n") > FILE_LINES
    }


@dataclass
class Findings:
    """Path, line number and name or text of what is wrong."""

    long_functions: set[str] = field(default_factory=set)
    undocumented: list[str] = field(default_factory=list)
    without_subject: list[str] = field(default_factory=list)


@cache
def findings() -> Findings:
    """Parse each source once, for all tests."""
    found = Findings()
    for path, text in sources().items():
        if path.endswith(".py"):
            tree = ast.parse(text)
            for node in statements_in(tree.body):
                if is_long(node):
                    found.long_functions.add(f"{path}:{node.lineno} {node.name}")
                elif isinstance(node, ast.Expr) and NO_SUBJECT.match(words := text_of(node)):
                    found.without_subject.append(f"{path}:{node.lineno} {words}")
            if path.startswith(DOCUMENTED) and not path.endswith("/setup.py"):
                found.undocumented += [
                    f"{path}:{node.lineno} {node.name}" for node in undocumented_in(tree.body)
                ]
    return found


def statements_in(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those within them. ``ast.walk`` would yield each part of expressions
    too, which takes ten times as long."""
    for node in statements:
        yield node
        parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        parts += [each.body for name in ("handlers", "cases") for each in getattr(node, name, [])]
        for part in parts:
            yield from statements_in(part)


def is_long(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    )


def text_of(statement: ast.Expr) -> str:
    """The text of a statement that is a string, as a docstring is; else an empty one."""
    value = statement.value.value if isinstance(statement.value, ast.Constant) else None
    return value if isinstance(value, str) else ""


Documentable = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def undocumented_in(statements: list[ast.stmt]) -> Iterator[Documentable]:
    """Yield the public definitions without a docstring, those in classes too.

    A definition is public when it is not local to a function, and neither its name nor that of a
    class around it begins with an underscore.
    """
    for node in statements:
        if isinstance(node, Documentable):
            if node.name.startswith("_"):
                continue
            decorators = {ast.unparse(item).rpartition(".")[2] for item in node.decorator_list}
            if not decorators & EXEMPT and ast.get_docstring(node) is None:
                yield node
            if not isinstance(node, ast.ClassDef):
                continue
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        yield from undocumented_in(children)
