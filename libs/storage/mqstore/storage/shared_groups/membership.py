"""The members of one ordered group, and the queues that they hold.

A pure value: no clock, no files, no messages. ``ordered`` keeps those of all groups. A member holds
a queue under an epoch. A queue whose member changes is held by the earlier one until that one has
no message of it, or its session ends; then the next one holds it, under a higher epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from math import inf

from mqstore.storage.shared_groups.assignment import Queue, assign


@dataclass(slots=True)
class Member:
    """A consumer of an ordered group."""

    name: str
    topics: frozenset[str]
    session_s: float
    until: float
    """Monotonic seconds: when its session ends unless it is renewed."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The member that a queue delivers to."""

    member: str
    epoch: int


class Membership:
    """The members of one group in one shard. For one thread at a time."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self.members: dict[str, Member] = {}
        self.holds: dict[Queue, Hold] = {}
        self.targets: dict[Queue, str] = {}
        """The member that is to hold each queue."""
        self.queues: set[Queue] = set()
        """The queues of the topics of all members, the last ones too when their sessions ended."""
        self._moving: set[Queue] = set()
        """Queues whose member is not the one that is to hold them."""
        self.is_changed = False
        """Whether members or holds differ from those that were saved."""

    def renew(self, name: str, topics: Iterable[str], session_s: float, now: float) -> None:
        """Add a member, or extend its session."""
        wanted, known = frozenset(topics), self.members.get(name)
        if known is None or (known.topics, known.session_s) != (wanted, session_s):
            self.is_changed = True
        self.members[name] = Member(name, wanted, session_s, now + session_s)

    def end_sessions(self, now: float) -> list[Queue]:
        """Remove the members whose session has ended; return the queues that they held."""
        ended = [each.name for each in self.members.values() if each.until <= now]
        return [queue for name in ended for queue in self.remove(name)]

    def remove(self, name: str) -> list[Queue]:
        """Remove a member; return the queues that it held."""
        if self.members.pop(name, None) is None:
            return []
        self.is_changed = True
        held = [queue for queue, hold in self.holds.items() if hold.member == name]
        for queue in held:
            del self.holds[queue]
        return held

    @property
    def next_end(self) -> float:
        """Monotonic seconds: when the next session ends."""
        return min((each.until for each in self.members.values()), default=inf)

    def plan(self, queues: Collection[Queue]) -> None:
        """Choose the member of each queue anew."""
        self.queues = set(queues)
        before = {queue: hold.member for queue, hold in self.holds.items()} | {
            queue: name for queue, name in self.targets.items() if name in self.members
        }
        wanted = {each.name: each.topics for each in self.members.values()}
        self.targets = assign(queues, wanted, before, self._shard)
        every = self.targets.keys() | self.holds.keys()
        self._moving = {each for each in every if self._holder(each) != self.targets.get(each)}

    def hand_over(self, is_in_use: Callable[[Queue], bool], next_epoch: Callable[[], int]) -> None:
        """Give queues to the members that are to hold them, where the earlier ones are done with
        them."""
        for queue in sorted(self._moving):
            if queue in self.holds and is_in_use(queue):
                continue
            self._moving.discard(queue)
            self.is_changed = True
            if queue in self.targets:
                self.holds[queue] = Hold(self.targets[queue], next_epoch())
            else:
                del self.holds[queue]

    def awaited(self, name: str) -> list[Queue]:
        """The queues that a member is to hold, and another one still has messages of."""
        return [queue for queue in self._moving if self.targets.get(queue) == name]

    def epochs(self, name: str) -> dict[Queue, int]:
        """The queues that a member receives from, with its epochs: those that it also keeps."""
        return {
            queue: hold.epoch
            for queue, hold in self.holds.items()
            if hold.member == name == self.targets.get(queue)
        }

    def _holder(self, queue: Queue) -> str | None:
        hold = self.holds.get(queue)
        return None if hold is None else hold.member
