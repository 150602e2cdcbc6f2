"""Producers that can be called back: leases, renewed as RocketMQ's producers renew theirs.

A shard keeps them in memory for the coordinators: after a restart each is known again once it has
renewed. A registration belongs to the application that knows its secret: no other one renews,
replaces or removes it while its lease lasts. Used on the event loop only.
"""

from __future__ import annotations

import heapq
import hmac
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
OUTDATED_MIN: Final = 1_000
"""Number of times that are kept before outdated ones are removed."""


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
    client: str
    """The address that registered it."""
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


class _Times:
    """Times of producers, the next one first; a time that a producer no longer has is outdated."""

    def __init__(self, is_outdated: Callable[[float, Producer], bool]) -> None:
        self._is_outdated = is_outdated
        self._heap: list[tuple[float, int, Producer]] = []
        self._ticket = itertools.count()
        self._prune_at = OUTDATED_MIN

    def add(self, at: float, producer: Producer) -> None:
        """Add a time of a producer."""
        heapq.heappush(self._heap, (at, next(self._ticket), producer))
        if len(self._heap) >= self._prune_at:
            self._heap = [each for each in self._heap if not self._is_outdated(each[0], each[2])]
            heapq.heapify(self._heap)
            self._prune_at = max(OUTDATED_MIN, 2 * len(self._heap))

    def next(self) -> tuple[float, Producer] | None:
        """The next time that is not outdated, and its producer."""
        heap = self._heap
        while heap and self._is_outdated(heap[0][0], heap[0][2]):
            heapq.heappop(heap)
        return (heap[0][0], heap[0][2]) if heap else None


class Producers:
    """All registered producers. Each call costs the same however many there are."""

    def __init__(self, clock: Callable[[], float], client_share: int = 100) -> None:
        """``client_share`` is the share of one client in percent."""
        self._clock = clock
        self._groups: dict[str, dict[str, Producer]] = {}
        self._count = 0
        self._client_max = max(1, PRODUCERS_MAX * client_share // 100)
        self._by_client = Counter[str]()
        self._lapses = _Times(lambda at, each: each.until != at or not self._is_known(each))
        self._rests = _Times(
            lambda at, each: (
                each.resting_until != at or at <= self._clock() or not self._is_known(each)
            )
        )

    def register(
        self,
        group: str,
        name: str,
        target: Target,
        secret: str,
        lease_s: float,
        *,
        client: str | None = None,
    ) -> Producer:
        """Make or renew a registration. A producer that did not answer stays at rest while its
        address stays the same. ``client`` is the address that registers it: by default the
        producer's.

        Raises Problem: 503 for one too many, 429 above the client's share, 409 for that of another
        application.
        """
        present = self._owned(group, name, secret)
        until = self._clock() + lease_s
        if present is not None and present.target == target:
            present.until = until
            self._lapses.add(until, present)
            return present
        known = self._groups.get(group, {})
        if present is None:
            if len(known) >= GROUP_MAX or self._count >= PRODUCERS_MAX:
                detail = f"group {group} has too many producers; remove some"
                raise Problem(problems.OVERLOADED, detail)
            self._require_share(client or target.address)
        else:
            self._forget(present)
        made = Producer(group, name, target, secret, client or target.address, until)
        self._count += 1
        self._by_client[made.client] += 1
        self._groups.setdefault(group, {})[name] = made
        self._lapses.add(until, made)
        return made

    def remove(self, group: str, name: str, secret: str | None = None) -> bool:
        """Remove a registration; return whether it existed. Without a ``secret``, whosever it is.

        Raises Problem (409) for that of another application.
        """
        found = self.find(group, name) if secret is None else self._owned(group, name, secret)
        if found is not None:
            self._forget(found)
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

    def able_groups(self, groups: Iterable[str]) -> list[str]:
        """Those of some groups that have a producer that may be called now."""
        self._expire()
        return [group for group in groups if group in self._groups and self.able(group)]

    def rest_s(self, group: str | None = None) -> float | None:
        """Seconds until the next producer of a group (None: of any) may be called again; None: none
        is at rest."""
        now = self._clock()
        if group is None:
            first = self._rests.next()
            return None if first is None else first[0] - now
        known = self._groups.get(group, {}).values()
        left = [each.resting_until - now for each in known if each.resting_until > now]
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
        self._rests.add(producer.resting_until, producer)
        producer.failures = min(producer.failures + 1, 10)
        producer.trouble = why

    def answered(self, producer: Producer) -> None:
        """A call was answered: the producer comes last in its group."""
        producer.resting_until, producer.failures, producer.trouble = 0.0, 0, None
        if self._is_known(producer):
            known = self._groups[producer.group]
            known[producer.name] = known.pop(producer.name)

    def _owned(self, group: str, name: str, secret: str) -> Producer | None:
        """A registered producer. Raises Problem (409) unless it was registered with ``secret``."""
        found = self.find(group, name)
        if found is None or hmac.compare_digest(found.secret.encode(), secret.encode()):
            return found
        left_s = found.until - self._clock()
        raise Problem(
            problems.PRODUCER_TAKEN,
            f"{name} of group {group} is registered with another secret for {left_s:.0f} s more;"
            " send the secret of that registration, or use another name",
        )

    def _require_share(self, client: str) -> None:
        if self._by_client[client] >= self._client_max:
            raise Problem(
                problems.CLIENT_OVER_SHARE,
                f"{client} has registered its share of {self._client_max} producers; remove some",
            )

    def _is_known(self, producer: Producer) -> bool:
        return self._groups.get(producer.group, {}).get(producer.name) is producer

    def _forget(self, producer: Producer) -> None:
        known = self._groups[producer.group]
        del known[producer.name]
        self._count -= 1
        self._by_client[producer.client] -= 1
        if not self._by_client[producer.client]:
            del self._by_client[producer.client]
        if not known:
            del self._groups[producer.group]

    def _expire(self) -> None:
        """Forget the producers whose leases are over."""
        now = self._clock()
        while (first := self._lapses.next()) is not None and first[0] <= now:
            self._forget(first[1])
