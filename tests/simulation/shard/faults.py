"""The faults of a schedule, drawn from its seed before it begins."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.simulation.shard.leases import SERVICE

NAMES: Final = ("a", "b", "c")
LEADER: Final = "leader"
"""Target of a fault: the replica that holds the lease then."""
FAULTS_MAX: Final = 8
PAUSES_S: Final = (0.1, 0.5, 2.0, 6.0)
"""Typical times until a process starts again, or goes on."""
VOLUME_CHANCE: Final = 0.15
"""How often a schedule has a volume that is lost; one at most, as one copy remains of two."""
LEASE_CHANCE: Final = 0.4
"""How often a cut is one from the lease."""


class Kind(StrEnum):
    """Kinds of faults."""

    KILL = "kill"
    POWER = "power"
    """The machine loses power, and with it some of what was not synced."""
    BLACKOUT = "blackout"
    """All machines lose power; the target is back later than the others."""
    PAUSE = "pause"
    """SIGSTOP, and later SIGCONT."""
    CUT = "cut"
    """Packets to the other machine do not arrive, maybe those from it neither."""
    ISOLATE = "isolate"
    HEAL = "heal"
    BREAK = "break"
    """The connections of two machines break."""
    MISDIRECT = "misdirect"
    """The leader is stopped for longer than its lease lasts. As it goes on, connections of the
    target arrive at it, as by an outdated address."""
    DOUBT = "doubt"
    """The next change of the replicas in sync has no reply, and a replica that it adds ends; it
    starts again once the others go on without it."""
    RELEASE = "release"
    """A graceful stop."""
    LOSE_VOLUME = "lose-volume"


WEIGHTS: Final = {
    Kind.KILL: 4,
    Kind.POWER: 4,
    Kind.BLACKOUT: 2,
    Kind.PAUSE: 4,
    Kind.CUT: 6,
    Kind.ISOLATE: 3,
    Kind.HEAL: 5,
    Kind.BREAK: 2,
    Kind.MISDIRECT: 4,
    Kind.DOUBT: 2,
    Kind.RELEASE: 2,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    at: float
    """True time in seconds."""
    kind: Kind
    target: str
    other: str
    seconds: float
    """Time until the process starts again, or goes on."""

    def __str__(self) -> str:
        return f"{self.at:6.3f} s {self.kind} {self.target} {self.other} {self.seconds:.2f}"


def draw(rng: random.Random, count: int, begin: float, end: float) -> list[Fault]:
    """Draw the faults of a schedule, in their order."""
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    found = [
        _draw_one(rng, rng.uniform(begin, end), rng.choices(kinds, weights)[0])
        for _ in range(count)
    ]
    if rng.random() < VOLUME_CHANCE:
        found.append(_draw_one(rng, rng.uniform(begin, end), Kind.LOSE_VOLUME))
    return sorted(found, key=lambda each: each.at)


def _draw_one(rng: random.Random, at: float, kind: Kind) -> Fault:
    target, other = rng.sample([*NAMES, LEADER], 2)
    if kind is Kind.BLACKOUT:
        target = LEADER
    if kind is Kind.MISDIRECT:
        target, other = rng.choice(NAMES), LEADER
    if kind is Kind.CUT and rng.random() < LEASE_CHANCE:
        other = SERVICE
    return Fault(at, kind, target, other, rng.choice(PAUSES_S) * (0.5 + rng.random()))
