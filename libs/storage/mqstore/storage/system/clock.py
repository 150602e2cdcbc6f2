"""The system's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """``seams.Clock`` of production. Thread-safe."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
