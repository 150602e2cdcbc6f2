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
from threading import Lock
from typing import Final

from mqstore.storage import topic_names
from mqstore.storage.admin.group_offsets import Commit, GroupOffset
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    FlushTimeout,
    GroupDisabled,
    GroupUnknown,
    PropertyError,
    PutRefused,
    QueueUnknown,
    TopicUnknown,
)
from mqstore.storage.lookup.answers import Pull
from mqstore.storage.lookup.pull_filter import PullFilter
from mqstore.storage.lookup.queue_pulls import QueuePulls
from mqstore.storage.message_store import MessageStore
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups import group_states, receipts, returned, saved_leases
from mqstore.storage.shared_groups.group_states import PendingCounts
from mqstore.storage.shared_groups.queue_leases import QueueLeases
from mqstore.storage.shared_groups.receipts import Receipt
from mqstore.storage.shared_groups.results import (
    Delivered,
    Limits,
    ReceiptStatus,
    Received,
    Subscription,
)
from mqstore.storage.shared_groups.saved_leases import Place, SavedQueue
from mqstore.storage.shared_groups.settling import settle_one
from mqstore.storage.shared_groups.storing import Copies
from mqstore.storage.tables.subscription_groups import GroupConfig
from mqstore.storage.topic_names import RETRY_PREFIX

log = logging.getLogger(__name__)

LOCKS: Final = 64
"""Number of locks that all groups share: a group waits for the reads of few others."""
RECENT_S: Final = 2.0
"""Seconds for which the next messages of a group count as in memory after a receive."""
RECENT_MAX: Final = 10_000
"""Maximum number of pairs of group and topic that are known to be in memory."""
MEMORY_BYTES_MAX: Final = 256 << 10
"""Maximum bytes of records of a receive from memory, which takes about 0.1 ms."""
LEASE_EXPIRED: Final = "it was not acknowledged before its lease expired"
"""The reason of a dead letter that no consumer returned."""
LEASE_BITS: Final = 62
"""Random bits of the lease id of one receive, so that receipts of two receives or processes do not
agree by chance."""


@dataclass(slots=True)
class _Stripe:
    """The states of some groups, under one lock."""

    lock: Lock = field(default_factory=Lock)
    states: dict[Place, QueueLeases] = field(default_factory=dict)


