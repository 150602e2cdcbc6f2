"""``TableSaves`` writes config files whose journal has changes that they lack."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from mqstore.storage.tables.journaled_table import JournaledTable

BYTES_PER_S: Final = 1 << 20
"""A save is followed by a pause of so many bytes a second: a small table is in its file soon after
a change, and a large one costs little however often it changes."""
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 5.0
"""Longest pause. A broker that takes over after a kill misses the changes of that
time at most."""

_log = logging.getLogger(__name__)


class TableSaves:
    """A ``BackgroundService``, woken by the first change that a file lacks. Thread-safe."""

    name = "config-tables"

    def __init__(self, tables: Sequence[JournaledTable], wake: Callable[[], None]) -> None:
        self._tables = tables
        self._paused_until = -math.inf
        for table in tables:
            table.on_unsaved = wake

    def step(self, now: float) -> float:
        """Save the tables; a failed save is retried after ``PAUSE_MAX_S``."""
        if now >= self._paused_until:
            pause_s = PAUSE_MAX_S
            try:
                pause_s = min(max(PAUSE_MIN_S, self.save() / BYTES_PER_S), PAUSE_MAX_S)
            except OSError as error:
                _log.error("a config file is not saved, retried later: %s", error)
            self._paused_until = now + pause_s
        return math.inf if all(table.is_saved for table in self._tables) else self._paused_until

    def save(self) -> int:
        """Save each table that has changes in its journal; returns the bytes of their files.

        Raises OSError.
        """
        unsaved = [table for table in self._tables if not table.is_saved]
        for table in unsaved:
            table.save()
        return sum(table.saved_size for table in unsaved)
