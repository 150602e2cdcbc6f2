"""``DeadLetters``: resends the dead letters of groups, and purges them, over an open store.

A resent message is stored before its dead letter is settled, and both are on disk at the reply.
After a kill between the two the dead letter is still listed. A message that is resent names its
dead letter, so that the next resend finds it by its unique key and stores no second one. A dead
letter without a unique key may be resent twice then; none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import Lock
from typing import Final

from mqstore.storage import topic_names
from mqstore.storage.codec import cursors, message_id
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    DeadLettersFull,
    MessageInvalid,
    MessageTooLarge,
    PropertiesTooLong,
    PropertyError,
    QueryError,
    RecordError,
    TopicNameError,
    TopicNotWritable,
    TopicTooLong,
    TopicUnknown,
)
from mqstore.storage.layout import PROPERTY_DEAD_LETTER, PROPERTY_SHARDING_KEY
from mqstore.storage.lookup import dead_letters
from mqstore.storage.lookup.dead_letters import DeadLetter, DeadLetterQuery
from mqstore.storage.lookup.topic_scan import TopicScans
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import settled_letters
from mqstore.storage.metadata.settled_letters import (
    NOTHING_SETTLED,
    RANGES_MAX,
    Place,
    SettledLetters,
)
from mqstore.storage.replication.table_feed import TableName
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups import returned
from mqstore.storage.shared_groups.storing import append, require_topic
from mqstore.storage.topic_names import DLQ_PREFIX, RETRY_PREFIX

READ_SIZE_MAX: Final = 16 << 20
"""Bytes of the dead letters that one call reads, beyond the first."""
COPIES_MAX: Final = 16
"""Number of messages under the unique key of a dead letter among which its copy is searched."""


class ResendTarget(StrEnum):
    """The destination of a dead letter."""

    TOPIC = "topic"
    """Its source topic: each group of the topic gets it."""
    GROUP = "group"
    """The retry topic of the group of the dead letter: only this group gets it."""


class LetterStatus(StrEnum):
    """The result of one dead letter of a resend or a purge."""

    DONE = "done"
    """Resent or purged by this call; a dry run would do it."""
    SETTLED = "settled"
    """Resent or purged before."""
    UNKNOWN = "unknown"
    """The group has no such dead letter here, or retention deleted it."""
    REFUSED = "refused"
    """Not to be resent; ``detail`` says why."""


@dataclass(frozen=True, slots=True)
class LetterResult:
    """The result of one dead letter."""

    message_id: str
    """Offset message id of the dead letter."""
    status: LetterStatus
    copy_id: str | None = None
    """Offset message id of the message that was resent."""
    topic: str | None = None
    """The topic that it was resent to."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LetterResults:
    """The results of a resend or a purge, and the cursor to continue with while there are more."""

    letters: list[LetterResult]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class PurgedQueue:
    """The effect of a purge on one queue."""

    queue_id: int
    count: int
    """Dead letters that are not listed any more."""


