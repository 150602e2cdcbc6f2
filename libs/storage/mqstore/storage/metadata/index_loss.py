"""That files of the index are gone which nobody has made again (``store/mqstore/index-lost.json``).

An index with a hole looks like one without. So a writer that misses files of its own says so here,
and an opening compares what is there with what the last clean close left. The note goes when the
index was made anew: by a rebuild, or by the opening, which then begins it from the log.
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
    """Durable when it returns. OSError."""
    replace_file(files, paths.index_lost, json.dumps({"files": list(names)}).encode())


def is_noted(files: FileSystem, paths: StorePaths) -> bool:
    return files.stat(paths.index_lost) is not None


def remove(files: FileSystem, paths: StorePaths) -> None:
    """OSError."""
    remove_file(files, paths.index_lost)


def at_opening(files: FileSystem, paths: StorePaths, left: Manifest | None) -> bool:
    """Whether files are gone; noted before what ``left`` says of them is removed. OSError."""
    if is_noted(files, paths):
        return True
    if left is None or left.log is None:
        return False
    gone = sorted(set(left.log.index_files).difference(files.list(paths.index)))
    if gone:
        log.error("index files are gone since the last clean close: %s", ", ".join(gone[:10]))
        put(files, paths, gone)
    return bool(gone)
