"""The note that index files are missing and not rebuilt (``store/mqstore/index-lost.json``).

An index with a hole looks complete. So a writer that misses files of its own writes this note, and
an opening compares the files with those that the last clean close left. The note is removed when
the index was made again: by a rebuild, or by the opening, which then begins it from the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from mqstore.storage.metadata.manifest import Manifest
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import remove_file, replace_file

log = logging.getLogger(__name__)


def put(files: FileSystem, paths: StorePaths, names: Sequence[str]) -> None:
    """Write the note; durable at return. Raises OSError."""
    replace_file(files, paths.index_lost, json.dumps({"files": list(names)}).encode())


def is_noted(files: FileSystem, paths: StorePaths) -> bool:
    """Whether there is a note."""
    return files.stat(paths.index_lost) is not None


def remove(files: FileSystem, paths: StorePaths) -> None:
    """Remove the note. Raises OSError."""
    remove_file(files, paths.index_lost)


def at_opening(files: FileSystem, paths: StorePaths, left: Manifest | None) -> bool:
    """Whether files are missing; the note is written before ``left``, their list, is removed.

    Raises OSError.
    """
    if is_noted(files, paths):
        return True
    if left is None or left.log is None:
        return False
    gone = sorted(set(left.log.index_files).difference(files.list(paths.index)))
    if gone:
        log.error("index files are gone since the last clean close: %s", ", ".join(gone[:10]))
        put(files, paths, gone)
    return bool(gone)
