"""How far each level is delivered: ``delayOffset.json``, never ahead of the copies on disk.

RocketMQ writes it every flushDelayOffsetInterval whatever the disk has of the copies, so that a
power cut may lose messages; here the log is synced up to the last copy first.
"""

from __future__ import annotations

import logging
import math

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
        self._log.flush.wait(self._log.flush.request(self._log.max_offset))
        for level, offset in offsets.items():
            self._table.put(level, offset)
        self._table.save()
        self._changed.clear()
