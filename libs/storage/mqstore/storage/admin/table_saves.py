"""``TableSaves`` writes config files whose journal has changes that they lack."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from mqstore.storage.tables.journaled_table import JournaledTable

SAVE_INTERVAL_S: Final = 5.0
"""Seconds between two saves. A broker that takes over after a kill misses the changes of that time
at most; each save costs as much as its table is large."""

_log = logging.getLogger(__name__)


class TableSaves:
    """A ``BackgroundService``. Thread-safe."""

    name = "config-tables"

    def __init__(self, tables: Sequence[JournaledTable]) -> None:
        self._tables = tables

    def step(self, now: float) -> float:
        """Save the tables; a failed save is retried at the next step."""
        try:
            self.save()
        except OSError as error:
            _log.error("a config file is not saved, retried later: %s", error)
        return now + SAVE_INTERVAL_S

    def save(self) -> None:
        """Save each table that has changes in its journal. Raises OSError."""
        for table in self._tables:
            if not table.is_saved:
                table.save()
