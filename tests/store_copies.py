"""Copies of store directories."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_store(store: Path, copy: Path) -> Path:
    """Copy a directory of a store that may be open; return ``copy``.

    Files that are being written to replace others are left out, because they come and go. Links
    stay links.
    """
    ignore = shutil.ignore_patterns("*.tmp")
    return Path(shutil.copytree(store, copy, symlinks=True, ignore=ignore))
