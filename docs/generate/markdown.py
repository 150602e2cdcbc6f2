"""Markdown that the generators write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[1]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells keep their Markdown, except that they become one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def code(value: object) -> str:
    """The value as code; nothing for an empty one."""
    text = str(value)
    return f"`{text}`" if text else ""


def see(page: str | None) -> str:
    """A sentence with a link from a page of ``docs/reference`` to a page of ``docs``."""
    if page is None:
        return ""
    path, _, anchor = page.partition("#")
    heading = (DOCS / path).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f" See [{anchor.replace('-', ' ').capitalize() or heading}](../{page})."


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
