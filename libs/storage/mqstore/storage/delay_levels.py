"""The delay levels of SCHEDULE_TOPIC_XXXX: ``messageDelayLevel`` as milliseconds.

Source: ScheduleMessageService of 4.9.7 and 5.4.0 (parseDelayLevel, computeDeliverTimestamp).
"""

from __future__ import annotations

import re
from typing import Final

_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,10}")
_DIGITS_MAX: Final = 9
"""Digits of a delay: its milliseconds stay within 64 bits."""
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevels:
    """Delay levels, numbered from 1, with their delays. Immutable."""

    def __init__(self, text: str) -> None:
        """Parse ``1s 5s 10s …``. Raises ValueError."""
        self.names: tuple[str, ...] = tuple(text.split(" "))
        """The levels' texts in the setting, from level 1."""
        self.delays_ms: tuple[int, ...] = tuple(_delay_ms(part) for part in self.names)

    @property
    def max_level(self) -> int:
        """The highest level."""
        return len(self.delays_ms)

    @property
    def numbers(self) -> range:
        """All levels, from 1."""
        return range(1, self.max_level + 1)

    def delivery_time(self, level: int, store_timestamp_ms: int) -> int:
        """The due time of a message of this level; higher levels count as the last."""
        return store_timestamp_ms + self.delays_ms[min(level, self.max_level) - 1]

    def level_of_delay(self, delay_ms: float) -> int | None:
        """The level with the shortest delay of at least ``delay_ms``; None when all are shorter."""
        found = min((each for each in self.delays_ms if each >= delay_ms), default=None)
        return None if found is None else self.delays_ms.index(found) + 1

    def queue_code(self, delay: str | None, store_timestamp_ms: int) -> int | None:
        """The tagsCode of a delayed message's queue entry; None when DELAY is no level.

        RocketMQ fails on text that is no number; here such a record keeps the code of its tags.
        """
        level = level_of(delay)
        if level is None or level <= 0:
            return None
        return self.delivery_time(level, store_timestamp_ms)


def level_of(delay: str | None) -> int | None:
    """Parse a DELAY property; None when it holds no number."""
    return int(delay) if delay and _LEVEL.fullmatch(delay) else None


def _delay_ms(text: str) -> int:
    unit, digits = _UNITS_MS.get(text[-1:]), text[:-1]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    if unit is None or not is_number:
        raise ValueError(f"delay level {text[:50]!r} is no number with s, m, h or d behind it")
    return int(digits) * unit
