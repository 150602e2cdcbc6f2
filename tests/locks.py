"""The locked versions of third-party packages, in ``requirements/*.txt``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def read_lock(name: str) -> dict[str, list[str]]:
    """The hashes of each requirement (``NAME==VERSION``, a marker maybe) of one lock."""
    hashes: dict[str, list[str]] = {}
    found: list[str] = []
    for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
        words = line.removesuffix("\\").strip()
        if words.startswith("--hash="):
            found.append(words.removeprefix("--hash="))
        elif not words.startswith("#"):
            found = hashes.setdefault(words, [])
    return hashes
