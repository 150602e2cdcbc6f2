"""``FollowedTable`` reads a config table of another process again when its file has changed.

Called from the query service. Every method may be called from any thread, and may wait for the
disk.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mqstore.storage.errors import ConfigTableError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.tables.journaled_table import JournaledTable
from mqstore.storage.tables.table import Source, Table

SETTLED_MS: Final = 10
"""Time after a change during which the file is read at every call: two versions of the same length
may follow each other within a millisecond."""

T = TypeVar("T", bound=Table)


@dataclass(frozen=True, slots=True)
class TableSnapshot(Generic[T]):
    """A table as it was last read.

    ``table`` is never changed, but a ``JournaledTable`` gets its later changes.
    """

    table: T
    saved_at_ms: int | None
    """Time at which the file was last written; None without a file."""


class FollowedTable(Generic[T]):
    """Follows one file of one store.

    A file that cannot be read keeps the last content; its writer reports the problem.
    """

    def __init__(self, kind: type[T], paths: StorePaths, seams: Seams) -> None:
        self._kind = kind
        self._paths = paths
        self._seams = seams
        self._lock = threading.Lock()
        # The format matters to writers only: both are read alike.
        empty = kind.empty(paths, StoreFormat.V4_9, seams)
        self._path = empty.path
        self._known: TableSnapshot[T] = TableSnapshot(empty, None)
        self._seen: tuple[int, int] | None = None

    def now(self) -> TableSnapshot[T]:
        """Read the table if its file has changed. Raises OSError."""
        with self._lock:
            self._refresh()
            return self._known

    def _refresh(self) -> None:
        if self._known.saved_at_ms is None:  # until it has entries, its file may be another one
            self._path = self._kind.empty(self._paths, StoreFormat.V4_9, self._seams).path
        stat = self._seams.files.stat(self._path)
        now = None if stat is None else (stat.size, stat.modified_ms)
        if now is not None and now == self._seen and self._has_followed():
            return
        if now is None and self._known.saved_at_ms is not None:
            return  # a broker is replacing the file
        try:
            table = self._kind.load(self._paths, StoreFormat.V4_9, self._seams)
        except ConfigTableError:
            return
        self._known = TableSnapshot(table, self._saved_at(table))
        is_settled = now is not None and self._seams.clock.now_ms() - now[1] > SETTLED_MS
        self._seen = now if is_settled else None

    def _has_followed(self) -> bool:
        table = self._known.table
        return not isinstance(table, JournaledTable) or table.follow()

    def _saved_at(self, table: T) -> int | None:
        path = table.backup_path if table.source is Source.BACKUP else self._path
        stat = self._seams.files.stat(path)
        return None if stat is None else stat.modified_ms
