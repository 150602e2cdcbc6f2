"""Who leads, by a lease that everybody sees: a record that is written only as it was read.

As Kubernetes' own components do it: whoever sees the record unchanged for its whole duration takes
it; whoever could not renew it for a shorter while leads no more. Only elapsed time counts, each
candidate's own: clocks may be stepped, or differ. Against candidates that stand still and wake up
nothing helps but epochs: each is one write of the record, so no two candidates ever have the same,
and a later one is higher.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

DURATION_S: Final = 8
"""A record that did not change for so long is nobody's any more."""
RENEW_DEADLINE_S: Final = 5.0
"""A leader that could not renew for so long leads no more; well before others may take over."""
RETRY_S: Final = 1.0
EPOCH_MAX: Final = 2**31 - 1
"""leaseTransitions is an int32."""
GIVEN_UP_S: Final = 3.0
"""Seconds for which a candidate that gave the lead up leaves it to the others."""


class ElectionError(Exception):
    """Base of the errors of an election."""


class NotLeading(ElectionError):
    """Another candidate leads, or none that is known."""


class LeaseConflict(ElectionError):
    """The record was written by somebody else since it was read."""


class LeaseUnavailable(ElectionError):
    """The record cannot be read or written; a write may have been done all the same."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The record."""

    holder: str
    """"" when it was given back."""
    url: str
    """Where the holder is reached."""
    epoch: int
    """leaseTransitions: grows whenever the holder changes, or asks for a fence's next epoch."""
    duration_s: int = DURATION_S
    version: str = ""
    """Of the record as it was read, in whatever form its store has; "" when it is to be made."""


class LeaseStore(Protocol):
    """Where the record is kept. Each call takes a second or two at most."""

    def read(self) -> Lease | None:
        """None when there is none yet. Raises LeaseUnavailable."""

    def write(self, lease: Lease) -> Lease:
        """Replace the record that has ``lease.version``; the new one, which is another version even
        when nothing else changed. Raises LeaseConflict, LeaseUnavailable."""


class Candidate:
    """One of those who may lead. Every method may be called from any thread."""

    def __init__(
        self, store: LeaseStore, identity: str, url: str, clock: Callable[[], float]
    ) -> None:
        """``identity`` is this process's own; ``clock`` gives seconds that only grow."""
        self._store = store
        self._identity = identity
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Lease | None = None
        self._seen_at = clock()
        """When the record was first seen as it is."""
        self._leads_until = -1.0
        self._stands_at = -math.inf
        """Before, the record is left to others."""
        self._term = 0
        self._trouble = "no leader is known yet"

    def step(self) -> float:
        """Renew the record, or look at it and take it; seconds until the next step."""
        with self._lock:
            try:
                if not self._leads():
                    self._look()
                if self._may_write():
                    self._write(self._held_by_us())
            except LeaseConflict:
                self._leads_until = -1.0
                self._trouble = "the lease was written by somebody else"
            except LeaseUnavailable as error:
                self._trouble = str(error)
        return RETRY_S

    def give_back(self) -> None:
        """Lead no more, so that another one need not wait for the record to grow old."""
        with self._lock:
            self._give_back()

    def give_up(self, why: str) -> None:
        """Give the lead up for as long as another candidate needs to take it."""
        with self._lock:
            given_up, pause_s = f"the lead was given up: {why}", GIVEN_UP_S
            try:
                self._give_back()
            except ElectionError:  # others wait for the record to grow old
                pause_s += DURATION_S
            self._trouble = given_up
            self._stands_at = self._clock() + pause_s

    def term(self) -> int:
        """Number of the present time in the lead; each has its own. Raises NotLeading."""
        if not self._leads():
            raise NotLeading(self._why_not())
        return self._term

    def next_epoch(self, present: int) -> int:
        """An epoch above ``present`` that no other candidate has, or had. Raises NotLeading."""
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
        """Where the leader is reached, as far as known."""
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
        """What was asked for before it may have been granted then, so time counts from there."""
        asked_at = self._clock()
        led = self._leads()
        self._seen = self._store.write(lease)
        self._seen_at = self._clock()
        if not led:
            self._term += 1
        self._leads_until = asked_at + RENEW_DEADLINE_S
