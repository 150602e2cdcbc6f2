"""Unique keys of the shape that RocketMQ's clients give (see ``message_id``).

A module of its own, because the kernel, which makes the keys, uses ``message_id``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from mqstore.storage._kernel import GeneratedKeys
from mqstore.storage.codec.message_id import GENERATED_PREFIX
from mqstore.storage.seams import Seams

_PREFIX_BITS: Final = 48


class UniqueKeys:
    """Generates unique keys of 32 hex characters. Thread-safe."""

    def __init__(self, seams: Seams) -> None:
        self._clock = seams.clock
        prefix = f"{GENERATED_PREFIX}{seams.random.getrandbits(_PREFIX_BITS):012X}"
        self.generated = GeneratedKeys(prefix.encode())
        """The same keys, for the kernel."""

    def next(self) -> str:
        """Generate the next key."""
        now = self._clock.now_ms()
        key = self.generated.next(now)
        while key is None:
            self.generated.begin_month(*_month_around(now))
            key = self.generated.next(now)
        return key


def _month_around(now_ms: int) -> tuple[int, int]:
    """The first millisecond of the month (UTC) and of the next one."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    begin = datetime(now.year, now.month, 1, tzinfo=UTC)
    end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return int(begin.timestamp()) * 1000, int(end.timestamp()) * 1000
