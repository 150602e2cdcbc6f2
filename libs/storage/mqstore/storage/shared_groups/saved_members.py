"""``store/mqstore/ordered-groups.json``: members of ordered groups, and the epochs of their queues.

The file is durable before a reply names a new epoch: epochs rise over kills, and a member keeps its
queues over a restart of the process. A damaged file ends all sessions; epochs then continue at the
time in milliseconds, which no earlier one has reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Annotated

from pydantic import Field

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups.assignment import Queue
from mqstore.storage.shared_groups.membership import Hold, Membership

log = logging.getLogger(__name__)


class SavedMember(StrictValue):
    """A member."""

    member: str
    topics: tuple[str, ...]
    session_s: Annotated[float, Field(alias="session_s")]


class SavedHold(StrictValue):
    """A queue that a member holds."""

    topic: str
    queue: int
    member: str
    epoch: int


class SavedGroup(StrictValue):
    """The members of a group, and their queues."""

    group: str
    members: tuple[SavedMember, ...]
    holds: tuple[SavedHold, ...]

    @classmethod
    def of(cls, group: str, membership: Membership) -> SavedGroup:
        """Build the entry of the file for a group."""
        return cls(
            group=group,
            members=tuple(
                SavedMember(
                    member=each.name, topics=tuple(sorted(each.topics)), session_s=each.session_s
                )
                for each in membership.members.values()
            ),
            holds=tuple(
                SavedHold(topic=topic, queue=queue_id, member=hold.member, epoch=hold.epoch)
                for (topic, queue_id), hold in membership.holds.items()
            ),
        )

    def restore(self, shard: int, now: float) -> Membership:
        """Build the membership, with sessions that begin now."""
        found = Membership(shard)
        for each in self.members:
            found.renew(each.member, each.topics, each.session_s, now)
        for held in self.holds:
            queue = Queue(held.topic, held.queue)
            found.holds[queue] = Hold(held.member, held.epoch)
            found.targets[queue] = held.member
        found.queues, found.is_changed = set(found.holds), False
        return found


class _Saved(StrictValue):
    epoch: int
    """The highest one that was used."""
    groups: tuple[SavedGroup, ...]


class MembersFile:
    """The file of one store. Thread-safe."""

    def __init__(self, seams: Seams, path: Path, epoch_min: int = 0) -> None:
        """Load the file. All epochs are above ``epoch_min``."""
        self._files = seams.files
        self._path = path
        self._lock = Lock()
        self.on_change: Callable[[], None] = lambda: None
        """Called after a save, with a lock held: return at once."""
        saved = self._load(seams.clock.now_ms())
        self._epoch = max(saved.epoch, epoch_min)
        self._groups = {each.group: each for each in saved.groups}

    @property
    def groups(self) -> list[SavedGroup]:
        """The groups as they were saved."""
        with self._lock:
            return list(self._groups.values())

    def next_epoch(self) -> int:
        """Return a higher epoch than all before; durable with the next ``put``."""
        with self._lock:
            self._epoch += 1
            return self._epoch

    def put(self, group: str, membership: Membership) -> None:
        """Save a group; one without members is left out. Durable at return. Raises OSError."""
        with self._lock:
            if membership.members:
                self._groups[group] = SavedGroup.of(group, membership)
            else:
                self._groups.pop(group, None)
            saved = _Saved(epoch=self._epoch, groups=tuple(self._groups.values()))
            sealed_json.write(self._files, self._path, saved)
            self.on_change()

    def _load(self, now_ms: int) -> _Saved:
        try:
            saved = sealed_json.read(self._files, self._path, _Saved)
            return saved or _Saved(epoch=0, groups=())
        except (OSError, ValueError) as error:
            log.error("%s cannot be read, members have to join again: %s", self._path, error)
            return _Saved(epoch=now_ms, groups=())
