"""The times at which producers are checked. Used by one thread at a time."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.storage.seams import Clock
from mqstore.storage.transactions.table import Transaction

TIMES_MIN: Final = 1_000
"""Number of times that are kept before outdated ones are removed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of checks; milliseconds."""

    transaction_timeout_ms: int = 6_000
    check_interval_ms: int = 60_000
    check_max: int = 15
    carry_behind: int = 10_000
    """A pending half message this far behind the queue's end is written again without a change, so
    that the part that a restart has to read stays bounded."""


class Schedule:
    """The transactions by the time of their next check, and those that are due."""

    def __init__(self, clock: Clock, rules: Rules) -> None:
        self._clock = clock
        self._rules = rules
        self._ready: dict[str, dict[str, Transaction]] = {}
        """Due for a check, by group and key, in the order in which they became due."""
        self._times: list[tuple[float, int, Transaction]] = []
        """A heap, which also holds outdated times: those that are not its transaction's
        ``due_at``."""
        self._prune_at = TIMES_MIN
        """Number of times at which outdated ones are removed: otherwise each would stay until it
        comes, and most transactions are decided long before."""
        self._ticket = itertools.count()
        self.readied = 0
        """Total number of checks that have become due."""

    def clear(self) -> None:
        """Remove all transactions."""
        self._ready.clear()
        self._times.clear()

    @property
    def next_at(self) -> float:
        """Monotonic time at which the next transaction becomes due."""
        times = self._times
        while times and times[0][2].due_at != times[0][0]:
            heapq.heappop(times)
        return times[0][0] if times else math.inf

    @property
    def waiting(self) -> int:
        """Number of due transactions. May be read from any thread."""
        return sum(len(ready) for ready in list(self._ready.values()))

    def due_groups(self) -> list[str]:
        """Groups with due transactions. May be read from any thread."""
        return [group for group, ready in list(self._ready.items()) if ready]

    def due(self, groups: Iterable[str] | None = None) -> list[Transaction]:
        """The due transactions of these producer groups, in the order of their time."""
        names = self._ready if groups is None else groups
        return [each for name in list(names) for each in self._ready.get(name, {}).values()]

    def advance(self, now: float, pending: Mapping[str, Transaction]) -> list[str]:
        """Make transactions due whose time has come; returns the keys of those checked often
        enough."""
        tired = []
        while self._times and self._times[0][0] <= now:
            due_at, _, transaction = heapq.heappop(self._times)
            key = transaction.key
            if transaction.due_at != due_at or key not in pending:
                continue
            if transaction.check_times >= self._rules.check_max:
                tired.append(key)
            else:
                self._ready.setdefault(transaction.group, {})[key] = transaction
                self.readied += 1
            transaction.due_at = math.inf
        return tired

    def begin(self, transaction: Transaction) -> None:
        """Plan the next check of a transaction that is neither planned nor due."""
        is_ready = transaction.key in self._ready.get(transaction.group, {})
        if transaction.due_at == math.inf and not is_ready:
            self._plan(transaction)

    def reschedule(self, transaction: Transaction, seconds: float | None = None) -> None:
        """Plan the next check in ``seconds`` (None: the interval), in place of the present one."""
        self.drop(transaction)
        self.postpone(
            transaction, self._rules.check_interval_ms / 1000 if seconds is None else seconds
        )

    def postpone(self, transaction: Transaction, seconds: float) -> None:
        """Plan the next check in ``seconds``."""
        transaction.due_at = self._clock.monotonic() + seconds
        heapq.heappush(self._times, (transaction.due_at, next(self._ticket), transaction))
        if len(self._times) >= self._prune_at:
            self._times = [each for each in self._times if each[2].due_at == each[0]]
            heapq.heapify(self._times)
            self._prune_at = max(TIMES_MIN, 2 * len(self._times))

    def drop(self, transaction: Transaction) -> None:
        """Plan no further check."""
        transaction.due_at = math.inf
        ready = self._ready.get(transaction.group)
        if ready is not None:
            ready.pop(transaction.key, None)
            if not ready:
                del self._ready[transaction.group]

    def _plan(self, transaction: Transaction) -> None:
        half = transaction.halves[-1]
        wall = self._clock.now_ms()
        if transaction.check_times:
            due_ms = half.store_timestamp_ms + self._rules.check_interval_ms
            longest = self._rules.check_interval_ms
        else:
            given = half.immunity_ms
            longest = self._rules.transaction_timeout_ms if given is None else given
            due_ms = transaction.born_ms + longest
        # A clock step back delays no check by more than the whole time.
        self.postpone(transaction, min(max(0, due_ms - wall), longest) / 1000)
