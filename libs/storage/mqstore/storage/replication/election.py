"""Leader election by a shared lease: a record that is replaced only if it is still as it was read.

The algorithm is that of Kubernetes' own components, with an epoch and a set of replicas that have
all acknowledged messages. A candidate that sees the record unchanged for its whole duration takes
it, if it is in that set. A leader that could not renew it for the renewal deadline, which is less,
stops leading. Each candidate measures time by its own monotonic clock; wall clocks may differ or be
stepped. Each taking of the record begins an epoch, so no two leaders have the same, and a later one
has a higher. Nothing here waits, and all calls of the record are those of a ``LeaseStore``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, Protocol

DURATION_S: Final = 6.0
"""Default for the duration of a lease."""
EPOCH_MAX: Final = 2**31 - 1
"""leaseTransitions is an int32."""
RENEWAL_SHARE_MAX: Final = 0.75
"""Part of the duration for which a leader leads without renewal, at most: the rest covers clocks of
different rates, and the time between a check of the lead and the reply that it allows."""
RETRIES_MIN: Final = 3
"""Attempts to renew before the deadline, at least."""


class ElectionError(Exception):
    """Base of the errors of an election."""


class NotLeading(ElectionError):
    """This candidate does not lead."""


class LeaseConflict(ElectionError):
    """Another candidate wrote the record after it was read."""


class LeaseUnavailable(ElectionError):
    """The record cannot be read or written; the write may have taken effect."""


@dataclass(frozen=True, slots=True)
class Margins:
    """Times of an election in seconds; all candidates for one record have the same."""

    duration_s: float = DURATION_S
    """A lease expires when its record did not change for this time."""
    renewal_deadline_s: float = 4.0
    """A leader that could not renew for this time stops leading."""
    retry_s: float = 1.0
    """Time between two steps of a candidate."""

    def __post_init__(self) -> None:
        """Raises ValueError for times with which two candidates might lead at one time."""
        if self.renewal_deadline_s > RENEWAL_SHARE_MAX * self.duration_s:
            raise ValueError(
                f"a leader may lead for {self.renewal_deadline_s:g} s without renewal, and a lease "
                f"expires after {self.duration_s:g} s: the first may be three quarters of the "
                "second at most"
            )
        if self.retry_s * RETRIES_MIN > self.renewal_deadline_s:
            raise ValueError(
                f"a lease is renewed every {self.retry_s:g} s, and must be within "
                f"{self.renewal_deadline_s:g} s: the first may be a third of the second at most"
            )


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of a leader, for its followers and clients."""

    url: str = ""
    """URL of its store-writer."""
    log: str = ""
    """``host:port`` at which followers copy the log and the tables."""
    proves: bool = False
    """Whether the leader proves itself to its followers, who then take no other for it; leaders of
    earlier releases did not."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The shared record that names the leader."""

    holder: str
    """Name of the leader; empty when the leader released the lease."""
    epoch: int
    """leaseTransitions: grows whenever a candidate takes the lease."""
    addresses: Addresses = Addresses()
    """Those of the holder."""
    in_sync: tuple[str, ...] = ()
    """Names of the replicas that may take the lease, sorted: each has all that the leader has
    acknowledged as replicated."""
    successor: str = ""
    """Name of the replica to which the lease is handed over; empty without a hand-over."""
    former: str = ""
    """Name of the leader that released the lease; empty while there is a holder. It has all
    messages, and may take the lease again. Another replica that takes it does not wait for it."""
    duration_s: float = DURATION_S
    version: str = ""
    """Version of the record as it was read, opaque; empty if the record does not exist."""


class LeaseStore(Protocol):
    """The storage of the record. Each call takes two seconds at most."""

    def read(self) -> Lease | None:
        """Return the record; None if there is none. Raises LeaseUnavailable."""

    def write(self, lease: Lease) -> Lease:
        """Replace the record if its version is ``lease.version``; return it with its new version.

        Raises LeaseConflict, LeaseUnavailable.
        """


MayTake = Callable[[Lease | None], str | None]
"""Returns why a candidate must not take the present record, or None."""


