"""Leader election by a shared lease: a record that is replaced only if it is still as it was read.

The algorithm is that of Kubernetes' own components. A candidate that sees the record unchanged for
its whole duration takes it. A leader that could not renew it for RENEW_DEADLINE_S, which is less,
stops leading. Each candidate measures time by its own monotonic clock; wall clocks may differ or be
stepped. A leader may be suspended and resume after its lease was taken: the epoch fences it. Each
epoch is one write of the record, so no two candidates have the same, and a later one is higher.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

DURATION_S: Final = 8
"""A lease expires when its record did not change for this time."""
RENEW_DEADLINE_S: Final = 5.0
"""A leader that could not renew for this time stops leading, well before DURATION_S ends."""
RETRY_S: Final = 1.0
EPOCH_MAX: Final = 2**31 - 1
"""leaseTransitions is an int32."""
GIVEN_UP_S: Final = 3.0
"""Seconds for which a candidate that gave the lead up does not take it again."""


class ElectionError(Exception):
    """Base of the errors of an election."""


class NotLeading(ElectionError):
    """This candidate does not lead."""


class LeaseConflict(ElectionError):
    """Another candidate wrote the record after it was read."""


class LeaseUnavailable(ElectionError):
    """The record cannot be read or written; the write may have taken effect."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The shared record that names the leader."""

    holder: str
    """Identity of the leader; empty when the leader gave the lease back."""
    url: str
    """Address of the holder."""
    epoch: int
    """leaseTransitions: grows when the holder changes, or requests the next epoch of a fence."""
    duration_s: int = DURATION_S
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


class Candidate:
    """A process that may lead. Thread-safe."""

    def __init__(
        self, store: LeaseStore, identity: str, url: str, clock: Callable[[], float]
    ) -> None:
        """``identity`` is unique to this process; ``clock`` returns monotonic seconds."""
        self._store = store
        self._identity = identity
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Lease | None = None
        self._seen_at = clock()
        """Time at which the record was first seen with its present content."""
        self._leads_until = -1.0
        self._stands_at = -math.inf
        """Time before which this candidate does not take the lease."""
        self._term = 0
        self._trouble = "no leader is known yet"

    def step(self) -> float:
        """Renew the lease, or take it if it expired. Returns the seconds until the next step."""
        with self._lock:
            try:
                if not self._leads():
                    self._look()
                if self._may_write():
                    self._write(self._held_by_us())
            except LeaseConflict:
                self._leads_until = -1.0
                self._trouble = "the lease was written by another candidate"
            except LeaseUnavailable as error:
                self._trouble = str(error)
        return RETRY_S

    def give_back(self) -> None:
        """Stop leading and release the lease, so that another candidate can take it at once."""
        with self._lock:
            self._give_back()

    def give_up(self, why: str) -> None:
        """Stop leading for as long as another candidate needs to take the lease."""
        with self._lock:
            given_up, pause_s = f"the lead was given up: {why}", GIVEN_UP_S
            try:
                self._give_back()
            except ElectionError:  # the others wait until the lease expires
                pause_s += DURATION_S
            self._trouble = given_up
            self._stands_at = self._clock() + pause_s

    def term(self) -> int:
        """Return the number of the present term; each term has its own. Raises NotLeading."""
        if not self._leads():
            raise NotLeading(self._why_not())
        return self._term

    def next_epoch(self, present: int) -> int:
        """Take an epoch above ``present`` that no other candidate has or had. Raises NotLeading."""
        with self._lock:
            if not self._leads() or self._seen is None:
                raise NotLeading(self._why_not())
            epoch = max(self._seen.epoch, present) + 1
            if epoch > EPOCH_MAX:
                raise NotLeading(f"a fence stands at {present}; a lease ends at {EPOCH_MAX}")
            try:
                self._write(replace(self._seen, epoch=epoch))
            except ElectionError as error:
                raise NotLeading(f"the lease could not be written: {error}") from error
            return epoch

    def leader_url(self) -> str | None:
        """Return the address of the leader; None if it is unknown."""
        seen = self._seen
        return seen.url or None if seen is not None and seen.holder else None

    def _give_back(self) -> None:
        leads, self._leads_until = self._leads(), -1.0
        if leads and self._seen is not None:
            self._write(replace(self._seen, holder="", url=""))
            self._leads_until = -1.0

    def _leads(self) -> bool:
        return self._clock() < self._leads_until

    def _why_not(self) -> str:
        seen = self._seen
        if seen is not None and seen.holder and seen.holder != self._identity:
            return f"another candidate leads ({seen.holder})"
        return self._trouble

    def _look(self) -> None:
        found = self._store.read()
        if found != self._seen:
            self._seen, self._seen_at = found, self._clock()

    def _may_write(self) -> bool:
        seen = self._seen
        if self._clock() < self._stands_at:
            return False
        if seen is None or seen.holder in ("", self._identity):
            return True
        return self._clock() >= self._seen_at + seen.duration_s

    def _held_by_us(self) -> Lease:
        seen = self._seen or Lease("", "", 0)
        taken = seen.holder != self._identity
        epoch = seen.epoch + 1 if taken else seen.epoch
        return Lease(self._identity, self._url, epoch, version=seen.version)

    def _write(self, lease: Lease) -> None:
        """Write the record. The lease counts from before the call: it may take effect early."""
        requested_at = self._clock()
        led = self._leads()
        self._seen = self._store.write(lease)
        self._seen_at = self._clock()
        if not led:
            self._term += 1
        self._leads_until = requested_at + RENEW_DEADLINE_S