class SharedGroups:
    """A ``BackgroundService`` over one store. Thread-safe."""

    name = "shared-groups"

    def __init__(self, store: MessageStore, seams: Seams, shard: int) -> None:
        """``shard`` is the number that receipts name."""
        self._store = store
        self._shard = shard
        self._seams = seams
        self._pulls = QueuePulls(store.lookups, store.queues)
        self._copies = Copies(store, seams.random)
        self._path = store.paths.shared_groups
        self._stripes = [_Stripe() for _ in range(LOCKS)]
        self._saving = Lock()
        """Held while the file is written; before the lock of a stripe."""
        self._is_saved = True
        self._turn = 0
        self._recent: dict[tuple[str, str], float] = {}
        """By group and topic, until when the next messages count as in memory."""
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

    def _stripe_of(self, group: str) -> _Stripe:
        return self._stripes[hash(group) % LOCKS]

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
        config = self._consuming(group)
        limits = self._limits(count, max_bytes, invisible_s)
        with self._stripe_of(group).lock:
            return self._receive(config, subscriptions, limits)

    def receive_in_memory(
        self,
        group: str,
        subscriptions: Sequence[Subscription],
        *,
        count: int,
        max_bytes: int,
        invisible_s: float,
    ) -> Received | None:
        """Receive as ``receive`` where that waits for neither the disk nor another call; else
        return None, with nothing leased."""
        now, recent = self._seams.clock.monotonic(), self._recent
        if any(
            each.wanted is not None or recent.get((group, each.topic), 0.0) < now
            for each in subscriptions
        ):
            return None
        config, lock = self._consuming(group), self._stripe_of(group).lock
        limits = self._limits(count, min(max_bytes, MEMORY_BYTES_MAX), invisible_s)
        limits.is_in_memory = True
        if not lock.acquire(blocking=False):
            return None
        try:
            found = self._receive(config, subscriptions, limits)
            if limits.is_cut and not found.messages:
                self._turn -= 1  # the call that may read the disk begins with the same queue
                return None
            return found
        finally:
            lock.release()

    def _consuming(self, group: str) -> GroupConfig:
        """The config of a group that may consume. Raises GroupNameError, GroupDisabled."""
        topic_names.check_group(group)
        config = self._config(group)
        if not config.consume_enable:
            raise GroupDisabled(
                f"group {group} may not consume: its consumeEnable is false; set it to true"
            )
        return config

    def _receive(
        self, config: GroupConfig, subscriptions: Sequence[Subscription], limits: Limits
    ) -> Received:
        found = Received()
        for wanted, stand in self._queues(config.name, subscriptions):
            self._receive_from(config, wanted, stand, limits, found)
            if limits.count <= 0:
                break
        if len(self._recent) >= RECENT_MAX:
            self._recent.clear()
        until = self._seams.clock.monotonic() + RECENT_S
        self._recent.update({(config.name, each.topic): until for each in subscriptions})
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
        limits: Limits,
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
        limits: Limits,
        found: Received,
    ) -> None:
        """Lease messages whose lease expired; one that failed too often becomes a dead letter."""
        if limits.is_in_memory:
            if leases.waiting(1):
                limits.cut()
            return
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
                self._deliver(place, leases, [record], limits, found)

    def _deliver_new(
        self,
        place: Place,
        wanted: PullFilter | None,
        leases: QueueLeases,
        limits: Limits,
        found: Received,
    ) -> None:
        if leases.room <= 0:
            found.is_full = True
            return
        if limits.bytes <= 0 and found.messages:
            return
        pull = self._pull(place, wanted, leases, limits)
        if pull is None:
            return
        self._deliver(place, leases, pull.records, limits, found)
        found.unreadable += pull.unreadable
        leases.pass_to(pull.next_offset)

    def _pull(
        self, place: Place, wanted: PullFilter | None, leases: QueueLeases, limits: Limits
    ) -> Pull | None:
        """The next messages of a queue; None where it has none, or they must not be read."""
        where = place.topic, place.queue_id, leases.next
        count, most = min(limits.count, leases.room), max(1, limits.bytes)
        if limits.is_in_memory:
            found = self._pulls.in_memory(Pull, *where, count=count, max_bytes=most)
            if found is None:
                limits.cut()
            return found
        try:
            return self._pulls.pull(*where, count=count, max_bytes=most, wanted=wanted)
        except QueueUnknown:
            return None

    def _deliver(
        self,
        place: Place,
        leases: QueueLeases,
        records: Sequence[Record],
        limits: Limits,
        found: Received,
    ) -> None:
        lease = limits.lease
        receipt = receipts.encoder(self._shard, place.topic, place.queue_id, lease)
        for record in records:
            attempts = leases.lease(record.queue_offset, lease, limits.deadline)
            delivered = Delivered(
                record,
                receipt(record.queue_offset),
                record.reconsume_times + attempts,
                returned.source_topic(record),
            )
            found.messages.append(delivered)
            found.size += record.size
            limits.count -= 1
            limits.bytes -= record.size

    def _limits(self, count: int, max_bytes: int, invisible_s: float) -> Limits:
        deadline = self._seams.clock.monotonic() + invisible_s
        return Limits(count, max_bytes, deadline, self._seams.random.getrandbits(LEASE_BITS) | 1)

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
        return self._settle(group, given, _acknowledge)

    def acknowledge_at_once(
        self, group: str, given: Sequence[Receipt]
    ) -> list[ReceiptStatus] | None:
        """Acknowledge as ``acknowledge``; None, with no effect, where that waits for another
        call."""
        topic_names.check_group(group)
        lock = self._stripe_of(group).lock
        if not lock.acquire(blocking=False):
            return None
        try:
            return self._settle_all(group, given, _acknowledge)
        finally:
            lock.release()

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
                    end = self._copies.append_dead(group, record, failures, reason)
                else:
                    end = self._copies.append_retry(config, record, level, reason)
                done.end = max(done.end, end)
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
            return self._settle_all(group, given, act)

    def _settle_all(
        self, group: str, given: Sequence[Receipt], act: Callable[[QueueLeases, Receipt], None]
    ) -> list[ReceiptStatus]:
        """Settle receipts; commit once for each queue."""
        used: dict[tuple[str, int], tuple[QueueLeases | None, int | None]] = {}
        statuses = []
        try:
            for receipt in given:
                key = receipt.topic, receipt.queue_id
                if key not in used:
                    committed = self._store.offsets.committed(group, *key)
                    used[key] = self._leases(Place(group, *key), committed), committed
                statuses.append(settle_one(*used[key], receipt, act))
        finally:
            for key, (leases, _) in used.items():
                if leases is not None:
                    self._keep(Place(group, *key), leases)
        return statuses

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

    def _bury(self, group: str, record: Record, attempts: int, done: Received) -> bool:
        """Make a dead letter; return whether it is stored. One that cannot be stored must not keep
        the group from its other messages."""
        try:
            end = self._copies.append_dead(group, record, attempts, LEASE_EXPIRED)
        except (PutRefused, PropertyError) as error:
            log.warning("message %s is no dead letter: %s", record.offset_message_id, error)
            return False
        done.dead, done.end = done.dead + 1, max(done.end, end)
        return True

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


def _acknowledge(leases: QueueLeases, receipt: Receipt) -> None:
    leases.acknowledge(receipt.offset)


def _first_leases(stand: GroupOffset) -> QueueLeases:
    """The state of a queue without pending messages."""
    leases = QueueLeases(stand.min_offset if stand.committed is None else stand.committed)
    leases.committed = stand.committed
    return leases
