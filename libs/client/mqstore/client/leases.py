"""The leases of one consumer: the messages that it holds, and what must be sent about them.

Does no input or output. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqstore.client import consumer_calls
from mqstore.client.requests import Call
from mqstore.wire.consumers import LeasedMessage, ReceiptResults, ReceiptStatus
from mqstore.wire.limits import COUNT_MAX

RENEWED_AFTER: Final = 0.5
"""Part of a lease after which it is renewed."""
_LOST: Final = (ReceiptStatus.LOST, ReceiptStatus.UNKNOWN, ReceiptStatus.STALE)
_AGAIN: Final = (ReceiptStatus.UNREACHABLE, ReceiptStatus.EARLY)


class Outcome(NamedTuple):
    """The end of a message: acknowledged (no level), or returned with a level or a delay, and a
    reason."""

    delay_level: int | None = None
    reason: str = ""
    delay_s: float | None = None


class Release(NamedTuple):
    """A message that the consumer did not handle: another one may have it at once."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """One request about some receipts. ``what`` None: their leases are renewed."""

    what: Outcome | Release | None
    receipts: tuple[str, ...]

    def call(self, group: str, lease_s: float) -> Call[ReceiptResults]:
        """Return the request."""
        match self.what:
            case None:
                return consumer_calls.extend(group, self.receipts, invisible_s=lease_s)
            case Release():
                return consumer_calls.extend(group, self.receipts, invisible_s=0.0)
            case Outcome(None, _, _):
                return consumer_calls.acknowledge(group, self.receipts)
            case Outcome(delay_level, reason, delay_s):
                return consumer_calls.give_back(
                    group,
                    self.receipts,
                    delay_level=delay_level or 0,
                    delay_s=delay_s,
                    reason=reason,
                )


@dataclass(slots=True)
class _Lease:
    renew_at: float
    until: float
    """When it is renewed no more."""


class Leases:
    """The leases that one consumer holds. Not thread-safe.

    A lease is renewed when half of it has passed, for at most ``handle_max_s`` seconds in all: the
    message of a consumer that hangs goes to another one.
    """

    def __init__(
        self, lease_s: float, handle_max_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_s = lease_s
        self._handle_max_s = handle_max_s
        self._clock = clock
        self._held: dict[str, _Lease] = {}
        self._due: dict[Outcome | Release, list[str]] = {}
        self.due = 0
        """Number of messages of which the service must be sent what became."""

    def __len__(self) -> int:
        """Return the number of messages that are held: neither settled nor lost."""
        return len(self._held)

    def __contains__(self, receipt: str) -> bool:
        """Whether the message of a receipt is held."""
        return receipt in self._held

    def add(self, messages: Iterable[LeasedMessage]) -> None:
        """Hold messages that were received now."""
        now = self._clock()
        for each in messages:
            self._held[each.receipt] = _Lease(
                now + self._lease_s * RENEWED_AFTER, now + self._handle_max_s
            )

    def forget(self, receipts: Iterable[str]) -> None:
        """Hold messages no more that the service will deliver again."""
        for receipt in receipts:
            self._held.pop(receipt, None)

    def release_all(self) -> None:
        """Note that no message that is held will be handled."""
        for receipt in list(self._held):
            self.settle(receipt, Release())

    def settle(self, receipt: str, what: Outcome | Release) -> bool:
        """Note what became of a message; False for one that is not held: settled, or lost."""
        if self._held.pop(receipt, None) is None:
            return False
        self._due.setdefault(what, []).append(receipt)
        self.due += 1
        return True

    def wait_s(self) -> float | None:
        """Return the seconds until a lease must be renewed; None if none is to be."""
        first = min((each.renew_at for each in self._held.values()), default=None)
        return None if first is None else max(0.0, first - self._clock())

    def take(self) -> list[Settlement]:
        """Take the requests that are due now: acknowledgements, releases, returns. In an ordered
        queue a message may be returned once those before it are acknowledged."""
        due, self._due, self.due = self._due, {}, 0
        found: list[Settlement] = []
        in_order = sorted(due.items(), key=lambda each: _rank(each[0]))
        for what, receipts in [*in_order, (None, self._renewals())]:
            found += [
                Settlement(what, tuple(receipts[first : first + COUNT_MAX]))
                for first in range(0, len(receipts), COUNT_MAX)
            ]
        return found

    def _renewals(self) -> list[str]:
        now = self._clock()
        found = []
        for receipt, lease in list(self._held.items()):
            if lease.renew_at > now:
                continue
            if lease.until <= now:
                del self._held[receipt]
                continue
            lease.renew_at = now + self._lease_s * RENEWED_AFTER
            found.append(receipt)
        return found

    def note(self, sent: Settlement, reply: ReceiptResults) -> tuple[int, int]:
        """Note the results of a request; returns how many leases were lost to other consumers, and
        how many receipts are due again, as their shard could not be reached, or an earlier message
        of an ordered queue is not acknowledged."""
        statuses = {each.receipt: each.status for each in reply.results}
        again = [each for each in sent.receipts if statuses.get(each) in _AGAIN]
        lost = [each for each, status in statuses.items() if status in _LOST]
        for each in lost:
            self._held.pop(each, None)
        self.repeat(sent.what, again)
        return len(lost), len(again)

    def repeat(self, what: Outcome | Release | None, receipts: Sequence[str]) -> None:
        """Note that a request about these receipts failed: it is due again."""
        if what is not None:
            if receipts:
                self._due.setdefault(what, []).extend(receipts)
                self.due += len(receipts)
            return
        now = self._clock()
        for receipt in receipts:
            if receipt in self._held:
                self._held[receipt].renew_at = now


def _rank(what: Outcome | Release) -> int:
    return 0 if what == Outcome() else 1 if isinstance(what, Release) else 2
