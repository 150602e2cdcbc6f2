"""The state of one group in one queue: which messages are leased, waiting or acknowledged.

A pure value: no clock, no files, no messages. ``engine`` reads the messages and saves the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

PENDING_MAX: Final = 2_048
"""Maximum number of messages of one group and queue that are delivered and not acknowledged. Their
offsets and attempts are saved, about 20 bytes each."""

OUTDATED_MAX: Final = 1_024
"""Number of outdated heap entries of one queue above which the heaps are built anew: clients may
extend and release leases at will."""

NO_LEASE: Final = 0
"""The id in place of a lease that there is not."""

HELD_BACK: Final = -1
"""Lease id of the first message of an ordered queue, once it was returned: it expires with the
message's delay."""


class LeaseState(StrEnum):
    """The state of a message, as the holder of a lease sees it."""

    HELD = "held"
    """The lease is the present one, or has expired and the message was not delivered again."""
    ACKNOWLEDGED = "acknowledged"
    """The message needs no delivery any more."""
    LOST = "lost"
    """The message was delivered again, to another lease."""
    UNKNOWN = "unknown"
    """The group has not received this message since it was set to an earlier offset."""


@dataclass(slots=True, eq=False)
class Lease:
    """A lease of messages that were delivered together. Ordered by the deadlines."""

    id: int
    deadline: float
    """Monotonic seconds: when it expires."""
    offsets: Sequence[int]
    held: int
    """Number of these messages whose present lease this is."""

    def __lt__(self, other: Lease) -> bool:
        return self.deadline < other.deadline


class Pending(NamedTuple):
    """A message that was delivered, and is not acknowledged. Those of a batch share one."""

    attempts: int
    """How often it was delivered, without deliveries that ended before the consumer could fail: one
    that was given back unused, and one that a restart of the writer cut short."""
    lease: Lease | None
    """The present lease; None while it waits to be delivered again."""


