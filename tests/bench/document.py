"""The part of docs/benchmarks.md that a whole run replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- latest run: written by make bench -->"
END: Final = "<!-- end of the latest run -->"


def write(path: Path, text: str) -> None:
    """Replace what stands between the markers. Raises ValueError when the page has none."""
    before, after = split(path)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def split(path: Path) -> tuple[str, str]:
    """The texts before and after the marked part. Raises ValueError when the page has none."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no lines {BEGIN!r} and {END!r}")
    return before, after
