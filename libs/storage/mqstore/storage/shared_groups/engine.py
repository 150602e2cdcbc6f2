"""``SharedGroups``: receive, acknowledge, return and extend, over an open store.

A message is leased to one consumer at a time. When the lease expires it is delivered again; after
``retryMaxTimes`` retries it becomes a dead letter. A consumer may return a message: a copy is then
delivered through ``%RETRY%group`` after a delay, as RocketMQ's broker does it.

Acknowledgements are in memory, and saved every flushConsumerOffsetInterval and at the close, after
the log that they refer to is on disk. After a kill, messages whose acknowledgement was not saved
are delivered again; none is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from mqstore.storage import topic_names
from mqstore.storage.admin.group_offsets import Commit, GroupOffset
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    PropertyError,
    PutRefused,
    QueueUnknown,
    TopicNotReadable,
    TopicUnknown,
)
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.lookup.answers import Pull, Unreadable
from mqstore.storage.lookup.pull_filter import PullFilter
from mqstore.storage.lookup.queue_pulls import QueuePulls
from mqstore.storage.message_store import MessageStore
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups import group_states, receipts, returned
from mqstore.storage.shared_groups.assignment import Queue
from mqstore.storage.shared_groups.group_states import PendingCounts
from mqstore.storage.shared_groups.lease_table import LeaseTable
from mqstore.storage.shared_groups.ordered import MemberView, OrderedGroups
from mqstore.storage.shared_groups.queue_leases import QueueLeases
from mqstore.storage.shared_groups.receipts import QueueReceipts, Receipt, group_by_queue
from mqstore.storage.shared_groups.results import (
    Delivered,
    DeliveredBatch,
    Limits,
    ReceiptStatus,
    Received,
    Subscription,
)
from mqstore.storage.shared_groups.saved_leases import Place
from mqstore.storage.shared_groups.settling import acknowledge, settle_queue
from mqstore.storage.shared_groups.storing import Copies, retry_topics
from mqstore.storage.shared_groups.turns import in_turn
from mqstore.storage.tables.subscription_groups import GroupConfig
from mqstore.storage.topic_names import RETRY_PREFIX

log = bounded_log(__name__)

RECENT_S: Final = 2.0
"""Seconds for which the next messages of a group count as in memory after a receive."""
RECENT_MAX: Final = 10_000
"""Maximum number of pairs of group and topic that are known to be in memory."""
MEMORY_BYTES_MAX: Final = 256 << 10
"""Maximum bytes of records of a receive from memory, which takes about 0.1 ms."""
LEASE_EXPIRED: Final = "it was not acknowledged before its lease expired"
"""The reason of a dead letter that no consumer returned."""


class SharedGroups:
    """A ``BackgroundService`` over one store. Thread-safe."""

    name = "shared-groups"

    def __init__(self, store: MessageStore, seams: Seams, shard: int) -> None:
        """``shard`` is the number that receipts name."""
        self._store = store
        self._shard = shard
        self._seams = seams
        self._pulls = QueuePulls(store.reads, store.queues)
        self._is_bounded = store.reads is not store.lookups
        """Whether consumers see what is confirmed only."""
        self._copies = Copies(store, seams.random)
        self._table = LeaseTable(store, seams.files)
        self._ordered = OrderedGroups(store, self._table, seams, shard)
        self._random = Random(seams.random.getrandbits(128))  # noqa: S311 - names, no secrets
        self._turn = 0
        self._recent: dict[tuple[str, str], float] = {}
        """By group and topic, until when the next messages count as in memory."""

    # receive ------------------------------------------------------------------------------

    def receive(
        self,
        group: str,
        subscriptions: Sequence[Subscription],
        *,
        count: int,
        max_bytes: int,
        invisible_s: float,
        member: str | None = None,
    ) -> Received:
        """Lease up to ``count`` messages, and at least one where one is there; never waits.

        Messages of the group's retry topic come with those of its subscriptions. ``member`` is the
        caller in an ordered group. Raises GroupNameError, GroupUnknown, LimitReached,
        GroupDisabled, TopicNotReadable, GroupOrdered, MemberUnknown, TopicUnknown,
        StoreNotWritable, StoreFailed, OSError.
        """
        config = self._consuming(group, subscriptions)
        limits = self._limits(count, max_bytes, invisible_s)
        with self._table.lock_of(group):
            limits.turn = self._ordered.begin_turn(group, member)
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
        """Receive as ``receive`` in a shared group where that waits for neither the disk nor
        another call; else return None, with nothing leased."""
        now, recent = self._seams.clock.monotonic(), self._recent
        if any(
            each.wanted is not None or recent.get((group, each.topic), 0.0) < now
            for each in subscriptions
        ):
            return None
        config, lock = self._consuming(group, subscriptions), self._table.lock_of(group)
        limits = self._limits(count, min(max_bytes, MEMORY_BYTES_MAX), invisible_s)
        limits.is_in_memory = True
        if not lock.acquire(blocking=False):
            return None
        try:
            if self._ordered.knows(group):
                return None
            found = self._receive(config, subscriptions, limits)
            if limits.is_cut and not found.batches:
                self._turn -= 1  # the call that may read the disk begins with the same queue
                return None
            return found
        finally:
            lock.release()

    def _consuming(self, group: str, subscriptions: Sequence[Subscription] = ()) -> GroupConfig:
        """The config of a group that may consume, these topics too.

        Raises GroupNameError, GroupUnknown, LimitReached, GroupDisabled, TopicNotReadable,
        TopicUnknown.
        """
        config = self._store.groups.use(group)
        self._store.groups.require_consuming(group, [each.topic for each in subscriptions])
        for each in subscriptions:
            self._store.topic(each.topic).require_readable()
        return config

    def _receive(
        self, config: GroupConfig, subscriptions: Sequence[Subscription], limits: Limits
    ) -> Received:
        found, turn = Received(), limits.turn
        if turn is not None:
            found.is_full, found.next_deadline = turn.is_waiting, turn.next_change
        for wanted, place in self._places(config.name, subscriptions):
            if turn is None or (place.topic, place.queue_id) in turn.epochs:
                self._receive_from(config, wanted, place, limits, found)
            if limits.count <= 0:
                break
        found.is_exhausted = limits.count > 0 and limits.bytes > 0
        if len(self._recent) >= RECENT_MAX:
            self._recent.clear()
        until = self._seams.clock.monotonic() + RECENT_S
        self._recent.update({(config.name, each.topic): until for each in subscriptions})
        return found

    def _places(
        self, group: str, subscriptions: Sequence[Subscription]
    ) -> list[tuple[PullFilter | None, Place]]:
        """The queues to receive from, retries first, then all in turn."""
        queue_ids = self._store.offsets.queue_ids
        retries = retry_topics(self._store, group, subscriptions)
        found = [
            (each.wanted, Place(group, each.topic, queue_id))
            for each in subscriptions
            if each.topic not in retries
            for queue_id in queue_ids(group, each.topic)
        ]
        self._turn += 1
        found = in_turn(self._store, found, self._turn)
        for topic, wanted in reversed(retries.items()):
            with suppress(TopicUnknown, TopicNotReadable):
                self._store.topic(topic).require_readable()
                places = [Place(group, topic, each) for each in queue_ids(group, topic)]
                found[:0] = [(wanted, place) for place in places]
        return found

    def _receive_from(
        self,
        config: GroupConfig,
        wanted: PullFilter | None,
        place: Place,
        limits: Limits,
        found: Received,
    ) -> None:
        stand = self._store.offsets.stand(*place)
        leases = self._table.get(place, stand.committed)
        if leases is None:
            if stand.start >= stand.max_offset:  # all is acknowledged
                found.ends.append((place.topic, place.queue_id, stand.start))
                return
            leases = QueueLeases(stand.start)
            leases.committed = stand.committed
        if leases.next < stand.min_offset:
            if limits.is_in_memory:  # a receive that is cut has no reply to name them in
                limits.cut()
                return
            found.expired += leases.lose_below(stand.min_offset)
        leases.expire(self._seams.clock.monotonic())
        if limits.turn is None or leases.begin_batch():
            self._lease_from(config, wanted, place, stand, leases, limits, found)
        else:
            found.is_full = True
        found.next_deadline = min(found.next_deadline, leases.next_deadline)
        self._table.keep(place, leases)

    def _lease_from(
        self,
        config: GroupConfig,
        wanted: PullFilter | None,
        place: Place,
        stand: GroupOffset,
        leases: QueueLeases,
        limits: Limits,
        found: Received,
    ) -> None:
        if limits.count > 0:
            self._deliver_again(config, place, leases, limits, found)
        before, end = leases.next, stand.max_offset
        if self._is_bounded:
            end = min(end, self._pulls.end_of(place.topic, place.queue_id))
        if limits.count > 0 and leases.next < end:
            self._deliver_new(place, wanted, leases, limits, found)
        if leases.next > before or leases.next >= end:
            found.ends.append((place.topic, place.queue_id, leases.next))

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
            if limits.bytes <= 0 and found.batches:
                return
            record = self._read(place, offset)
            if record is None:
                leases.lose(offset)
                found.expired += 1
                continue
            if isinstance(record, Unreadable):
                leases.acknowledge(offset)
                found.unreadable.append(record)
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
        if limits.bytes <= 0 and found.batches:
            return
        pull = self._pull(place, wanted, leases, limits)
        if pull is None:
            return
        is_returned = self._table.is_returned
        records = [each for each in pull.records if not is_returned(place, each.queue_offset)]
        if records:
            self._deliver(place, leases, records, limits, found)
        found.unreadable += pull.unreadable
        leases.pass_to(pull.next_offset)
        self._table.pass_returned(place, leases.next)

    def _pull(
        self, place: Place, wanted: PullFilter | None, leases: QueueLeases, limits: Limits
    ) -> Pull | None:
        """The next messages of a queue; None where it has none, or they must not be read."""
        where = place.topic, place.queue_id, leases.next
        count, most = min(limits.count, leases.room), max(1, limits.bytes)
        if limits.is_in_memory:
            found = None  # the filter of a retry topic needs the messages
            if wanted is None:
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
        records: list[Record],
        limits: Limits,
        found: Received,
    ) -> None:
        if limits.turn is not None:
            epoch = limits.turn.epochs[Queue(place.topic, place.queue_id)]
            limits.lease = receipts.lease_of_epoch(self._random, epoch)
        elif not limits.lease:
            limits.lease = receipts.new_lease(self._random)
        offsets = [record.queue_offset for record in records]
        attempts = leases.lease(offsets, limits.lease, limits.deadline)
        where = self._shard, place.topic, place.queue_id
        batch = DeliveredBatch(*where, limits.lease, records, attempts, place.topic)
        if place.topic.startswith(RETRY_PREFIX):
            found.batches += returned.by_source(batch)
        else:
            found.batches.append(batch)
        size = sum([record.size for record in records])
        found.size += size
        limits.count -= len(records)
        limits.bytes -= size

    def _limits(self, count: int, max_bytes: int, invisible_s: float) -> Limits:
        return Limits(count, max_bytes, self._seams.clock.monotonic() + invisible_s)

    def _read(self, place: Place, offset: int) -> Record | Unreadable | None:
        """The message at a queue offset; None for one that expired, or whose topic was deleted."""
        try:
            pull: Pull = self._store.lookups.records(place.topic, place.queue_id, offset, 1)
        except (QueueUnknown, TopicUnknown):
            return None
        if pull.records and pull.records[0].queue_offset == offset:
            return pull.records[0]
        return next((each for each in pull.unreadable if each.queue_offset == offset), None)

    # acknowledge, return, extend ----------------------------------------------------------

    def acknowledge(self, group: str, given: Sequence[Receipt]) -> list[ReceiptStatus]:
        """Acknowledge messages; saved within flushConsumerOffsetInterval. Idempotent.

        Raises GroupNameError, StoreNotWritable, StoreFailed.
        """
        return self._settle(group, given, acknowledge, in_order=True)

    def acknowledge_at_once(
        self, group: str, given: Sequence[QueueReceipts]
    ) -> list[ReceiptStatus] | None:
        """Acknowledge as ``acknowledge`` in a shared group; None, with no effect, in another, and
        where that waits for another call."""
        topic_names.check_group(group)
        lock = self._table.lock_of(group)
        if not lock.acquire(blocking=False):
            return None
        try:
            if self._ordered.knows(group):
                return None
            return self._settle_queues(group, given, acknowledge, in_order=True)
        finally:
            lock.release()

    def extend(
        self, group: str, given: Sequence[Receipt], invisible_s: float
    ) -> list[ReceiptStatus]:
        """Let leases end after this time from now; 0 gives the messages back unused: they are
        delivered again at once, and the delivery counts as no attempt.

        Raises GroupNameError, StoreNotWritable, StoreFailed.
        """
        deadline = self._seams.clock.monotonic() + invisible_s

        def act(leases: QueueLeases, receipt: Receipt) -> ReceiptStatus:
            if invisible_s > 0:
                leases.extend(receipt.offset, receipt.lease, deadline)
            else:
                leases.give_back(receipt.offset)
            return ReceiptStatus.OK

        return self._settle(group, given, act)

    def give_back(
        self,
        group: str,
        given: Sequence[Receipt],
        level: int,
        reason: str = "",
        delay_s: float | None = None,
    ) -> tuple[list[ReceiptStatus], int]:
        """Return messages: each is delivered again after a delay level, or is a dead letter; a
        group without retry queues drops it, as a broker does.

        ``level`` is RocketMQ's: 0 follows the number of retries, -1 makes a dead letter at once.
        ``delay_s`` stands for the shortest level that is as long. In an ordered group the message
        holds its queue for ``delay_s``, the time of the level, or ``returned.ORDERED_DELAY_S``.
        Returns the statuses, and the end of the copies in the log. Raises GroupNameError and errors
        of an append; messages whose copies are not stored stay leased.
        """
        config, done = self._store.groups.use(group), Received()
        levels = self._store.delays.levels
        is_shared = any(each.epoch is None for each in given)
        if delay_s is not None and is_shared and level != returned.DEAD:
            level = returned.level_of_delay(levels, delay_s)

        def act(leases: QueueLeases, receipt: Receipt) -> ReceiptStatus:
            if config.retry_queues <= 0 and receipt.epoch is None:
                leases.acknowledge(receipt.offset)
                return ReceiptStatus.OK
            record = self._read(Place(group, receipt.topic, receipt.queue_id), receipt.offset)
            if record is None:
                leases.lose(receipt.offset)
                return ReceiptStatus.EXPIRED
            if isinstance(record, Unreadable):
                leases.acknowledge(receipt.offset)
                return ReceiptStatus.DAMAGED
            failures = record.reconsume_times + leases.attempts(receipt.offset)
            if level == returned.DEAD or failures > config.retry_times_max:
                end = self._copies.append_dead(group, record, failures, reason)
            elif receipt.epoch is not None:
                delay = returned.hold_s(levels, level) if delay_s is None else delay_s
                leases.hold_back(self._seams.clock.monotonic() + delay)
                return ReceiptStatus.OK
            else:
                end = self._copies.append_retry(config, record, level, reason)
            done.end = max(done.end, end)
            leases.acknowledge(receipt.offset)
            return ReceiptStatus.OK

        return self._settle(group, given, act, in_order=True), done.end

    def undo(self, group: str, delivered: Iterable[Delivered]) -> None:
        """Undo the leases of messages that reached no consumer: they wait, as before."""
        with self._table.lock_of(group):
            for each in delivered:
                receipt = receipts.decode(each.receipt)
                place = Place(group, receipt.topic, receipt.queue_id)
                leases = self._table.current(place)
                if leases is not None:
                    leases.undo(receipt.offset, receipt.lease)
                    self._table.keep(place, leases)

    def _settle(
        self,
        group: str,
        given: Sequence[Receipt],
        act: Callable[[QueueLeases, Receipt], ReceiptStatus],
        *,
        in_order: bool = False,
    ) -> list[ReceiptStatus]:
        topic_names.check_group(group)
        with self._table.lock_of(group):
            return self._settle_queues(group, group_by_queue(given), act, in_order=in_order)

    def _settle_queues(
        self,
        group: str,
        given: Sequence[QueueReceipts],
        act: Callable[[QueueLeases, Receipt], ReceiptStatus],
        *,
        in_order: bool,
    ) -> list[ReceiptStatus]:
        """Settle receipts, those of an ordered queue by offset; commit once for each queue.

        ``in_order``: in ordered groups, only the first message of a queue that is not acknowledged.
        """
        found = [ReceiptStatus.STALE] * sum([len(each.numbers) for each in given])
        for of_queue in given:
            place = Place(group, of_queue.topic, of_queue.queue_id)
            if not self._ordered.is_current(group, Queue(*place[1:]), of_queue.epoch):
                continue
            ready = of_queue if of_queue.epoch is None else of_queue.by_offset()
            committed = self._store.offsets.committed(*place)
            leases = self._table.get(place, committed)
            try:
                statuses = settle_queue(leases, committed, ready, act, in_order=in_order)
            finally:
                if leases is not None:
                    self._table.keep(place, leases)
            for number, status in zip(ready.numbers, statuses, strict=True):
                found[number] = status
        return found

    # members of ordered groups ------------------------------------------------------------

    def join(self, group: str, member: str, topics: Sequence[str], session_s: float) -> MemberView:
        """Make a consumer a member of an ordered group, or renew its session.

        Raises GroupNameError, GroupUnknown, LimitReached, GroupDisabled, GroupShared, MembersFull,
        TopicUnknown, OSError.
        """
        self._consuming(group)
        with self._table.lock_of(group):
            return self._ordered.join(group, member, topics, session_s)

    def leave(self, group: str, member: str) -> None:
        """End the session of a member: others get its queues at once. Idempotent.

        Raises GroupNameError, OSError.
        """
        topic_names.check_group(group)
        with self._table.lock_of(group):
            self._ordered.leave(group, member)

    def members(self, group: str) -> list[MemberView]:
        """The members of an ordered group, by name; none for a shared one.

        Raises GroupNameError, OSError.
        """
        topic_names.check_group(group)
        with self._table.lock_of(group):
            return self._ordered.members(group)

    def commit(
        self,
        group: str,
        commits: Mapping[Commit, int | None],
        *,
        allow_back: bool = False,
    ) -> list[GroupOffset]:
        """Commit offsets, in an ordered group under the epochs of their queues: all or none.

        Raises EpochStale, GroupUnknown, LimitReached, OSError, and as ``GroupOffsets.commit``.
        """
        self._store.groups.use(group)
        with self._table.lock_of(group):
            for each, epoch in commits.items():
                self._ordered.check_commit(group, Queue(each.topic, each.queue_id), epoch)
            return self._store.offsets.commit(group, list(commits), allow_back=allow_back)

    def count_members(self) -> dict[str, tuple[int, int]]:
        """The number of members of each ordered group, and that of queues that none holds.

        Raises OSError.
        """
        found = {}
        for group in self._ordered.groups:
            with self._table.lock_of(group):
                found[group] = self._ordered.counts(group)
        return found

    # states -------------------------------------------------------------------------------

    def pending(self, group: str | None = None) -> dict[Place, PendingCounts]:
        """Count the messages that receives have reached, of one group or of all, by queue."""
        now, found = self._seams.clock.monotonic(), dict[Place, PendingCounts]()
        for place in self._table.places(group):
            with self._table.lock_of(place.group):
                leases = self._table.current(place)
                if leases is not None:
                    found[place] = PendingCounts(leases.count_leased(now), leases.done_count)
        return found

    def count_returned(self) -> Mapping[str, int] | None:
        """Count the returned messages that wait for their delay, by group; None when too many
        delayed messages wait to count them."""
        return group_states.count_returned(self._store)

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
        """Save offsets and acknowledgements. Errors as ``LeaseTable.save``."""
        self._table.save()

    def step(self, now: float) -> float:
        """See ``LeaseTable.step``."""
        return self._table.step(now)
