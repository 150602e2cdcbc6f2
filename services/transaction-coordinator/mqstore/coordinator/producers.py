"""Producers that can be called back: leases, renewed as RocketMQ's producers renew theirs.

Only the leader knows them, in memory: after a takeover each is known again once it has renewed.
Used on the event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mqstore.coordinator.errors import CoordinatorError
from mqstore.coordinator.targets import Target

GROUP_MAX: Final = 100
"""Producers of one group."""
PRODUCERS_MAX: Final = 10_000
REST_MAX_S: Final = 60.0
"""Between two tries to reach one that does not answer."""


class TooManyProducers(CoordinatorError):
    """No more can be registered."""


@dataclass(slots=True)
class Producer:
    """One of a group. Times are the monotonic clock's, in seconds."""

    group: str
    name: str
    target: Target
    secret: str
    until: float
    resting_until: float = 0.0
    failures: int = 0
    """Since it last answered."""
    trouble: str | None = None
    """Of the last try."""


class Producers:
    """All that are registered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, Producer]] = {}

    def register(
        self, group: str, name: str, target: Target, secret: str, lease_s: float
    ) -> Producer:
        """Make or renew a registration. One that did not answer stays at rest while its address
        stays the same. Raises TooManyProducers."""
        self._expire()
        known = self._groups.get(group, {})
        present = known.get(name)
        if present is None and (
            len(known) >= GROUP_MAX or sum(map(len, self._groups.values())) >= PRODUCERS_MAX
        ):
            raise TooManyProducers(f"group {group} has too many producers; remove some")
        until = self._clock() + lease_s
        if present is not None and present.target == target:
            present.secret, present.until = secret, until
            return present
        made = Producer(group, name, target, secret, until)
        self._groups.setdefault(group, {})[name] = made
        return made

    def remove(self, group: str, name: str) -> bool:
        """Whether it was there."""
        known = self._groups.get(group, {})
        found = known.pop(name, None)
        if not known:
            self._groups.pop(group, None)
        return found is not None

    def __iter__(self) -> Iterator[Producer]:
        self._expire()
        for _, known in sorted(self._groups.items()):
            yield from known.values()

    def able(self, group: str) -> list[Producer]:
        """Those of a group that may be asked now, the one that was asked last at the end."""
        self._expire()
        now = self._clock()
        return [each for each in self._groups.get(group, {}).values() if each.resting_until <= now]

    def able_groups(self) -> list[str]:
        return [group for group in list(self._groups) if self.able(group)]

    def seconds_left(self, producer: Producer) -> float:
        return max(0.0, producer.until - self._clock())

    def failed(self, producer: Producer, why: str) -> None:
        """It is left in peace for 1, 2, 4 … seconds."""
        producer.resting_until = self._clock() + min(REST_MAX_S, 2.0**producer.failures)
        producer.failures = min(producer.failures + 1, 10)
        producer.trouble = why

    def answered(self, producer: Producer) -> None:
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
