"""``SharedGroups``: receive, acknowledge, return and extend, over an open store.

A message is leased to one consumer at a time. When the lease expires it is delivered again; after
``retryMaxTimes`` retries it becomes a dead letter. A consumer may return a message: a copy is then
delivered through ``%RETRY%group`` after a delay, as RocketMQ's broker does it.

Acknowledgements are in memory, and saved every flushConsumerOffsetInterval and at the close, after
the log that they refer to is on disk. After a kill, messages whose acknowledgement was not saved
are delivered again; none is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from threading import Lock
from typing import Final

from mqstore.storage import topic_names
from mqstore.storage.admin.group_offsets import Commit, GroupOffset
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    FlushTimeout,
    GroupDisabled,
    GroupUnknown,
    MessageInvalid,
    MessageTooLarge,
    PropertiesTooLong,
    PropertyError,
    PutRefused,
    QueueUnknown,
    TopicUnknown,
)
from mqstore.storage.lookup.answers import Pull, Unreadable
from mqstore.storage.lookup.pull_filter import PullFilter
from mqstore.storage.lookup.queue_pulls import QueuePulls
from mqstore.storage.message_store import MessageStore
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups import group_states, receipts, returned, saved_leases
from mqstore.storage.shared_groups.group_states import PendingCounts
from mqstore.storage.shared_groups.queue_leases import LeaseState, QueueLeases
from mqstore.storage.shared_groups.receipts import Receipt
from mqstore.storage.shared_groups.saved_leases import Place, SavedQueue
from mqstore.storage.shared_groups.storing import append, require_topic
from mqstore.storage.tables.subscription_groups import GroupConfig
from mqstore.storage.topic_names import DLQ_PREFIX, RETRY_PREFIX

log = logging.getLogger(__name__)

LOCKS: Final = 64
"""Number of locks that all groups share: a group waits for the reads of few others."""
LEASE_EXPIRED: Final = "it was not acknowledged before its lease expired"
"""The reason of a dead letter that no consumer returned."""
LEASE_BITS: Final = 62
"""Random bits of a lease id, so that receipts of two processes do not agree by chance."""


class ReceiptStatus(StrEnum):
    """The result of one receipt of an acknowledgement, a return or an extension."""

    OK = "ok"
    """Done, now or before."""
    LOST = "lost"
    """The lease expired and the message was delivered again, under another receipt."""
    UNKNOWN = "unknown"
    """The group has not received this message since it was set to an earlier offset."""
    REFUSED = "refused"
    """The copy of a returned message cannot be stored, as its properties do not fit; it stays
    leased."""


_OF_ONE_MESSAGE: Final = (MessageInvalid, MessageTooLarge, PropertiesTooLong, PropertyError)
"""Errors of a copy that are about its message only."""
_STATUSES: Final = {
    LeaseState.HELD: ReceiptStatus.OK,
    LeaseState.ACKNOWLEDGED: ReceiptStatus.OK,
    LeaseState.LOST: ReceiptStatus.LOST,
    LeaseState.UNKNOWN: ReceiptStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic to receive from; ``wanted`` None: all of its messages."""

    topic: str
    wanted: PullFilter | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that is leased to the caller."""

    record: Record
    receipt: str
    attempt: int
    """How often the message was delivered to the group, this time and retries included."""
    source_topic: str
    """The topic that it was produced to; ``record.topic`` may be the group's retry topic."""


@dataclass(slots=True)
class Received:
    """The result of one receive."""

    messages: list[Delivered] = field(default_factory=list)
    size: int = 0
    """Bytes of the records."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """Damaged messages, which are passed over."""
    expired: int = 0
    """Messages that retention deleted before they were acknowledged."""
    dead: int = 0
    """Messages that became dead letters, as each of their deliveries failed."""
    is_full: bool = False
    """Whether a queue has as many unacknowledged messages as it may have."""
    next_deadline: float = inf
    """Monotonic seconds: when the next lease of these queues expires."""
    ends: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, queue id and the offset where new messages will arrive, of each queue that was read;
    without those that are full, or whose next message cannot be read yet."""
    end: int = 0
    """Physical offset below which the log has what this call appended."""


