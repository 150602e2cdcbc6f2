"""The errors of a small file that is too large to be read whole, and of one with several names."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from mqstore.storage.layout import SMALL_FILE_MAX

LINKED: Final = (
    "has several names (hard links, as in a snapshot by cp -al), and a write to it would change "
    "the file under each: copy the store (cp -a) and open the copy, or remove the other names"
)


def too_large(path: Path, size: int) -> OSError:
    """Build the OSError (EFBIG) of a file of ``size`` bytes."""
    return OSError(errno.EFBIG, size_text(size), str(path))


def size_text(size: int) -> str:
    """Format a size for people."""
    return f"has {size} bytes, and no file of its kind has more than {SMALL_FILE_MAX}"
