"""Modules: what each module of a distribution is for, from the docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.generate.markdown import DOCS, code, table

DISTRIBUTIONS: Final = {
    "storage": "libs/storage",
    "service": "libs/service",
    "wire": "libs/wire",
    "client": "libs/client",
    "cli": "libs/cli",
    "writer": "services/store-writer",
    "query": "services/query",
    "coordinator": "services/transaction-coordinator",
    "jobs": "spark-jobs",
}
"""The folder of each package below ``mqstore``."""


def modules(package: str) -> str:
    """A table of the modules of ``mqstore.PACKAGE``, one for each of its packages."""
    root = DOCS.parent / DISTRIBUTIONS[package] / "mqstore" / package
    folders = [root, *sorted(path.parent for path in root.rglob("*/__init__.py"))]
    return "\n\n".join(_section(folder, root) for folder in folders)


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = re.sub(r"\s+", " ", text.partition("\n\n")[0])
    return re.split(r"(?<=[a-z)`]\.) (?=[A-Z`])", paragraph)[0].replace("``", "`")


def _section(folder: Path, root: Path) -> str:
    name = ".".join(folder.relative_to(root.parent.parent).parts)
    rows = [(code(path.stem), purpose(path)) for path in _modules(folder)]
    parts = [f"### {name}", purpose(folder / "__init__.py"), table(("module", "purpose"), rows)]
    return "\n\n".join(part for part in parts if part)


def _modules(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield path