class QueueLeases:
    """One group in one queue. For one thread at a time.

    Each offset below ``next`` is pending or acknowledged; ``next`` and all behind it were never
    looked at.
    """

    def __init__(self, start: int, following: int | None = None) -> None:
        """``start`` is the group's offset, ``following`` the first offset never looked at."""
        self.next = start if following is None else following
        self._pending: dict[int, Pending] = {}
        """By offset, in the order of offsets: only ``lease`` of a new message adds one."""
        self._waiting: list[int] = []
        """A heap of offsets to deliver again; one that is leased or acknowledged is skipped."""
        self._leases: list[Lease] = []
        """A heap by deadline; one that holds no message any more is skipped."""
        self.committed: int | None = start
        """The group's offset as it was last written or compared; None for a group without one."""
        self.is_changed = False
        """Whether the state differs from the one that was saved."""
        self.lost = 0
        """Number of messages that expired before they were acknowledged, and are not counted."""

    @property
    def floor(self) -> int:
        """The lowest offset that is not acknowledged."""
        return next(iter(self._pending), self.next)

    @property
    def pending_count(self) -> int:
        """Number of messages that are delivered and not acknowledged."""
        return len(self._pending)

    @property
    def done_count(self) -> int:
        """Number of messages from ``floor`` on that need no delivery any more."""
        return self.next - self.floor - len(self._pending)

    def count_leased(self, now: float) -> int:
        """Number of messages whose lease has not expired."""
        leases = (each.lease for each in self._pending.values())
        return sum(
            each is not None and each.id != HELD_BACK and each.deadline > now for each in leases
        )

    @property
    def is_in_use(self) -> bool:
        """Whether the first pending message is leased to a consumer."""
        return self._first_lease not in (NO_LEASE, HELD_BACK)

    @property
    def _first_lease(self) -> int:
        first = next(iter(self._pending.values()), None)
        return NO_LEASE if first is None or first.lease is None else first.lease.id

    @property
    def room(self) -> int:
        """Number of further messages that may be delivered now."""
        return PENDING_MAX - len(self._pending)

    @property
    def next_deadline(self) -> float:
        """Monotonic seconds: when the next lease expires; infinite without leases."""
        leases = self._leases
        while leases and not leases[0].held:
            heappop(leases)
        return leases[0].deadline if leases else inf

    def restore(self, saved: Iterable[tuple[int, int]]) -> None:
        """Add saved pending offsets with their attempts, in order; they wait for delivery."""
        for offset, attempts in saved:
            self._pending[offset] = Pending(attempts, None)
            self._waiting.append(offset)

    def saved(self) -> list[tuple[int, int]]:
        """The pending offsets with their attempts, in order. A delivery that lasts is not counted:
        it is no failure if the writer ends before it does."""
        return [(offset, _failures(each)) for offset, each in self._pending.items()]

    def expire(self, now: float) -> None:
        """End the leases whose deadline has passed."""
        while self.next_deadline <= now:
            expired = heappop(self._leases)
            for offset in expired.offsets:
                known = self._pending.get(offset)
                if known is not None and known.lease is expired:
                    self._pending[offset] = Pending(known.attempts, None)
                    heappush(self._waiting, offset)
                    self.is_changed = True

    def waiting(self, count: int) -> Sequence[int]:
        """The first offsets that wait to be delivered again, at most ``count``, in order."""
        found: list[int] = []
        while self._waiting and len(found) < count:
            offset = heappop(self._waiting)
            known = self._pending.get(offset)
            if known is not None and known.lease is None and offset not in found[-1:]:
                found.append(offset)
        for offset in found:
            heappush(self._waiting, offset)
        return found

    def attempts(self, offset: int) -> int:
        """How often a message was delivered; 0 for one that is not pending."""
        known = self._pending.get(offset)
        return 0 if known is None else known.attempts

    def pass_to(self, offset: int) -> None:
        """Note that nothing in front of an offset is to be delivered that is not pending."""
        if offset > self.next:
            self.next, self.is_changed = offset, True

    def lease(self, offsets: Sequence[int], lease: int, deadline: float) -> list[int]:
        """Lease messages that all wait, or are all at ``next`` or behind it, in order; return the
        attempts of each."""
        made = Lease(lease, deadline, offsets, len(offsets))
        if offsets[0] >= self.next:
            self._pending.update(dict.fromkeys(offsets, Pending(1, made)))
            self.next, found = offsets[-1] + 1, [1] * len(offsets)
        else:
            found = [self._lease_again(offset, made) for offset in offsets]
        self._add(made)
        self.is_changed = True
        return found

    def _lease_again(self, offset: int, made: Lease) -> int:
        known = self._pending[offset]
        assert known.lease is None, "one lease at a time"
        self._pending[offset] = Pending(known.attempts + 1, made)
        return known.attempts + 1

    def state_of(self, offset: int, lease: int) -> LeaseState:
        """The state of the message of a lease."""
        known = self._pending.get(offset)
        if known is None:
            return LeaseState.ACKNOWLEDGED if offset < self.next else LeaseState.UNKNOWN
        is_held = known.lease is None or known.lease.id == lease
        return LeaseState.HELD if is_held else LeaseState.LOST

    def acknowledge(self, offset: int) -> None:
        """Note that a pending message needs no delivery any more."""
        known = self._pending.pop(offset, None)
        if known is not None:
            _end_lease(known)
            self.is_changed = True

    def acknowledge_held(
        self, offsets: Sequence[int], leases: Sequence[int]
    ) -> dict[int, LeaseState]:
        """Acknowledge messages by offset and lease where ``state_of`` is HELD; return the other
        states, by the place of the message."""
        pending, others = self._pending, dict[int, LeaseState]()
        for at, offset in enumerate(offsets):
            known = pending.get(offset)
            if known is None or ((held := known.lease) and held.id != leases[at]):
                others[at] = self.state_of(offset, leases[at])
                continue
            del pending[offset]
            if held:
                held.held -= 1
            self.is_changed = True
        return others

    def release(self, offset: int) -> None:
        """End the lease of a pending message: it waits to be delivered again."""
        known = self._pending[offset]
        if known.lease is not None:
            _end_lease(known)
            self._pending[offset] = Pending(known.attempts, None)
            heappush(self._waiting, offset)
            self._drop_outdated()
            self.is_changed = True

    def give_back(self, offset: int) -> None:
        """End the lease of a message that its consumer has not used: it waits to be delivered
        again, and the delivery counts as no attempt."""
        known = self._pending[offset]
        if known.lease is not None and known.lease.id != HELD_BACK:
            self._pending[offset] = known._replace(attempts=known.attempts - 1)
            self.release(offset)

    # an ordered queue: its messages are delivered and acknowledged one after the other

    def begin_batch(self) -> bool:
        """Prepare the next delivery of an ordered queue; return whether its first message is free.

        Messages behind the first pending one are not pending any more: they follow it again.
        """
        if self._first_lease != NO_LEASE:
            return False
        for offset in list(self._pending)[1:]:
            _end_lease(self._pending.pop(offset))
        if self._pending and self.next != self.floor + 1:
            self.next, self.is_changed = self.floor + 1, True
        return True

    def hold_back(self, deadline: float) -> None:
        """Deliver the first message of an ordered queue again after a deadline."""
        self.extend(self.floor, HELD_BACK, deadline)

    def release_first(self, *, is_failure: bool) -> None:
        """End the lease of the first pending message, unless it is held back."""
        if self.is_in_use and is_failure:
            self.release(self.floor)
        elif self.is_in_use:
            self.undo(self.floor, self._first_lease)

    def undo(self, offset: int, lease: int) -> None:
        """Undo a lease whose message reached no consumer, unless the message was leased again."""
        known = self._pending.get(offset)
        if known is not None and (known.lease is None or known.lease.id == lease):
            self._pending[offset] = known._replace(attempts=known.attempts - 1)
            self.is_changed = True
            self.release(offset)

    def extend(self, offset: int, lease: int, deadline: float) -> None:
        """Lease a held message until another deadline."""
        known, made = self._pending[offset], Lease(lease, deadline, (offset,), 1)
        _end_lease(known)
        self._pending[offset] = Pending(known.attempts, made)
        self._add(made)

    def lose(self, offset: int) -> None:
        """Note that a pending message expired."""
        self.lost += offset in self._pending
        self.acknowledge(offset)

    def lose_below(self, offset: int) -> int:
        """Note that all messages in front of an offset expired; return how many of them were not
        acknowledged."""
        unseen = max(0, offset - self.next)
        lost = self.drop_below(offset) + unseen
        self.lost += lost
        return lost

    def drop_below(self, offset: int) -> int:
        """Forget messages in front of an offset; return how many were pending."""
        gone = [each for each in self._pending if each < offset]
        for each in gone:
            _end_lease(self._pending.pop(each))
        self.pass_to(offset)
        self.is_changed = self.is_changed or bool(gone)
        return len(gone)

    def _add(self, lease: Lease) -> None:
        heappush(self._leases, lease)
        self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Bound the heaps by the pending messages."""
        if len(self._leases) + len(self._waiting) <= 2 * len(self._pending) + OUTDATED_MAX:
            return
        pending = self._pending.items()
        self._waiting = [offset for offset, each in pending if each.lease is None]
        self._leases = [each for each in self._leases if each.held]
        heapify(self._leases)


def _failures(pending: Pending) -> int:
    lasts = pending.lease is not None and pending.lease.id != HELD_BACK
    return pending.attempts - lasts


def _end_lease(pending: Pending) -> None:
    """Count a message out of its lease."""
    if pending.lease is not None:
        pending.lease.held -= 1
