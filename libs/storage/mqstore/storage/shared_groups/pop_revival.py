"""Delivers again what POP consumers of a broker took and did not acknowledge in time.

As a broker does: a checkpoint whose time is over and whose acknowledgements have all arrived is
settled by a copy of each message that was not acknowledged, in the group's POP retry topic. Shared
groups receive from that topic, as POP consumers do once a broker has the store again. Source:
PopReviveService of 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.delay.timer import TimerStatus
from mqstore.storage.errors import (
    OffsetRefused,
    PropertyError,
    PutRefused,
    QueueUnknown,
    TopicUnknown,
)
from mqstore.storage.layout import PROPERTY_CRC32, PROPERTY_ORIGIN_GROUP, PROPERTY_TIMER_OUT
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.lookup import pop_records
from mqstore.storage.lookup.pop_records import REVIVE_GROUP, REVIVE_PREFIX, Batch, Checkpoint
from mqstore.storage.message_store import MessageStore
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups.storing import append, require_topic
from mqstore.storage.topic_names import RETRY_PREFIX

_INTERVAL_S: Final = 1.0
_RECORDS_PER_STEP: Final = 1_000
_ARRIVAL_MS: Final = 2_000
"""Time after a checkpoint's end in which its acknowledgements arrive: RocketMQ waits one second for
the acknowledgements, and one more."""
_FIRST_TAKEN: Final = "1ST_POP_TIME"

log = bounded_log(__name__)


@dataclass(slots=True)
class _Open:
    """A checkpoint that is not settled."""

    checkpoint: Checkpoint
    position: int
    """Its offset in the revive queue."""
    missing: list[int]
    """Offsets of its messages without an acknowledgement."""


@dataclass(slots=True)
class _Progress:
    """The state of one revive queue."""

    next: int
    """Offset of the next record to read."""
    reached_ms: int = 0
    """Time of arrival of the last record that was read."""
    open: dict[Batch, _Open] = field(default_factory=dict)


class PopRevival:
    """A ``BackgroundService`` over one store that leads."""

    name = "pop-revival"

    def __init__(self, store: MessageStore, seams: Seams) -> None:
        self.revived = 0
        """Messages that were delivered again."""
        self._store = store
        self._clock = seams.clock
        self._queues: dict[tuple[str, int], _Progress] = {}

    def step(self, now: float) -> float:
        """Settle what is due; what the store refuses is tried again. Raises StoreFailed."""
        try:
            for topic in self._store.queues.topics():
                if topic.startswith(REVIVE_PREFIX):
                    for queue_id in self._store.queues.queue_ids(topic):
                        self._settle_queue(topic, queue_id)
        except (PutRefused, OSError) as error:
            log.warning("messages of POP consumers wait: %s", error)
        return now + _INTERVAL_S

    def _settle_queue(self, topic: str, queue_id: int) -> None:
        progress = self._queues.get((topic, queue_id))
        if progress is None:
            settled = self._store.offsets.committed(REVIVE_GROUP, topic, queue_id)
            progress = _Progress(0 if settled is None else settled + 1)
            self._queues[topic, queue_id] = progress
        timers = self._store.delays.timer.status()  # what it delivers from now on may not be read
        is_at_end = self._read(topic, queue_id, progress)
        for batch, each in list(progress.open.items()):
            over_ms = each.checkpoint.due_ms + _ARRIVAL_MS
            waits = not is_at_end or _may_deliver_until(timers, over_ms)
            if progress.reached_ms <= over_ms and (waits or self._clock.now_ms() <= over_ms):
                break  # an acknowledgement may still arrive
            self._settle(each)
            del progress.open[batch]
            self._commit(REVIVE_GROUP, topic, queue_id, each.position)

    def _read(self, topic: str, queue_id: int, progress: _Progress) -> bool:
        """Read on in a revive queue; return whether its end was reached."""
        for _ in range(_RECORDS_PER_STEP // 32):
            try:
                pull = self._store.lookups.records(topic, queue_id, progress.next)
            except QueueUnknown:
                return True
            if pull.next_offset <= progress.next:
                return True
            progress.next = pull.next_offset
            for record in pull.records:
                self._note(record, progress)
        return False

    def _note(self, record: Record, progress: _Progress) -> None:
        found = pop_records.decode(record)
        if isinstance(found, Checkpoint):
            progress.open[found.batch] = _Open(found, record.queue_offset, list(found.offsets))
        elif found is not None and (known := progress.open.get(found.batch)) is not None:
            known.missing = [each for each in known.missing if each not in found.offsets]
        arrived = (record.properties or {}).get(PROPERTY_TIMER_OUT, "")
        if arrived.isdecimal():
            progress.reached_ms = max(progress.reached_ms, int(arrived))

    def _settle(self, found: _Open) -> None:
        for offset in found.missing:
            record = self._record(found.checkpoint, offset)
            if record is not None:
                self._revive(found.checkpoint, record)

    def _record(self, checkpoint: Checkpoint, offset: int) -> Record | None:
        """The message at a queue offset; None for one that expired or cannot be read."""
        try:
            pull = self._store.lookups.records(checkpoint.topic, checkpoint.batch[2], offset, 1)
        except (QueueUnknown, TopicUnknown):
            return None
        found = pull.records[0] if pull.records else None
        return found if found is not None and found.queue_offset == offset else None

    def _revive(self, checkpoint: Checkpoint, record: Record) -> None:
        topic = self._retry_topic(checkpoint)
        require_topic(self._store, topic, 1)
        if self._store.offsets.committed(checkpoint.group, topic, 0) is None:
            self._commit(checkpoint.group, topic, 0, 0)
        try:
            append(self._store, self._copy(checkpoint, record, topic))
        except PropertyError as error:
            log.warning("message %s is not revived: %s", record.offset_message_id, error)
            return
        self.revived += 1

    def _retry_topic(self, checkpoint: Checkpoint) -> str:
        if checkpoint.topic.startswith(RETRY_PREFIX):
            return checkpoint.topic
        newer, older = pop_records.retry_topics(checkpoint.group, checkpoint.topic)
        try:
            self._store.topic(newer)
        except TopicUnknown:
            return older
        return newer

    def _copy(self, checkpoint: Checkpoint, record: Record, topic: str) -> Message:
        known, store = record.properties or {}, self._store
        changes: dict[str, str | None] = {
            PROPERTY_ORIGIN_GROUP: checkpoint.group,
            PROPERTY_CRC32: None,
        }
        if record.reconsume_times == 0 or _FIRST_TAKEN not in known:
            changes[_FIRST_TAKEN] = str(checkpoint.batch[4])
        separator = store.format.trailing_property_separator
        return Message(
            topic=topic,
            queue_id=0,
            body=record.body,
            properties=properties.replace(
                record.raw_properties, changes, trailing_separator=separator
            ),
            born_host=store.host,
            store_host=store.host,
            born_timestamp_ms=record.born_timestamp_ms,
            flag=record.flag,
            sys_flag=record.sys_flag,
            reconsume_times=record.reconsume_times + 1,
        )

    def _commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        try:
            self._store.offsets.commit(group, [Commit(topic, queue_id, offset)])
        except (OffsetRefused, QueueUnknown, TopicUnknown) as error:
            log.warning("the offset of %s is not moved: %s", group, error)


def _may_deliver_until(timers: TimerStatus, time_ms: int) -> bool:
    return timers.pending > 0 and (timers.next_due_ms is None or timers.next_due_ms <= time_ms)
