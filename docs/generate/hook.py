"""Functions that MkDocs calls: the order of pages, generated parts of a page, paths of sources.

A page of ``docs/reference`` holds lines ``<!-- generate: NAME ARGUMENTS -->``; each is replaced by
what the function of that name in ``GENERATORS`` returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from docs.generate.chart import chart_values
from docs.generate.commands import commands
from docs.generate.guarantees import guarantees
from docs.generate.metrics import metrics
from docs.generate.modules import modules
from docs.generate.own_files import own_files
from docs.generate.problems import problems
from docs.generate.rest import rest
from docs.generate.settings import settings
from docs.generate.takeover import takeover, takeover_settings
from mqstore.service import logs

DOCS: Final = Path(__file__).parents[1]
GENERATORS: Final[dict[str, Callable[..., str]]] = {
    "chart-values": chart_values,
    "commands": commands,
    "guarantees": guarantees,
    "metrics": metrics,
    "modules": modules,
    "own_files": own_files,
    "problems": problems,
    "rest": rest,
    "settings": settings,
    "takeover": takeover,
    "takeover_settings": takeover_settings,
}
FIRST: Final = ("index.md", "start.md")
SECTIONS: Final = {
    "How-to": "how-to",
    "Concepts": "concepts",
    "Reference": "reference",
    "Decisions": "adr",
}
_PLACE: Final = re.compile(r"^<!-- generate: (.+) -->$", re.MULTILINE)
_INDEXES: Final = ("README", "index")
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^()\s#]+)(?:#[^()\s]*)?\)")


def on_startup(**_: Any) -> None:
    """Log only warnings of the services that the reference describes."""
    logs.configure("docs", "warning", "console")


def on_config(config: Any) -> Any:
    """Set the navigation: the first pages, each section with its index first, then the others."""
    sections = [{title: _section(name)} for title, name in SECTIONS.items()]
    others = sorted(page.name for page in DOCS.glob("*.md") if page.name not in FIRST)
    config.nav = [*FIRST, *sections, {"More": others}]
    return config


def _section(name: str) -> list[str]:
    """Paths of a section's pages, below ``docs``."""
    pages = sorted(
        (DOCS / name).glob("*.md"), key=lambda page: (page.stem not in _INDEXES, page.name)
    )
    return [str(page.relative_to(DOCS)) for page in pages]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The Markdown that MkDocs renders for a page of ``docs``."""
    return without_source_links(fill(markdown), DOCS / page.file.src_uri)


def fill(markdown: str) -> str:
    """Replace the places of generated parts. Raises KeyError for an unknown generator."""

    def generate(place: re.Match[str]) -> str:
        name, *arguments = place[1].split()
        return GENERATORS[name](*arguments)

    return _PLACE.sub(generate, markdown)


def without_source_links(markdown: str, page: Path) -> str:
    """Links to files outside of ``docs``, which the site does not have, become their paths."""

    def show(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        path = f"`{target.relative_to(DOCS.parent)}`"
        return path if link[1].strip("`") in path else f"{link[1]} ({path})"

    return _LINK.sub(show, markdown)
