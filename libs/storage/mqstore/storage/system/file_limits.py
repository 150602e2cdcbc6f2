"""The error of a small file that is too large to be read whole."""

from __future__ import annotations

import errno
from pathlib import Path

from mqstore.storage.layout import SMALL_FILE_MAX


def too_large(path: Path, size: int) -> OSError:
    """Build the OSError (EFBIG) of a file of ``size`` bytes."""
    return OSError(errno.EFBIG, size_text(size), str(path))


def size_text(size: int) -> str:
    """Format a size for people."""
    return f"has {size} bytes, and no file of its kind has more than {SMALL_FILE_MAX}"
