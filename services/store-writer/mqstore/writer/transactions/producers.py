"""Producers that can be called back: leases, renewed as RocketMQ's producers renew theirs.

A shard keeps them in memory for the coordinators: after a restart each is known again once it has
renewed. Used on the event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.service.transaction_structs import CallableProducer
from mqstore.wire import checks as wire

GROUP_MAX: Final = 100
"""Producers of one group."""
PRODUCERS_MAX: Final = 10_000
REST_MAX_S: Final = 60.0
"""Between two calls of a producer that does not answer."""


class Target(msgspec.Struct, frozen=True):
    """A callback's URL, the address that is called, and the host that its certificate names."""

    url: str
    address: str
    host: str


@dataclass(slots=True)
class Producer:
    """A producer of a group. Times are the monotonic clock's, in seconds."""

    group: str
    name: str
    target: Target
    secret: str = field(repr=False)
    until: float
    resting_until: float = 0.0
    failures: int = 0
    """Calls since the last answer."""
    trouble: str | None = None
    """Why the last call failed."""

    def as_callable(self) -> CallableProducer:
        """With all that a coordinator needs to call it, the secret included."""
        target = self.target
        return CallableProducer(
            name=self.name,
            url=target.url,
            address=target.address,
            host=target.host,
            secret=self.secret,
        )


class Producers:
    """All registered producers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, Producer]] = {}

    def register(
        self, group: str, name: str, target: Target, secret: str, lease_s: float
    ) -> Producer:
        """Make or renew a registration. A producer that did not answer stays at rest while its
        address stays the same. Raises Problem (503) for one too many."""
        self._expire()
        known = self._groups.get(group, {})
        present = known.get(name)
        if present is None and (
            len(known) >= GROUP_MAX or sum(map(len, self._groups.values())) >= PRODUCERS_MAX
        ):
            raise Problem(problems.OVERLOADED, f"group {group} has too many producers; remove some")
        until = self._clock() + lease_s
        if present is not None and present.target == target:
            present.secret, present.until = secret, until
            return present
        made = Producer(group, name, target, secret, until)
        self._groups.setdefault(group, {})[name] = made
        return made

    def remove(self, group: str, name: str) -> bool:
        """Remove a registration; return whether it existed."""
        known = self._groups.get(group, {})
        found = known.pop(name, None)
        if not known:
            self._groups.pop(group, None)
        return found is not None

    def find(self, group: str, name: str) -> Producer | None:
        """A registered producer; None where its lease has lapsed or it never registered."""
        self._expire()
        return self._groups.get(group, {}).get(name)

    def __iter__(self) -> Iterator[Producer]:
        self._expire()
        for _, known in sorted(self._groups.items()):
            yield from known.values()

    def able(self, group: str) -> list[Producer]:
        """Producers of a group that may be called now, the one that answered last at the end."""
        self._expire()
        now = self._clock()
        return [each for each in self._groups.get(group, {}).values() if each.resting_until <= now]

    def able_groups(self) -> list[str]:
        """Groups with a producer that may be called now."""
        return [group for group in list(self._groups) if self.able(group)]

    def rest_s(self, group: str | None = None) -> float | None:
        """Seconds until the next producer of a group (None: of any) may be called again; None: none
        is at rest."""
        now = self._clock()
        groups = self._groups.values() if group is None else [self._groups.get(group, {})]
        left = [
            each.resting_until - now
            for known in groups
            for each in known.values()
            if each.resting_until > now
        ]
        return min(left, default=None)

    def view(self, producer: Producer) -> wire.RegisteredProducer:
        """A registration without its secret."""
        return wire.RegisteredProducer(
            producer_group=producer.group,
            name=producer.name,
            url=producer.target.url,
            address=producer.target.address,
            expires_in=max(0.0, producer.until - self._clock()),
            failures=producer.failures,
            detail=producer.trouble,
        )

    def failed(self, producer: Producer, why: str) -> None:
        """A call failed: the producer rests for 1, 2, 4 … seconds."""
        producer.resting_until = self._clock() + min(REST_MAX_S, 2.0**producer.failures)
        producer.failures = min(producer.failures + 1, 10)
        producer.trouble = why

    def answered(self, producer: Producer) -> None:
        """A call was answered: the producer comes last in its group."""
        producer.resting_until, producer.failures, producer.trouble = 0.0, 0, None
        known = self._groups.get(producer.group, {})
        if known.get(producer.name) is producer:
            known[producer.name] = known.pop(producer.name)

    def _expire(self) -> None:
        now = self._clock()
        for group, known in list(self._groups.items()):
            for name in [each.name for each in known.values() if each.until <= now]:
                del known[name]
            if not known:
                del self._groups[group]