@dataclass(slots=True)
class _Stripe:
    """The states of some groups, under one lock."""

    lock: Lock = field(default_factory=Lock)
    states: dict[Place, QueueLeases] = field(default_factory=dict)


@dataclass(slots=True)
class _Limits:
    """The room that is left in one reply."""

    count: int
    bytes: int
    deadline: float


class SharedGroups:
    """A ``BackgroundService`` over one store. Thread-safe."""

    name = "shared-groups"

    def __init__(self, store: MessageStore, seams: Seams, shard: int) -> None:
        """``shard`` is the number that receipts name."""
        self._store = store
        self._shard = shard
        self._seams = seams
        self._pulls = QueuePulls(store.lookups, store.queues)
        self._path = store.paths.shared_groups
        self._stripes = [_Stripe() for _ in range(LOCKS)]
        self._saving = Lock()
        """Held while the file is written; before the lock of a stripe."""
        self._is_saved = True
        self._turn = 0
        self._load()
        store.offsets.end_leases = self._end_leases

    def _load(self) -> None:
        """Load the states, except of groups and topics that were deleted, and of queues that end
        below: their next messages must not count as acknowledged."""
        for place, leases in saved_leases.load(self._seams.files, self._path).items():
            end = self._store.log.offsets.next(place.topic, place.queue_id)
            if leases.next <= end and self._store.offsets.committed(*place) is not None:
                self._stripe_of(place.group).states[place] = leases
            else:
                log.warning("leases of %s are not valid any more", place)
                self._is_saved = False

    # receive ------------------------------------------------------------------------------

    def receive(
        self,
        group: str,
        subscriptions: Sequence[Subscription],
        *,
        count: int,
        max_bytes: int,
        invisible_s: float,
    ) -> Received:
        """Lease up to ``count`` messages, and at least one where one is there; never waits.

        Messages of the group's retry topic come with those of its subscriptions. Raises
        GroupNameError, GroupDisabled, TopicUnknown, StoreNotWritable, StoreFailed.
        """
        topic_names.check_group(group)
        config = self._config(group)
        if not config.consume_enable:
            raise GroupDisabled(
                f"group {group} may not consume: its consumeEnable is false; set it to true"
            )
        found = Received()
        limits = _Limits(count, max_bytes, self._seams.clock.monotonic() + invisible_s)
        with self._stripe_of(group).lock:
            for wanted, stand in self._queues(group, subscriptions):
                self._receive_from(config, wanted, stand, limits, found)
        return found

    def _queues(
        self, group: str, subscriptions: Sequence[Subscription]
    ) -> list[tuple[PullFilter | None, GroupOffset]]:
        """The queues to receive from, retries first, then all in turn."""
        retries = RETRY_PREFIX + group
        found: list[tuple[PullFilter | None, GroupOffset]] = []
        for each in subscriptions:
            if each.topic == retries:
                continue
            stands = self._store.offsets.of(group, each.topic)
            found += [(each.wanted, stand) for stand in stands]
        self._turn += 1
        start = self._turn % len(found) if found else 0
        found = found[start:] + found[:start]
        try:
            stands = self._store.offsets.of(group, retries)
        except TopicUnknown:
            return found
        return [(None, stand) for stand in stands] + found

    def _receive_from(
        self,
        config: GroupConfig,
        wanted: PullFilter | None,
        stand: GroupOffset,
        limits: _Limits,
        found: Received,
    ) -> None:
        place = Place(config.name, stand.topic, stand.queue_id)
        leases = self._leases(place, stand.committed) or _first_leases(stand)
        if leases.next < stand.min_offset:
            found.expired += leases.drop_below(stand.min_offset)
        leases.expire(self._seams.clock.monotonic())
        if limits.count > 0:
            self._deliver_again(config, place, leases, limits, found)
        before = leases.next
        if limits.count > 0 and leases.next < stand.max_offset:
            self._deliver_new(place, wanted, leases, limits, found)
        found.next_deadline = min(found.next_deadline, leases.next_deadline)
        if leases.next > before or leases.next >= stand.max_offset:
            found.ends.append((place.topic, place.queue_id, leases.next))
        self._keep(place, leases)

    def _deliver_again(
        self,
        config: GroupConfig,
        place: Place,
        leases: QueueLeases,
        limits: _Limits,
        found: Received,
    ) -> None:
        """Lease messages whose lease expired; one that failed too often becomes a dead letter."""
        for offset in leases.waiting(limits.count):
            if limits.bytes <= 0 and found.messages:
                return
            record = self._read(place, offset, found)
            if record is None:
                leases.acknowledge(offset)
                continue
            failures = record.reconsume_times + leases.attempts(offset)
            is_dead = failures > config.retry_times_max
            if is_dead and self._bury(place.group, record, failures, found):
                leases.acknowledge(offset)
            else:
                self._deliver(place, leases, record, limits, found)

    def _deliver_new(
        self,
        place: Place,
        wanted: PullFilter | None,
        leases: QueueLeases,
        limits: _Limits,
        found: Received,
    ) -> None:
        if leases.room <= 0:
            found.is_full = True
            return
        if limits.bytes <= 0 and found.messages:
            return
        try:
            pull = self._pulls.pull(
                place.topic,
                place.queue_id,
                leases.next,
                count=min(limits.count, leases.room),
                max_bytes=max(1, limits.bytes),
                wanted=wanted,
            )
        except QueueUnknown:
            return
        for record in pull.records:
            self._deliver(place, leases, record, limits, found)
        found.unreadable += pull.unreadable
        leases.pass_to(pull.next_offset)

    def _deliver(
        self, place: Place, leases: QueueLeases, record: Record, limits: _Limits, found: Received
    ) -> None:
        lease = self._seams.random.getrandbits(LEASE_BITS) | 1
        attempts = leases.lease(record.queue_offset, lease, limits.deadline)
        receipt = Receipt(self._shard, place.topic, place.queue_id, record.queue_offset, lease)
        delivered = Delivered(
            record,
            receipt.encode(),
            record.reconsume_times + attempts,
            returned.source_topic(record),
        )
        found.messages.append(delivered)
        found.size += record.size
        limits.count -= 1
        limits.bytes -= record.size

    def _read(self, place: Place, offset: int, found: Received | None = None) -> Record | None:
        """The message at a queue offset; None for one that expired, or cannot be read."""
        try:
            pull: Pull = self._store.lookups.records(place.topic, place.queue_id, offset, 1)
        except (QueueUnknown, TopicUnknown):
            return None
        if pull.records and pull.records[0].queue_offset == offset:
            return pull.records[0]
        if found is not None:
            is_damaged = [each for each in pull.unreadable if each.queue_offset == offset]
            found.unreadable += is_damaged
            found.expired += not is_damaged
        return None

    # acknowledge, return, extend ----------------------------------------------------------

    def acknowledge(self, group: str, given: Sequence[Receipt]) -> list[ReceiptStatus]:
        """Acknowledge messages; saved within flushConsumerOffsetInterval. Idempotent.

        Raises GroupNameError, StoreNotWritable, StoreFailed.
        """
        return self._settle(
            group, given, lambda leases, receipt: leases.acknowledge(receipt.offset)
        )

    def extend(
        self, group: str, given: Sequence[Receipt], invisible_s: float
    ) -> list[ReceiptStatus]:
        """Let leases end after this time from now; 0 delivers the messages again at once.

        Raises GroupNameError, StoreNotWritable, StoreFailed.
        """
        deadline = self._seams.clock.monotonic() + invisible_s

        def act(leases: QueueLeases, receipt: Receipt) -> None:
            if invisible_s > 0:
                leases.extend(receipt.offset, receipt.lease, deadline)
            else:
                leases.release(receipt.offset)

        return self._settle(group, given, act)

    def give_back(
        self, group: str, given: Sequence[Receipt], level: int, reason: str = ""
    ) -> tuple[list[ReceiptStatus], int]:
        """Return messages: each is delivered again after a delay level, or is a dead letter.

        ``level`` is RocketMQ's: 0 follows the number of retries, -1 makes a dead letter at once.
        Returns the statuses, and the physical offset below which the log has the copies. Raises
        GroupNameError, PutRefused, StoreFailed; messages whose copies are not stored stay leased.
        """
        config, done = self._config(group), Received()

        def act(leases: QueueLeases, receipt: Receipt) -> None:
            place = Place(group, receipt.topic, receipt.queue_id)
            record = self._read(place, receipt.offset)
            if record is not None:
                failures = record.reconsume_times + leases.attempts(receipt.offset)
                if level == returned.DEAD or failures > config.retry_times_max:
                    self._append_dead(group, record, failures, done, reason)
                else:
                    self._append_retry(config, record, level, done, reason)
            leases.acknowledge(receipt.offset)

        return self._settle(group, given, act), done.end

    def undo(self, group: str, delivered: Iterable[Delivered]) -> None:
        """Undo the leases of messages that reached no consumer: they wait, as before."""
        with self._stripe_of(group).lock:
            for each in delivered:
                receipt = receipts.decode(each.receipt)
                place = Place(group, receipt.topic, receipt.queue_id)
                leases = self._leases(place, self._store.offsets.committed(*place))
                if leases is not None:
                    leases.undo(receipt.offset, receipt.lease)
                    self._keep(place, leases)

    def _settle(
        self, group: str, given: Sequence[Receipt], act: Callable[[QueueLeases, Receipt], None]
    ) -> list[ReceiptStatus]:
        topic_names.check_group(group)
        with self._stripe_of(group).lock:
            return [self._settle_one(group, receipt, act) for receipt in given]

    def _settle_one(
        self, group: str, receipt: Receipt, act: Callable[[QueueLeases, Receipt], None]
    ) -> ReceiptStatus:
        place = Place(group, receipt.topic, receipt.queue_id)
        committed = self._store.offsets.committed(*place)
        leases = self._leases(place, committed)
        if leases is None:  # nothing is pending: all below the group's offset is acknowledged
            known = committed is not None and receipt.offset < committed
            return ReceiptStatus.OK if known else ReceiptStatus.UNKNOWN
        state = leases.state_of(receipt.offset, receipt.lease)
        if state is LeaseState.HELD:
            try:
                act(leases, receipt)
            except _OF_ONE_MESSAGE as error:
                log.warning("receipt %s: %s", receipt.encode(), error)
                return ReceiptStatus.REFUSED
            self._keep(place, leases)
        return _STATUSES[state]

    # states -------------------------------------------------------------------------------

    def pending(self, group: str | None = None) -> dict[Place, PendingCounts]:
        """Count the messages that receives have reached, of one group or of all, by queue."""
        now, found = self._seams.clock.monotonic(), dict[Place, PendingCounts]()
        for stripe in self._stripes if group is None else [self._stripe_of(group)]:
            with stripe.lock:
                for place in [each for each in stripe.states if group in (None, each.group)]:
                    leases = self._leases(place, self._store.offsets.committed(*place))
                    if leases is not None:
                        counts = PendingCounts(leases.count_leased(now), leases.done_count)
                        found[place] = counts
        return found

    def count_returned(self) -> Mapping[str, int] | None:
        """Count the returned messages that wait for their delay, by group; None when too many
        delayed messages wait to count them."""
        return group_states.count_returned(self._store)

    def _stripe_of(self, group: str) -> _Stripe:
        return self._stripes[hash(group) % LOCKS]

    def _config(self, group: str) -> GroupConfig:
        try:
            return self._store.groups.get(group).config
        except GroupUnknown:
            return GroupConfig(group)

    def _leases(self, place: Place, committed: int | None) -> QueueLeases | None:
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

    def _keep(self, place: Place, leases: QueueLeases) -> None:
        """Commit the group's offset where it moved, and keep the state while messages pend. An
        offset that was set meanwhile stays, and ends the leases."""
        if not leases.is_changed:
            return
        floor = leases.floor
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

    def _forget(self, place: Place) -> None:
        if self._stripe_of(place.group).states.pop(place, None) is not None:
            self._is_saved = False

    def _end_leases(self, is_meant: Callable[[str, str, int], bool]) -> None:
        """See ``GroupOffsets.end_leases``."""
        for stripe in self._stripes:
            with stripe.lock:
                for place in [each for each in stripe.states if is_meant(*each)]:
                    self._forget(place)
        self.save()

    # copies -------------------------------------------------------------------------------

    def _append_retry(
        self, config: GroupConfig, record: Record, level: int, done: Received, reason: str
    ) -> None:
        topic, queues = RETRY_PREFIX + config.name, max(1, config.retry_queues)
        require_topic(self._store, topic, queues)
        queue_id = self._seams.random.randrange(queues)
        level = returned.level_for(record, level)
        host, store_format = self._store.host, self._store.format
        copy = returned.copy_for_retry(
            record, config.name, queue_id, level, host, store_format, reason=reason
        )
        done.end = max(done.end, append(self._store, copy).end)

    def _bury(self, group: str, record: Record, attempts: int, done: Received) -> bool:
        """Make a dead letter; return whether it is stored. One that cannot be stored must not keep
        the group from its other messages."""
        try:
            self._append_dead(group, record, attempts, done, LEASE_EXPIRED)
        except (PutRefused, PropertyError) as error:
            log.warning("message %s is no dead letter: %s", record.offset_message_id, error)
            return False
        return True

    def _append_dead(
        self, group: str, record: Record, attempts: int, done: Received, reason: str
    ) -> None:
        require_topic(self._store, DLQ_PREFIX + group, 1)
        host, store_format = self._store.host, self._store.format
        copy = returned.copy_for_dead_letters(
            record, group, attempts, host, store_format, reason=reason
        )
        done.end = max(done.end, append(self._store, copy).end)
        done.dead += 1

    # saving -------------------------------------------------------------------------------

    def save(self) -> None:
        """Save offsets and acknowledgements, after a sync of the log that they refer to.

        Raises FlushTimeout, StoreFailed, OSError; the next call then retries.
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
            saved_leases.save(self._seams.files, self._path, content)
        except BaseException:
            self._is_saved = False
            raise

    def _snapshot(self) -> bytes:
        """Encode the states of all groups, each under the lock of its group."""
        saved: list[SavedQueue] = []
        for stripe in self._stripes:
            with stripe.lock:
                saved += [saved_leases.note(*each) for each in stripe.states.items()]
        return saved_leases.encode(saved)

    def step(self, now: float) -> float:
        """Save, unless a save is under way; a failed write is retried at the next step. Raises
        StoreFailed."""
        if self._saving.acquire(blocking=False):
            try:
                self._save()
            except (OSError, FlushTimeout) as error:
                log.error("acknowledgements are not saved, retried later: %s", error)
            finally:
                self._saving.release()
        return now + self._store.config.flush_consumer_offset_interval / 1000


def _first_leases(stand: GroupOffset) -> QueueLeases:
    """The state of a queue without pending messages."""
    leases = QueueLeases(stand.min_offset if stand.committed is None else stand.committed)
    leases.committed = stand.committed
    return leases


def decode_receipts(texts: Iterable[str]) -> list[Receipt]:
    """Parse receipts. Raises ReceiptInvalid."""
    return [receipts.decode(each) for each in texts]
