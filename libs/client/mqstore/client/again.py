"""Requests that are sent again: when, and what is said of it. Nothing here does input or output."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom
from typing import Final

from mqstore.client.errors import ClientError, ProblemError, Unreachable

AGAIN_STATUSES: Final = frozenset({429, 502, 503, 504})
"""Answers that may be others in a moment."""
REPEAT: Final = {"x-mqstore-repeat": "1"}
"""Of what was sent before: one shard of several then asks the others whether they have it."""
NOTHING_STORED: Final = frozenset(
    {"disk-full", "disk-refuses", "page-cache-busy", "store-not-writable", "store-read-only"}
    | {"writes-paused"}
)
"""Problems that are answered instead of storing anything."""
NAMES_MAX: Final = 100_000
"""Messages of which it is remembered that they may have been stored."""
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 30.0
_RANDOM: Final = SystemRandom()


def may_pass(failure: ClientError | None) -> bool:
    """Whether the same request may succeed in a moment; None is a connection that ended."""
    if isinstance(failure, ProblemError):
        return failure.status in AGAIN_STATUSES
    return failure is None or isinstance(failure, Unreachable)


def pause_s(attempts: int, first_s: float) -> float:
    """Until the next attempt: longer each time, and not the same for all clients of a service."""
    pause: float = min(first_s * 2**attempts, PAUSE_MAX_S)
    return pause * (1 + _RANDOM.random() / 4)


class Patience:
    """How long one request is sent again."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + patience_s
        self._attempts = 0

    def pause_s(self, failure: ClientError) -> float:
        """Until the next attempt. Raises ``failure`` where it is final, or time is over."""
        told = failure.retry_after_s if isinstance(failure, ProblemError) else None
        pause = pause_s(self._attempts, PAUSE_S) if told is None else pause_s(0, told)
        if not may_pass(failure) or self._clock() + pause > self._until:
            raise failure
        self._attempts += 1
        return pause


class Unsettled:
    """Messages that were sent, of which no answer told whether they were stored. Safe from any
    thread."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._lock = threading.Lock()

    def headers(self, names: Sequence[str]) -> Mapping[str, str]:
        """What is said of a request with these messages."""
        return REPEAT if self._names and any(name in self._names for name in names) else {}

    def settled(self, names: Sequence[str]) -> None:
        if self._names:
            with self._lock:
                for name in names:
                    self._names.pop(name, None)

    def failed(self, names: Sequence[str], failure: ClientError) -> None:
        """Remember them, unless it is clear that nothing was stored."""
        if not _may_be_stored(failure):
            return
        with self._lock:
            self._names |= dict.fromkeys(names)
            while len(self._names) > NAMES_MAX:
                del self._names[next(iter(self._names))]


def _may_be_stored(failure: ClientError) -> bool:
    if isinstance(failure, ProblemError):
        is_refused = failure.status < 500 and failure.status not in AGAIN_STATUSES
        return not is_refused and failure.type not in NOTHING_STORED
    return not isinstance(failure, Unreachable) or failure.was_sent
