"""How far each level is delivered: ``delayOffset.json``, never ahead of the copies on disk.

RocketMQ writes it every flushDelayOffsetInterval whatever the disk has of the copies, so that a
power cut may lose messages; here the log is synced up to the last copy first, and what a broker
left ahead of a level's queue is lowered to its end.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import FlushTimeout
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.tables.config_tables import DelayOffsets

_log = logging.getLogger(__name__)


class DelayProgress:
    """The next queue offset of each level. One thread moves and saves, any may look."""

    def __init__(self, table: DelayOffsets, log: CommitLog, config: StoreConfig) -> None:
        self._table = table
        self._log = log
        self._interval_s = config.flush_delay_offset_interval / 1000
        self._next = table.all()
        self._changed: set[int] = set()
        self._due = -math.inf

    def next(self, level: int) -> int:
        """0 for a level that delivered nothing yet."""
        return self._next.get(level, 0)

    def move(self, level: int, index: int) -> None:
        """Everything of a level below ``index`` is done with."""
        self._next[level] = index
        self._changed.add(level)

    def lower(self, ends: Mapping[int, int]) -> list[tuple[int, int, int]]:
        """Lower each level that is behind its queue's end in ``ends`` to that end; durable at
        return. Level, offset before and after of each. Raises OSError."""
        ahead = [(level, self.next(level), end) for level, end in ends.items()]
        lowered = [each for each in ahead if each[1] > each[2]]
        for level, _, end in lowered:
            self._next[level] = end
            self._table.put(level, end)
        if lowered:
            self._table.save_with_backup()
        return lowered

    def step(self, now: float) -> float:
        """Save when it is due; returns when to be called next. Raises StoreFailed."""
        if self._changed and now >= self._due:
            self._due = now + self._interval_s
            try:
                self.save()
            except (OSError, FlushTimeout) as error:
                _log.error("progress of delayed messages is not saved, tried again: %s", error)
        return self._due if self._changed else math.inf

    def save(self) -> None:
        """Write what was moved. Raises FlushTimeout, StoreFailed, OSError; tried again then."""
        offsets = {level: self._next[level] for level in sorted(self._changed)}
        if not offsets:
            return
        self._log.sync()
        for level, offset in offsets.items():
            self._table.put(level, offset)
        self._table.save()
        self._changed.clear()
