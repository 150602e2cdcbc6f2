"""When a failed request is retried, and whether it may have taken effect. Does no I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import SystemRandom
from typing import Final

from mqstore.client.errors import ClientError, ProblemError, Unreachable

RETRY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""Statuses of replies that a retry may change."""
NOTHING_STORED: Final = frozenset(
    {"disk-full", "disk-refuses", "page-cache-busy", "store-not-writable", "store-read-only"}
    | {"writes-paused", "overloaded", "client-over-share", "store-not-ready"}
)
"""Problems that state that nothing was done."""
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
"""The longest pause that doubling leads to. A client goes on within about this time of the end of
an outage; 1,000 clients that wait send 500 requests a second."""
REQUESTED_PAUSE_MAX_S: Final = 30.0
"""The longest pause that a service can request."""
DOUBLINGS_MAX: Final = 30
"""Attempts after which a pause is not doubled: a larger number has no float."""
_RANDOM: Final = SystemRandom()


def is_transient(failure: ClientError | None) -> bool:
    """Return whether a retry may succeed; None is a connection that the service ended."""
    if isinstance(failure, ProblemError):
        return failure.status in RETRY_STATUSES
    return failure is None or isinstance(failure, Unreachable)


def pause_s(attempts: int, first_s: float) -> float:
    """Return the seconds until the next attempt: doubled each time, with up to 25 % jitter.

    ``first_s`` may be longer than ``PAUSE_MAX_S``; then it is the pause of every attempt.
    """
    first_s = min(first_s, REQUESTED_PAUSE_MAX_S)
    pause: float = min(first_s * 2 ** min(attempts, DOUBLINGS_MAX), max(first_s, PAUSE_MAX_S))
    return pause * (1 + _RANDOM.random() / 4)


class RetryBudget:
    """The time for retries of one request."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + patience_s
        self._attempts = 0

    def pause_s(self, failure: ClientError) -> float:
        """Return the seconds until the next attempt. Raises ``failure`` if it is final, or if the
        time is over."""
        requested = failure.retry_after_s if isinstance(failure, ProblemError) else None
        pause = pause_s(self._attempts, PAUSE_S) if requested is None else pause_s(0, requested)
        if not is_transient(failure) or self._clock() + pause > self._until:
            raise failure
        self._attempts += 1
        return pause


def may_be_stored(failure: ClientError) -> bool:
    """Return whether a request that failed with ``failure`` may have taken effect."""
    if isinstance(failure, ProblemError):
        is_refused = failure.status < 500 and failure.status not in RETRY_STATUSES
        was_sent = failure.problem.get("sent") is not False
        return not is_refused and failure.type not in NOTHING_STORED and was_sent
    return not isinstance(failure, Unreachable) or failure.was_sent


def writable_shard(failure: ClientError) -> int | None:
    """Return the shard that accepts messages instead, if the problem names one."""
    place = failure.problem.get("writable") if isinstance(failure, ProblemError) else None
    shard = place.get("shard") if isinstance(place, dict) else None
    return shard if isinstance(shard, int) and shard >= 0 else None
