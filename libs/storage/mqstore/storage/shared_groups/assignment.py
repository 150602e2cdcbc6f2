"""The assignment of an ordered group's queues to its members.

The numbers of queues of two members differ by at most one; an assignment moves as few queues as
that allows. Members may want different topics, as during a roll-out: then it is as even as it can
be made by moving one queue at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple


class Queue(NamedTuple):
    """A queue of one shard."""

    topic: str
    queue_id: int


def assign(
    queues: Iterable[Queue],
    wanted: Mapping[str, Collection[str]],
    before: Mapping[Queue, str],
    shard: int,
) -> dict[Queue, str]:
    """Return the member of each queue; ``wanted`` has the topics of each member.

    A queue whose topic no member wants is left out. The members with one queue more differ by
    shard: all shards together are even too.
    """
    return _Shares(sorted(queues), wanted, before, shard).even_out()


class _Shares:
    """The queues of each member, the members in the order in which they get one more."""

    def __init__(
        self,
        queues: list[Queue],
        wanted: Mapping[str, Collection[str]],
        before: Mapping[Queue, str],
        shard: int,
    ) -> None:
        self._wanted = wanted
        members = sorted(wanted)
        first = shard * (len(queues) % len(members)) % len(members) if members else 0
        self._of: dict[str, list[Queue]] = {
            name: [] for name in [*members[first:], *members[:first]]
        }
        self._rank = {name: rank for rank, name in enumerate(self._of)}
        free = [each for each in queues if not self._wants(before.get(each), each)]
        for queue in queues:
            if self._wants(before.get(queue), queue):
                self._of[before[queue]].append(queue)
        for queue in free:
            able = [name for name in self._of if self._wants(name, queue)]
            if able:
                self._of[min(able, key=self._load)].append(queue)

    def even_out(self) -> dict[Queue, str]:
        """Move queues until it is fair; return the member of each."""
        while self._move_one():
            pass
        return {queue: name for name, queues in self._of.items() for queue in queues}

    def _move_one(self) -> bool:
        """Move a queue from a member with more to one with less; False when it is fair."""
        takers = sorted(self._of, key=self._load)
        for taker in takers:
            for giver in reversed(takers):
                if not self._is_unfair(giver, taker):
                    continue
                for queue in reversed(self._of[giver]):
                    if self._wants(taker, queue):
                        self._of[giver].remove(queue)
                        self._of[taker].append(queue)
                        return True
        return False

    def _is_unfair(self, giver: str, taker: str) -> bool:
        more = len(self._of[giver]) - len(self._of[taker])
        return more > 1 or (more == 1 and self._rank[taker] < self._rank[giver])

    def _wants(self, name: str | None, queue: Queue) -> bool:
        return name in self._of and queue.topic in self._wanted[name]

    def _load(self, name: str) -> tuple[int, int]:
        return len(self._of[name]), self._rank[name]
