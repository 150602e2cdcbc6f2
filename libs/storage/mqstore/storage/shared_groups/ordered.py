"""``OrderedGroups``: the members of all groups of a store, and the queues that they hold.

A group with members is ordered: only they receive, each from the queues that it holds, and a queue
delivers its next messages once the earlier ones are acknowledged. All calls need the lock of the
group, as ``LeaseTable``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from mqstore.storage.errors import (
    EpochStale,
    GroupOrdered,
    GroupShared,
    MembersFull,
    MemberUnknown,
    TopicUnknown,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.replication.table_feed import TableName
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups.assignment import Queue
from mqstore.storage.shared_groups.lease_table import LeaseTable
from mqstore.storage.shared_groups.membership import Membership
from mqstore.storage.shared_groups.saved_leases import Place
from mqstore.storage.shared_groups.saved_members import MembersFile
from mqstore.storage.topic_names import RETRY_PREFIX

QUEUES_MAX: Final = 4_096
"""Queues of one ordered group in one shard, which are saved with each change of its members."""
EPOCHS_OF_LEADER: Final = 1 << 20
"""Epochs of queues that one leader of a shard may use before they reach those of the next leader,
which may not have the last ones."""
GROUPS_MAX: Final = 1_000
"""Ordered groups of one store."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member and its queues."""

    name: str
    topics: tuple[str, ...]
    left_s: float
    """Seconds until its session ends."""
    epochs: dict[Queue, int]
    """The queues that it receives from, with its epochs."""
    leaving: tuple[Queue, ...]
    """Queues that it holds until it has no message of them, and which another member gets then."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The queues that a member may receive from now."""

    epochs: dict[Queue, int]
    next_change: float
    """Monotonic seconds: when it may hold more without a request of any member."""
    is_waiting: bool
    """Whether it is to hold a queue that another member has messages of."""