class Candidate:
    """A replica that may lead. Thread-safe.

    Its name may be that of an earlier process, which has ended: a lease with that name is taken
    without a wait, and begins an epoch.
    """

    def __init__(
        self,
        store: LeaseStore,
        name: str,
        addresses: Addresses,
        may_take: MayTake,
        margins: Margins,
        clock: Callable[[], float],
        newest_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """``clock`` returns monotonic seconds, also of times at which the machine is suspended.
        ``newest_epoch`` returns the newest one that the replica's store knows."""
        self.name = name
        self._store = store
        self._addresses = addresses
        self._may_take = may_take
        self._margins = margins
        self._clock = clock
        self._newest_epoch = newest_epoch
        self._lock = threading.Lock()
        self._seen: Lease | None = None
        self._seen_at = clock()
        """Time at which the record was first seen with its present content."""
        self._leads_until = -math.inf
        self._is_in_doubt = True
        """Whether the record may have changed since it was seen."""
        self.trouble: str | None = "the lease was not read yet"
        """Why there was no result at the last step; None without a reason."""

    @property
    def lease(self) -> Lease | None:
        """The record as it was last seen; None if there was none."""
        return self._seen

    @property
    def leads(self) -> bool:
        """Whether this candidate leads. A check of it precedes each acknowledgement."""
        return self._clock() < self._leads_until

    @property
    def epoch(self) -> int:
        """The epoch of which this candidate is the leader. Raises NotLeading."""
        seen = self._seen
        if not self.leads or seen is None:
            raise NotLeading(self.trouble or "another replica leads")
        return seen.epoch

    def leads_in(self, epoch: int) -> bool:
        """Whether this candidate leads, and in this epoch."""
        seen = self._seen
        return self.leads and seen is not None and seen.epoch == epoch

    @property
    def is_in_doubt(self) -> bool:
        """Whether the record may have changed since it was seen, as it cannot be read."""
        return self._is_in_doubt

    @property
    def is_successor(self) -> bool:
        """Whether the lease is being handed over to this candidate."""
        return self._seen is not None and self._seen.successor == self.name

    def step(self) -> float:
        """Renew the lease, or take it if it expired. Returns the seconds until the next step."""
        with self._lock:
            try:
                self.trouble = None
                self._step()
            except LeaseConflict:
                self._note_conflict()
            except LeaseUnavailable as error:
                self._is_in_doubt, self.trouble = True, str(error)
            return self._pause_s()

    def publish(self, in_sync: Collection[str]) -> None:
        """Replace the set of replicas that may take the lease. Raises ElectionError."""
        self._update(lambda seen: replace(seen, in_sync=tuple(sorted({*in_sync, self.name}))))

    def name_successor(self, successor: str) -> None:
        """Announce the replica that is to take the lease; empty: none. Raises ElectionError."""
        self._update(lambda seen: replace(seen, successor=successor))

    def release(self) -> None:
        """Stop leading, and let the successor or another replica in sync take the lease at once.

        This replica stays in sync until another one has taken it: the others may all be dead.
        Raises ElectionError; then the lease expires.
        """
        with self._lock:
            leads, self._leads_until = self.leads, -math.inf
            if leads and self._seen is not None:
                self._is_in_doubt = True
                seen = self._seen
                released = replace(seen, holder="", addresses=Addresses(), former=self.name)
                self._seen, self._seen_at = self._store.write(released), self._clock()

    # under the lock

    def _note_conflict(self) -> None:
        """Read what was written: by another candidate, or by a call whose answer was lost."""
        self._is_in_doubt = True
        try:
            self._look()
        except LeaseUnavailable as error:
            self.trouble = str(error)

    def _step(self) -> None:
        if self._is_in_doubt or not self.leads:
            self._look()
        if self.leads:
            self._write(self._require_seen())
        elif (reason := self._why_not()) is None:
            self._write(self._taken())
        else:
            self.trouble = reason

    def _look(self) -> None:
        """Read the record; stop leading where another candidate has taken it."""
        found, held = self._store.read(), self._seen
        if found != held:
            self._seen, self._seen_at = found, self._clock()
        self._is_in_doubt = False
        is_ours = (
            found is not None
            and held is not None
            and (found.holder, found.epoch) == (self.name, held.epoch)
        )
        if not is_ours:
            self._leads_until = -math.inf

    def _why_not(self) -> str | None:
        """Return why this candidate does not take the lease now."""
        seen = self._seen
        if seen is not None:
            if seen.epoch >= EPOCH_MAX:
                return f"the lease is at the last epoch, {EPOCH_MAX}"
            expires_at = self._seen_at + max(seen.duration_s, self._margins.duration_s)
            is_free = seen.holder == self.name or (
                not seen.holder and seen.successor in ("", self.name)
            )
            if not is_free and self._clock() < expires_at:
                other = seen.holder or seen.successor
                return f"{other} leads" if seen.holder else f"the lease is kept for {other}"
        return self._may_take(seen)

    def _taken(self) -> Lease:
        """Return the lease as this candidate takes it: without the former holder among those that
        may take it, which is unavailable."""
        seen = self._seen or Lease("", 0)
        former = (seen.holder, seen.former, self.name)
        others = (name for name in seen.in_sync if name not in former)
        return Lease(
            holder=self.name,
            epoch=max(seen.epoch, self._newest_epoch()) + 1,
            addresses=self._addresses,
            in_sync=tuple(sorted([*others, self.name])),
            duration_s=self._margins.duration_s,
            version=seen.version,
        )

    def _update(self, change: Callable[[Lease], Lease]) -> None:
        with self._lock:
            if self._is_in_doubt and self.leads:
                self._look()
            if not self.leads:
                raise NotLeading(self.trouble or "another replica leads")
            try:
                self._write(change(self._require_seen()))
            except (LeaseConflict, LeaseUnavailable):
                self._is_in_doubt = True
                raise

    def _write(self, lease: Lease) -> None:
        """Write the record. The lease counts from before the call: it may take effect early."""
        requested_at = self._clock()
        self._seen = self._store.write(lease)
        self._seen_at = self._clock()
        self._leads_until = requested_at + self._margins.renewal_deadline_s

    def _require_seen(self) -> Lease:
        assert self._seen is not None
        return self._seen

    def _pause_s(self) -> float:
        """Return the time until the next step: less where a lease is about to be taken."""
        if self.is_successor and not self.leads:
            return self._margins.retry_s / 20
        seen, pause_s = self._seen, self._margins.retry_s
        if seen is not None and seen.holder and not self.leads:
            left_s = self._seen_at + seen.duration_s - self._clock()
            pause_s = min(pause_s, max(left_s, pause_s / 20))
        return pause_s
