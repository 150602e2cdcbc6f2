"""Watches the files of the open store: whether they are there, and still the store's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqstore.service import logs
from mqstore.storage import StoreReader

LOOK_S: Final = 0.4
"""From one look to the next: maps of deleted files are dropped within a second."""

log = logs.get(__name__)


class StoreWatch:
    """A ``BackgroundService`` over the reader that is open at the moment, if one is.

    Drops the maps of files that the writer deleted, so that their disk blocks are free, and reports
    a store that another one took the place of.
    """

    name = "store-watch"

    def __init__(
        self,
        reader: Callable[[], StoreReader | None],
        replaced: Callable[[StoreReader], None] = lambda _: None,
    ) -> None:
        """``replaced`` is called with a reader whose files are no longer those at its path."""
        self._reader = reader
        self._replaced = replaced

    def step(self, now: float) -> float:
        reader = self._reader()
        if reader is not None:
            self._look(reader)
        return now + LOOK_S

    def _look(self, reader: StoreReader) -> None:
        try:
            if reader.why_replaced is None:
                reader.drop_deleted()
                return
        except OSError as error:
            log.warning("the store's files cannot be looked at", error=str(error))
        self._replaced(reader)