class OrderedGroups:
    """The ordered groups of one store."""

    def __init__(self, store: MessageStore, table: LeaseTable, seams: Seams, shard: int) -> None:
        """Continue with the saved members; their sessions begin anew."""
        self._store = store
        self._table = table
        self._clock = seams.clock
        self._shard = shard
        self._file = MembersFile(
            seams, store.paths.ordered_groups, store.epochs.newest * EPOCHS_OF_LEADER
        )
        self._file.on_change = partial(store.table_feed.note, TableName.ORDERED_GROUPS)
        now = self._clock.monotonic()
        self._of = {each.group: each.restore(shard, now) for each in self._file.groups}

    def join(self, group: str, name: str, topics: Iterable[str], session_s: float) -> MemberView:
        """Add a member, or renew its session.

        Raises TopicUnknown, GroupShared, MembersFull, OSError.
        """
        found = self._refresh(group) or Membership(self._shard)
        queues = {each for topic in set(topics) for each in self._queues_of(group, topic)}
        self._check_room(group, name, found, queues)
        wanted = {*topics, RETRY_PREFIX + group}
        found.renew(name, wanted, session_s, self._clock.monotonic())
        self._of[group] = found
        found.plan(queues | self._known_queues(group, found))
        self._hand_over(group, found)
        return self._view(group, found, name)

    def leave(self, group: str, name: str) -> None:
        """Remove a member, whose queues go to others at once. Raises OSError."""
        found = self._refresh(group)
        if found is not None:
            self._release(group, found.remove(name), is_failure=False)
            found.plan(found.queues)
            self._hand_over(group, found)
            if not found.members:
                del self._of[group]

    def members(self, group: str) -> list[MemberView]:
        """The members of a group, by name. Raises OSError."""
        found = self._refresh(group)
        return (
            []
            if found is None
            else [self._view(group, found, each) for each in sorted(found.members)]
        )

    def begin_turn(self, group: str, name: str | None) -> Turn | None:
        """Return what a member may receive; None for a shared group.

        Raises GroupOrdered, MemberUnknown, OSError.
        """
        found = self._refresh(group)
        is_ordered = found is not None and bool(found.members)
        if name is None:
            if is_ordered:
                raise GroupOrdered(
                    f"group {group} is ordered: it has members; receive as a member"
                    " (PUT /v1/groups/GROUP/members/MEMBER), or let the members leave before"
                )
            return None
        if found is None or name not in found.members:
            raise MemberUnknown(
                f"{name} is no member of group {group}, or its session ended; join again"
            )
        return self._turn(group, found, name)

    def knows(self, group: str) -> bool:
        """Whether the group has members, or their sessions ended."""
        return group in self._of

    def check_commit(self, group: str, queue: Queue, epoch: int | None) -> None:
        """Raise EpochStale unless an offset of a queue may be committed under an epoch."""
        if not self.is_current(group, queue, epoch):
            raise EpochStale(
                f"queue {queue.queue_id} of {queue.topic} is not held under epoch {epoch} in group "
                f"{group}; commit with the epoch that PUT /v1/groups/GROUP/members/MEMBER returns"
            )

    def is_current(self, group: str, queue: Queue, epoch: int | None) -> bool:
        """Whether a queue is held under an epoch; None: whether the group is shared.

        Raises OSError.
        """
        found = self._refresh(group)
        if found is None or not found.members:
            return epoch is None
        hold = found.holds.get(queue)
        return hold is not None and hold.epoch == epoch

    def counts(self, group: str) -> tuple[int, int]:
        """The number of members, and that of queues which no member holds. Raises OSError."""
        found = self._refresh(group)
        if found is None:
            return 0, 0
        return len(found.members), len(found.queues - found.holds.keys())

    @property
    def groups(self) -> list[str]:
        """The groups that have members, or whose last member's session ended. Without a lock."""
        return list(self._of)

    # parts --------------------------------------------------------------------------------

    def _refresh(self, group: str) -> Membership | None:
        """End the sessions that are over, and give queues to the members that wait for them."""
        found = self._of.get(group)
        if found is None:
            return None
        ended = found.end_sessions(self._clock.monotonic())
        self._release(group, ended, is_failure=True)
        if found.is_changed:
            found.plan(found.queues)
        self._hand_over(group, found)
        return found

    def _hand_over(self, group: str, found: Membership) -> None:
        """Hand queues over, and save what changed."""
        found.hand_over(lambda queue: self._is_in_use(group, queue), self._file.next_epoch)
        if found.is_changed:
            self._file.put(group, found)
            found.is_changed = False

    def _is_in_use(self, group: str, queue: Queue) -> bool:
        """Whether a member has a message of a queue."""
        leases = self._table.current(Place(group, *queue))
        if leases is None:
            return False
        leases.expire(self._clock.monotonic())
        return leases.is_in_use

    def _release(self, group: str, queues: Iterable[Queue], *, is_failure: bool) -> None:
        """End the leases of queues whose member is gone."""
        for queue in queues:
            place = Place(group, *queue)
            leases = self._table.current(place)
            if leases is not None:
                leases.release_first(is_failure=is_failure)
                self._table.keep(place, leases)

    def _turn(self, group: str, found: Membership, name: str) -> Turn:
        waits = found.awaited(name)
        deadlines = [found.next_end] if len(found.members) > 1 else []
        for queue in waits:
            leases = self._table.current(Place(group, *queue))
            deadlines.append(inf if leases is None else leases.next_deadline)
        return Turn(found.epochs(name), min(deadlines, default=inf), bool(waits))

    def _view(self, group: str, found: Membership, name: str) -> MemberView:
        member = found.members[name]
        epochs = found.epochs(name)
        held = sorted(queue for queue, hold in found.holds.items() if hold.member == name)
        return MemberView(
            name,
            tuple(sorted(member.topics - {RETRY_PREFIX + group})),
            max(0.0, member.until - self._clock.monotonic()),
            {queue: epochs[queue] for queue in held if queue in epochs},
            tuple([queue for queue in held if queue not in epochs]),
        )

    def _queues_of(self, group: str, topic: str) -> list[Queue]:
        """The queues of a topic. Raises TopicUnknown."""
        return [Queue(topic, each.queue_id) for each in self._store.offsets.of(group, topic)]

    def _known_queues(self, group: str, found: Membership) -> set[Queue]:
        """The queues of the topics of all members that there are."""
        known: set[Queue] = set()
        for topic in {topic for each in found.members.values() for topic in each.topics}:
            with suppress(TopicUnknown):
                known.update(self._queues_of(group, topic))
        return known

    def _check_room(
        self, group: str, name: str, found: Membership, queues: Collection[Queue]
    ) -> None:
        if name in found.members:
            return
        if not found.members:
            self._check_not_shared(group)
            if len(self._of) >= GROUPS_MAX and group not in self._of:
                raise MembersFull(f"{GROUPS_MAX} groups are ordered, as many as may be")
        most = self._store.config.max_group_members
        if len(found.members) >= most:
            raise MembersFull(
                f"group {group} has {len(found.members)} members, and maxGroupMembers allows"
                f" {most}; let some leave, or raise maxGroupMembers"
            )
        if len(found.queues | set(queues)) > QUEUES_MAX:
            raise MembersFull(f"group {group} may have {QUEUES_MAX} queues; name fewer topics")

    def _check_not_shared(self, group: str) -> None:
        now = self._clock.monotonic()
        if any(leases.count_leased(now) for _, leases in self._table.of_group(group)):
            raise GroupShared(
                f"messages of group {group} are leased to shared consumers; stop these and join"
                " when their messages are acknowledged, or their leases have expired"
            )
