"""Guarantees: everything that users can rely on, each with the tests that hold it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.generate.markdown import code, table

FILE: Final = Path(__file__).with_name("guarantees.toml")


@dataclass(frozen=True)
class Guarantee:
    """One sentence in Markdown, and its tests: paths, names of tests, or a command."""

    text: str
    tests: tuple[str, ...]


def read() -> dict[str, list[Guarantee]]:
    """The guarantees of each subject, in the order of the file."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {
        subject["title"]: [
            Guarantee(each["text"], tuple(each["tests"])) for each in subject["guarantees"]
        ]
        for subject in document["subjects"]
    }


def guarantees() -> str:
    """A section with a table for each subject."""
    return "\n\n".join(f"## {title}\n\n{_table(rows)}" for title, rows in read().items())


def _table(rows: list[Guarantee]) -> str:
    return table(
        ("guarantee", "tests"), ((each.text, ", ".join(map(code, each.tests))) for each in rows)
    )