class DeadLetters:
    """The dead letters of all groups of one store. Thread-safe; one call at a time."""

    def __init__(
        self, store: MessageStore, seams: Seams, queue_of: Callable[[str, int], int]
    ) -> None:
        """``queue_of`` returns the queue of an ordering key in a topic of so many queues."""
        self._store = store
        self._files = seams.files
        self._path = store.paths.dead_letters
        self._scans = TopicScans(store.lookups, store.log, store.queues, store.state)
        self._lock = Lock()
        self._settled = dict(settled_letters.load(self._files, self._path))
        self._queue_of = queue_of
        self._turn = 0

    # resend -------------------------------------------------------------------------------

    def resend_chosen(
        self, group: str, ids: Sequence[str], to: ResendTarget, *, dry_run: bool = False
    ) -> LetterResults:
        """Resend the dead letters with these offset message ids; durable at return.

        Raises GroupNameError, MessageIdError, PutRefused, FlushTimeout, StoreFailed,
        DeadLettersFull, OSError. A call that failed may be repeated.
        """
        resend = self._resender(group, to, dry_run)
        return LetterResults(self._settle_chosen(group, ids, resend, dry_run))

    def resend_found(
        self,
        query: DeadLetterQuery,
        to: ResendTarget,
        *,
        limit: int,
        cursor: str | None = None,
        dry_run: bool = False,
    ) -> LetterResults:
        """Resend at most ``limit`` open dead letters that match, the oldest first; durable at
        return.

        ``cursor`` is that of an earlier result of the same query. Raises CursorError,
        RecordExpired, and as ``resend_chosen``.
        """
        group = query.topic.removeprefix(DLQ_PREFIX)
        resend = self._resender(group, to, dry_run)
        return self._settle_found(query, resend, limit, cursor, dry_run)

    def _resender(
        self, group: str, to: ResendTarget, dry_run: bool
    ) -> Callable[[Record], LetterResult]:
        topic_names.check_group(group)

        def resend(found: Record) -> LetterResult:
            letter, letter_id = DeadLetter(found), found.offset_message_id
            try:
                topic = self._target(group, letter, to)
                if self._was_resent(group, letter):
                    return LetterResult(letter_id, LetterStatus.SETTLED)
                if dry_run:
                    return LetterResult(letter_id, LetterStatus.DONE, None, topic)
                copy_id = self._append(letter, topic)
            except _UNSENDABLE as error:
                return LetterResult(letter_id, LetterStatus.REFUSED, detail=str(error))
            return LetterResult(letter_id, LetterStatus.DONE, copy_id, topic)

        return resend

    def _target(self, group: str, letter: DeadLetter, to: ResendTarget) -> str:
        """The topic to resend to.

        Raises TopicUnknown, TopicNameError, TopicNotWritable, PropertyError.
        """
        source = letter.source_topic
        if source is None:
            raise PropertyError("it has no property RETRY_TOPIC: produce its body to a topic")
        if to is ResendTarget.GROUP:
            source = RETRY_PREFIX + group
            with suppress(TopicUnknown):  # it is made
                self._store.topic(source).require_writable()
            return source
        topic_names.check_send_topic(source, self._store.format)
        self._store.topic(source).require_writable()
        return source

    def _was_resent(self, group: str, letter: DeadLetter) -> bool:
        """Whether a call that a kill cut short has resent a dead letter."""
        key, letter_id = letter.record.uniq_key, letter.record.offset_message_id
        if key is None:
            return False
        for topic in (letter.source_topic, RETRY_PREFIX + group):
            copies = self._store.lookups.by_key(topic or "", key, limit=COPIES_MAX).records
            for each in copies:
                if (each.properties or {}).get(PROPERTY_DEAD_LETTER) == letter_id:
                    return True
        return False

    def _append(self, letter: DeadLetter, topic: str) -> str:
        """Store the message once more; return its offset message id."""
        store = self._store
        if topic.startswith(RETRY_PREFIX):
            require_topic(store, topic, 1)
        queue_id = self._queue_in(max(1, store.topic(topic).write_queues), letter.record)
        copy = returned.copy_of_dead_letter(letter, topic, queue_id, store.host, store.format)
        return message_id.encode(store.host, append(store, copy).physical_offset)

    def _queue_in(self, queues: int, found: Record) -> int:
        """The queue of a message: that of its ordering key, or each in turn."""
        key = (found.properties or {}).get(PROPERTY_SHARDING_KEY)
        self._turn += 1
        return self._turn % queues if key is None else self._queue_of(key, queues)

    # purge --------------------------------------------------------------------------------

    def purge_chosen(
        self, group: str, ids: Sequence[str], *, dry_run: bool = False
    ) -> LetterResults:
        """Purge the dead letters with these offset message ids; durable at return.

        Raises GroupNameError, MessageIdError, DeadLettersFull, FlushTimeout, StoreFailed, OSError.
        """
        topic_names.check_group(group)
        return LetterResults(self._settle_chosen(group, ids, _purge, dry_run))

    def purge_found(
        self,
        query: DeadLetterQuery,
        *,
        limit: int,
        cursor: str | None = None,
        dry_run: bool = False,
    ) -> LetterResults:
        """Purge at most ``limit`` open dead letters that match, the oldest first; durable at
        return.

        ``cursor`` is that of an earlier result of the same query. Raises CursorError,
        RecordExpired, and as ``purge_chosen``.
        """
        topic_names.check_group(query.topic.removeprefix(DLQ_PREFIX))
        return self._settle_found(query, _purge, limit, cursor, dry_run)

    def purge_before(
        self,
        group: str,
        *,
        before_ms: int | None = None,
        offset: int | None = None,
        dry_run: bool = False,
    ) -> list[PurgedQueue]:
        """Purge the dead letters stored before a time, those in front of a queue offset, or
        (without either) all of a group; durable at return. Errors as ``purge_chosen``."""
        topic_names.check_group(group)
        topic = DLQ_PREFIX + group
        with self._lock:
            known = self._known(topic)
            done = []
            for queue in self._store.queues.of_topic(topic):
                high = queue.max_index
                low = min(queue.min_index, high)
                stop = high if offset is None else min(offset, high)
                if before_ms is not None:
                    found = self._store.lookups.offset_by_time(topic, queue.queue_id, before_ms)
                    stop = min(stop, found)
                before = known.get(queue.queue_id, NOTHING_SETTLED)
                count = max(0, stop - low) - before.count(low, stop)
                done.append(PurgedQueue(queue.queue_id, count))
                entry = queue.entry(stop - 1) if count and not dry_run else None
                if entry is not None:
                    last = Place(stop - 1, entry.physical_offset)
                    known[queue.queue_id] = before.with_ranges([(0, stop)], last, low)
            if not dry_run:
                self._save(topic, known)
        return done

    # both ---------------------------------------------------------------------------------

    def _settle_chosen(
        self,
        group: str,
        ids: Sequence[str],
        act: Callable[[Record], LetterResult],
        dry_run: bool,
    ) -> list[LetterResult]:
        topic = DLQ_PREFIX + group
        places = {each.upper(): message_id.decode(each)[1] for each in ids}
        with self._lock:
            found = [self._find(topic, *place) for place in places.items()]
            done = self._settle(topic, [each for each in found if each], act, dry_run)
        results = {each.message_id: each for each in done}
        return [results.get(each) or LetterResult(each, LetterStatus.UNKNOWN) for each in places]

    def _settle_found(
        self,
        query: DeadLetterQuery,
        act: Callable[[Record], LetterResult],
        limit: int,
        cursor: str | None,
        dry_run: bool,
    ) -> LetterResults:
        with self._lock:
            wanted = replace(query, newest_first=False, settled=self._known(query.topic))
            start = dead_letters.first_open(self._store.queues, query.topic, wanted.settled)
            if cursor is not None:
                start = cursors.decode(cursor, repr(wanted))
            found = self._scans.scan_from(wanted, start, limit=limit, max_bytes=READ_SIZE_MAX)
            letters = self._settle(query.topic, found.records, act, dry_run)
        return LetterResults(letters, found.cursor)

    def _find(self, topic: str, letter_id: str, offset: int) -> Record | None:
        """The dead letter of an id while its queue has it: its topic may have been deleted."""
        try:
            found = self._store.lookups.by_physical_offset(offset)
        except (QueryError, RecordError):
            return None
        if found.offset_message_id != letter_id or found.topic != topic:
            return None
        queue = self._store.queues.get(topic, found.queue_id)
        entry = None if queue is None else queue.entry(found.queue_offset)
        return found if entry is not None and entry.physical_offset == offset else None

    def _settle(
        self,
        topic: str,
        records: Sequence[Record],
        act: Callable[[Record], LetterResult],
        dry_run: bool,
    ) -> list[LetterResult]:
        """Act on open dead letters, then settle them, also those before one that fails."""
        known, results = self._known(topic), list[LetterResult]()
        self._require_room(len(records))
        settling: dict[int, list[Place]] = {}
        try:
            for each in records:
                if known.get(each.queue_id, NOTHING_SETTLED).has(each.queue_offset):
                    results.append(LetterResult(each.offset_message_id, LetterStatus.SETTLED))
                    continue
                results.append(act(each))
                if results[-1].status is not LetterStatus.REFUSED:
                    place = Place(each.queue_offset, each.physical_offset)
                    settling.setdefault(each.queue_id, []).append(place)
        finally:
            if settling and not dry_run:
                self._save(topic, self._joined(topic, known, settling))
        return results

    def _joined(
        self, topic: str, known: dict[int, SettledLetters], settling: dict[int, list[Place]]
    ) -> dict[int, SettledLetters]:
        for queue_id, places in settling.items():
            queue = self._store.queues.get(topic, queue_id)
            low = 0 if queue is None else queue.min_index
            added = [(each.queue_offset, each.queue_offset + 1) for each in places]
            before = known.get(queue_id, NOTHING_SETTLED)
            known[queue_id] = before.with_ranges(added, max(places), low)
        return known

    def _known(self, topic: str) -> dict[int, SettledLetters]:
        """The settled dead letters of a topic by queue id."""
        return dead_letters.settled_of(self._store.queues, topic, self._settled)

    def _require_room(self, count: int) -> None:
        """Raise DeadLettersFull if this many more dead letters may not be settled one by one."""
        if self._range_count + count > RANGES_MAX:
            self._drop_expired()
        if self._range_count + count > RANGES_MAX:
            raise DeadLettersFull(
                f"{self._range_count} separate ranges of dead letters are settled, and at most "
                f"{RANGES_MAX} may be; purge the oldest dead letters"
            )

    @property
    def _range_count(self) -> int:
        return sum(len(each.ranges) for each in self._settled.values())

    def _drop_expired(self) -> None:
        """Forget what is settled of deleted topics, and of messages that retention deleted."""
        kept: dict[tuple[str, int], SettledLetters] = {}
        for (topic, queue_id), known in self._settled.items():
            queue = self._store.queues.get(topic, queue_id)
            if queue is not None:
                kept[topic, queue_id] = known.with_ranges((), known.last, queue.min_index)
        self._settled = kept

    def _save(self, topic: str, known: dict[int, SettledLetters]) -> None:
        """Save what is settled, once the log has it on disk: its offsets are not given out again.

        Raises FlushTimeout, StoreFailed, OSError.
        """
        self._store.log.sync()
        others = {place: each for place, each in self._settled.items() if place[0] != topic}
        settled = others | {(topic, queue_id): each for queue_id, each in known.items()}
        settled_letters.save(self._files, self._path, settled)
        self._store.table_feed.note(TableName.DEAD_LETTERS)
        self._settled = settled


def _purge(found: Record) -> LetterResult:
    return LetterResult(found.offset_message_id, LetterStatus.DONE)


_UNSENDABLE: Final = (
    MessageInvalid,
    MessageTooLarge,
    PropertiesTooLong,
    PropertyError,
    TopicNameError,
    TopicNotWritable,
    TopicTooLong,
    TopicUnknown,
)
"""Errors that are about one dead letter only."""
