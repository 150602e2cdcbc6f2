"""Delivery progress of each level: ``delayOffset.json``, never ahead of the copies on disk.

RocketMQ writes the file every flushDelayOffsetInterval, even if the copies are not on disk, so that
a power cut may lose messages. Here the log is synced up to the last copy first, and an offset that
a broker left behind its queue's end is lowered to that end.
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
    """The next queue offset of each level. One thread changes and saves it, any may read."""

    def __init__(self, table: DelayOffsets, log: CommitLog, config: StoreConfig) -> None:
        self._table = table
        self._log = log
        self._interval_s = config.flush_delay_offset_interval / 1000
        self._next = table.all()
        self._changed: set[int] = set()
        self._due = -math.inf

    def next(self, level: int) -> int:
        """The level's next queue offset; 0 for a level that has delivered no message."""
        return self._next.get(level, 0)

    def move(self, level: int, index: int) -> None:
        """Set the level's next queue offset; all messages below are finished."""
        self._next[level] = index
        self._changed.add(level)

    def lower(self, ends: Mapping[int, int]) -> list[tuple[int, int, int]]:
        """Lower each level that is behind its queue's end in ``ends``; durable at return.

        Returns level, offset before and after of each. Raises OSError.
        """
        ahead = [(level, self.next(level), end) for level, end in ends.items()]
        lowered = [each for each in ahead if each[1] > each[2]]
        for level, _, end in lowered:
            self._next[level] = end
            self._table.put(level, end)
        if lowered:
            self._table.save_with_backup()
        return lowered

    def adopt(self, text: str) -> None:
        """Take the progress of a leader, whose ``delayOffset.json`` this is; durable at return.

        Raises ConfigTableError, FlushTimeout, StoreFailed, OSError.
        """
        if self._table.adopt(text):
            self._next = self._table.all()
            self._table.save(self._log.sync)

    def step(self, now: float) -> float:
        """Save when a save is due; returns the time of the next call. Raises StoreFailed."""
        if self._changed and now >= self._due:
            self._due = now + self._interval_s
            try:
                self.save()
            except (OSError, FlushTimeout) as error:
                _log.error("progress of delayed messages is not saved, tried again: %s", error)
        return self._due if self._changed else math.inf

    def save(self) -> None:
        """Save the progress.

        Raises FlushTimeout, StoreFailed, OSError; the next call then retries.
        """
        offsets = {level: self._next[level] for level in sorted(self._changed)}
        if not offsets:
            return
        self._log.sync()
        for level, offset in offsets.items():
            self._table.put(level, offset)
        self._table.save()
        self._changed.clear()
