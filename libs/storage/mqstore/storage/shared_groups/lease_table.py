"""The states of all groups by queue, with their locks, and the file that keeps them.

A state is there while messages of its queue are delivered and not acknowledged. The group's offset
in consumerOffset.json follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.errors import FlushTimeout
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.message_store import MessageStore
from mqstore.storage.seams import FileSystem
from mqstore.storage.shared_groups import returned_copies, saved_leases
from mqstore.storage.shared_groups.queue_leases import QueueLeases
from mqstore.storage.shared_groups.saved_leases import Place, SavedQueue

log = bounded_log(__name__)

LOCKS: Final = 64
"""Number of locks that all groups share: a group waits for the reads of few others."""


@dataclass(slots=True)
class _Stripe:
    """The states of some groups, under one lock."""

    lock: Lock = field(default_factory=Lock)
    states: dict[Place, QueueLeases] = field(default_factory=dict)


class LeaseTable:
    """The states of one store. Its methods need the lock of the group, where not said otherwise."""

    def __init__(self, store: MessageStore, files: FileSystem) -> None:
        """Load the saved states."""
        self._store = store
        self._files = files
        self._path = store.paths.shared_groups
        self._stripes = [_Stripe() for _ in range(LOCKS)]
        self._saving = Lock()
        """Held while the file is written; before the lock of a stripe."""
        self._is_saved = True
        self._settled_below: int | None = None
        self._returned: dict[Place, set[int]] = {}
        """Offsets of messages that were returned before the opening, and lie behind the state."""
        self._load()
        store.offsets.end_leases = self.end_leases

    def _load(self) -> None:
        """Load the states, except of groups and topics that were deleted, and of queues that end
        below: their next messages must not count as acknowledged."""
        states, self._settled_below = saved_leases.load(self._files, self._path)
        for place, leases in states.items():
            end = self._store.log.offsets.next(place.topic, place.queue_id)
            if leases.next <= end and self._store.offsets.committed(*place) is not None:
                self._stripe_of(place.group).states[place] = leases
            else:
                log.warning("leases of %s are not valid any more", place)
                self._is_saved = False
        if self._settled_below is None:
            self._is_saved = False
        else:
            self._settle_returned(self._settled_below)

    def _settle_returned(self, start: int) -> None:
        """Settle the messages whose copies are in the log from a physical offset on."""
        for place, offset in returned_copies.find(self._store, start, self._store.log.max_offset):
            leases = self._stripe_of(place.group).states.get(place)
            if leases is not None and offset < leases.next:
                leases.acknowledge(offset)
            else:
                self._returned.setdefault(place, set()).add(offset)

    def is_returned(self, place: Place, offset: int) -> bool:
        """Whether a message that no receive has reached was returned before the opening."""
        return offset in self._returned.get(place, ())

    def pass_returned(self, place: Place, offset: int) -> None:
        """Forget the returned messages in front of an offset: the state of the queue has them."""
        if place in self._returned:
            self._returned[place] = {each for each in self._returned[place] if each >= offset}
            if not self._returned[place]:
                del self._returned[place]

    def lock_of(self, group: str) -> Lock:
        """The lock of a group."""
        return self._stripe_of(group).lock

    def get(self, place: Place, committed: int | None) -> QueueLeases | None:
        """The state of a queue with pending messages; None when there is none, or when the group's
        offset was set since (by a reset, a commit, or another process), which ends all leases."""
        leases = self._stripe_of(place.group).states.get(place)
        if leases is None or committed == leases.committed:
            return leases
        before = leases.committed
        if committed is not None and before is not None and before < committed < leases.next:
            leases.drop_below(committed)  # a broker went on, or offsets were saved after this state
            leases.committed = committed
            return leases
        self._forget(place)
        return None

    def current(self, place: Place) -> QueueLeases | None:
        """The state of a queue at the group's present offset, as ``get``."""
        return self.get(place, self._store.offsets.committed(*place))

    def keep(self, place: Place, leases: QueueLeases) -> None:
        """Commit the group's offset where it moved, and keep the state while messages pend. An
        offset that was set meanwhile stays, and ends the leases."""
        if not leases.is_changed:
            return
        self._store.offsets.expired.add(place.group, place.topic, leases.lost)
        floor, leases.lost = leases.floor, 0
        if floor != leases.committed:
            commit = Commit(place.topic, place.queue_id, floor)
            if not self._store.offsets.advance(place.group, commit, leases.committed):
                self._forget(place)
                return
            leases.committed = floor
        self._is_saved = leases.is_changed = False
        if leases.pending_count:
            self._stripe_of(place.group).states[place] = leases
        else:
            self._forget(place)

    def of_group(self, group: str) -> Iterator[tuple[Place, QueueLeases]]:
        """Yield the queues of a group that have a state."""
        for place in [each for each in self._stripe_of(group).states if each.group == group]:
            leases = self.current(place)
            if leases is not None:
                yield place, leases

    def places(self, group: str | None = None) -> list[Place]:
        """The queues of a group, or of all groups, that have a state. Takes the locks."""
        found: list[Place] = []
        for stripe in self._stripes if group is None else [self._stripe_of(group)]:
            with stripe.lock:
                found += [each for each in stripe.states if group in (None, each.group)]
        return found

    def end_leases(self, is_meant: Callable[[str, str, int], bool]) -> None:
        """See ``GroupOffsets.end_leases``. Takes the locks."""
        for stripe in self._stripes:
            with stripe.lock:
                for place in [each for each in stripe.states if is_meant(*each)]:
                    self._forget(place)
                for place in [each for each in self._returned if is_meant(*each)]:
                    self._returned.pop(place, None)
        self._is_saved = False  # copies from before no longer settle their messages
        self.save()

    def _stripe_of(self, group: str) -> _Stripe:
        return self._stripes[hash(group) % LOCKS]

    def _forget(self, place: Place) -> None:
        if self._stripe_of(place.group).states.pop(place, None) is not None:
            self._is_saved = False

    # saving -------------------------------------------------------------------------------

    def save(self) -> None:
        """Save offsets and acknowledgements, after a sync of the log that they refer to.

        Takes the locks. Raises FlushTimeout, StoreFailed, OSError; the next call then retries.
        """
        with self._saving:
            self._save()

    def _save(self) -> None:
        if self._is_saved:
            return
        self._is_saved = True
        try:
            content = self._snapshot()
            self._store.offsets.save()
            self._store.log.sync()
            saved_leases.save(self._files, self._path, content)
        except BaseException:
            self._is_saved = False
            raise

    def _snapshot(self) -> bytes:
        """Encode the states of all groups, each under the lock of its group. A copy that is in the
        log before has its message settled in them."""
        end, saved = self._store.log.max_offset, list[SavedQueue]()
        if self._returned and self._settled_below is not None:
            end = self._settled_below
        for stripe in self._stripes:
            with stripe.lock:
                saved += [saved_leases.note(*each) for each in stripe.states.items()]
        return saved_leases.encode(saved, end)

    def step(self, now: float) -> float:
        """Save, unless a save is under way; a failed write is retried at the next step. Takes the
        locks. Raises StoreFailed."""
        if self._saving.acquire(blocking=False):
            try:
                self._save()
            except (OSError, FlushTimeout) as error:
                log.error("acknowledgements are not saved, retried later: %s", error)
            finally:
                self._saving.release()
        return now + self._store.config.flush_consumer_offset_interval / 1000
