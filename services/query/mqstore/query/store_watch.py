"""A background service that watches the files of the open store for deletion and replacement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from mqstore.service import logs
from mqstore.storage import StoreReader

CHECK_INTERVAL_S: Final = 0.4
"""Seconds between two checks: maps of deleted files are dropped within a second."""
IDLE_S: Final = 60.0
"""Seconds without a look-up after which a queue's maps are dropped, at the latest twice this."""

log = logs.get(__name__)


class StoreWatch:
    """A ``BackgroundService`` over the reader that is currently open, if any.

    It drops the maps of files that the writer deleted, so that their disk blocks become free, and
    those of idle queues, and reports a store whose files were replaced.
    """

    name = "store-watch"

    def __init__(
        self,
        reader: Callable[[], StoreReader | None],
        replaced: Callable[[StoreReader], None] = lambda _: None,
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        """``replaced`` is called with a reader whose files are no longer those at its path,
        ``observe`` with the time at each check."""
        self._reader = reader
        self._replaced = replaced
        self._observe = observe
        self._idle_due = -math.inf

    def step(self, now: float) -> float:
        """Check the open reader once. Return the time of the next check."""
        reader = self._reader()
        self._observe(now)
        if reader is not None:
            self._check(reader)
            if now >= self._idle_due:
                self._idle_due = now + IDLE_S
                reader.drop_idle()
        return now + CHECK_INTERVAL_S

    def _check(self, reader: StoreReader) -> None:
        try:
            if reader.why_replaced is None:
                reader.drop_deleted()
                return
        except OSError as error:
            log.warning("the store's files cannot be checked", error=str(error))
        self._replaced(reader)
