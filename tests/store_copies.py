"""Copies of store directories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

TRIES: Final = 10_000
"""Attempts to copy a file, between two names of which a broker moves it."""


def copy_store(store: Path, copy: Path) -> Path:
    """Copy a directory of a store that may be open; return ``copy``.

    Files that are being written to replace others are left out, because they come and go. Links
    stay links. A file that a broker replaces is away for a moment: it is copied once it is back.
    """
    ignore = shutil.ignore_patterns("*.tmp")
    return Path(
        shutil.copytree(store, copy, symlinks=True, ignore=ignore, copy_function=_copy_file)
    )


def _copy_file(source: str, target: str) -> str:
    for _ in range(TRIES):
        try:
            return shutil.copy2(source, target)
        except FileNotFoundError:
            os.sched_yield()
    return shutil.copy2(source, target)
