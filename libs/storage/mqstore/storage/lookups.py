"""Every way to find a message, once: for the writer's own process and for read-only readers.

A look-up copies what it reads and then looks at the epoch again: when recovery changed bytes in
between, it reads once more. Queue and index entries count only below the dispatched offset.
Nothing here waits, and every loop is bounded by a limit that the caller gave or that stands here.

Called from ``message_store``, ``store_reader`` and the services. Every method may be called from
any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from mqstore.storage import key_cursor
from mqstore.storage._kernel import read_entries
from mqstore.storage.codec import message_id, record
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    KeyUnknown,
    OffsetOutOfRange,
    QueueUnknown,
    RecordBlockCorrupt,
    RecordBodyCorrupt,
    RecordError,
    RecordExpired,
    RecordTombstone,
    StorageError,
    StoreNotOpen,
    TopicUnknown,
)
from mqstore.storage.key_query import KeyQuery
from mqstore.storage.layout import BLANK_RECORD_SIZE, MAGIC_BLANK
from mqstore.storage.log.multi_dispatch import further_queues
from mqstore.storage.lookup_views import (
    Bounds,
    Entry,
    IndexView,
    LogView,
    QueuesView,
    QueueView,
    names_record,
    repeats,
)
from mqstore.storage.own.block_guard import BlockGuard

COUNT_MAX: Final = 1_000
"""Most records in one answer."""
BYTES_MAX_DEFAULT: Final = 8 << 20
ENTRIES_PER_CALL_MAX: Final = 10_000
"""Queue entries looked at for one answer; holes and expired ones count too."""
CANDIDATES_PER_CALL_MAX: Final = 10_000
"""Index candidates whose records are read for one answer."""
TAIL_SCAN_MAX: Final = 1 << 20
"""Bytes above the dispatched offset that a key query reads itself."""
_TRIES: Final = 8
TIME_MAX: Final = (1 << 63) - 1
"""Milliseconds; the end of a time range without one, as RocketMQ's Long.MAX_VALUE."""
_SIZE_AND_MAGIC = struct.Struct(">iI")

T = TypeVar("T")


class PullStatus(StrEnum):
    """How a queue range was answered; RocketMQ's GetMessageStatus names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """Entries were there, but no record among those looked at could be read; go on at next."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """At the queue's end: wait for arrivals."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    """Beyond the queue's end."""
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    """Below the queue's minimum: what was there has expired."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """Nothing was ever written."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there, and cannot be read; ``queue_offset`` where a queue named it."""

    physical_offset: int
    error: StorageError
    queue_offset: int | None = None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """First queue offset that is there, and the next one to be written."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


@dataclass(slots=True)
class Pull:
    """Records of one queue, ascending; ``next_offset`` is where to go on."""

    status: PullStatus
    records: list[Record]
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(slots=True)
class Scanned:
    """What a key query looked at."""

    from_ms: int
    to_ms: int
    candidates: int
    """Index entries whose records were read."""
    min_offset: int
    """First physical offset of the log as it was."""
    max_offset: int
    """Everything below it was looked for."""


@dataclass(slots=True)
class KeyAnswer:
    """Records under a key, newest first.

    ``complete`` says that no record is missing: there is no ``cursor`` to go on with, and the
    index covered the whole log all along.
    """

    records: list[Record]
    unreadable: list[Unreadable]
    """Records under that key whose body is damaged."""
    cursor: str | None
    complete: bool
    scanned: Scanned


class Lookups:
    """The read paths over a log, its queues and its index."""

    def __init__(
        self,
        log: LogView,
        queues: QueuesView,
        index: IndexView,
        bounds: Bounds,
        blocks: BlockGuard,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._bounds = bounds
        self._blocks = blocks

    # one record ---------------------------------------------------------------------------

    def by_physical_offset(self, offset: int) -> Record:
        """The record that begins at a physical offset.

        Raises RecordExpired, OffsetOutOfRange (beyond the end, or no record begins there),
        RecordError by its defect.
        """
        return self._settled(lambda: self._read(offset))

    def by_message_id(self, text: str) -> Record:
        """The record of an offset message id (32 hexadecimal characters, or 56 for IPv6).

        Raises MessageIdError, and as ``by_physical_offset``; OffsetOutOfRange also when the record
        there was stored under another host than the id names.
        """
        _, offset = message_id.decode(text)
        found = self.by_physical_offset(offset)
        if found.offset_message_id != text.upper():
            raise OffsetOutOfRange(f"no message {text} in this store: its host is another's")
        return found

    def by_unique_key(self, topic: str, key: str) -> Record:
        """The newest record of a topic with that UNIQ_KEY.

        Raises KeyUnknown, whose ``complete`` says whether the whole log could be looked at.
        """
        query = KeyQuery(topic, key, 0, TIME_MAX, uniq_key_only=True)
        answer = self._settled(lambda: self._by_key(query, 1, None))
        if answer.unreadable and not answer.records:
            raise answer.unreadable[0].error
        if not answer.records:
            complete = answer.complete
            raise KeyUnknown(f"no message of {topic} has the unique key {key}", complete=complete)
        return answer.records[0]

    # by key -------------------------------------------------------------------------------

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        from_ms: int = 0,
        to_ms: int | None = None,
        limit: int = 64,
        cursor: str | None = None,
    ) -> KeyAnswer:
        """Records of a topic with that UNIQ_KEY or among whose KEYS it is, newest first.

        Store timestamps within ``from_ms`` … ``to_ms``, both included. ``cursor`` is what an
        earlier answer to the same query gave. Hash collisions are left out. Raises CursorError.
        """
        query = KeyQuery(topic, key, from_ms, TIME_MAX if to_ms is None else to_ms)
        below = None if cursor is None else key_cursor.decode(cursor, repr(query))
        count = max(1, min(limit, COUNT_MAX))
        return self._settled(lambda: self._by_key(query, count, below))

    def _by_key(self, query: KeyQuery, limit: int, below: int | None) -> KeyAnswer:
        complete = self._bounds.index_complete
        # The end is taken before the dispatched offset: what lies between is the tail.
        end = self._log.max_offset
        dispatched = min(self._bounds.dispatched_offset, end)
        tail, tail_is_whole = self._tail(dispatched, end)
        minimum = self._log.min_offset
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        cursor: str | None = None
        looked_at = 0
        for offset in self._newest_first(query, tail, dispatched, below):
            if len(records) == limit or looked_at == CANDIDATES_PER_CALL_MAX:
                cursor = key_cursor.encode(offset + 1, repr(query))
                break
            looked_at += 1
            self._judge(query, offset, records, unreadable)
        whole = complete and tail_is_whole and cursor is None and self._bounds.index_complete
        reached = end if tail_is_whole else dispatched
        scanned = Scanned(query.from_ms, query.to_ms, looked_at, minimum, reached)
        return KeyAnswer(records, unreadable, cursor, whole, scanned)

    def _judge(
        self, query: KeyQuery, offset: int, records: list[Record], unreadable: list[Unreadable]
    ) -> None:
        """Read a candidate; it joins the answer when it is what was asked for."""
        try:
            found = self._read(offset)
            if query.accepts(found):
                records.append(found)
        except (RecordBlockCorrupt, RecordBodyCorrupt, RecordTombstone) as error:
            if self._accepts_head(query, offset):
                unreadable.append(Unreadable(offset, error))
        except StorageError:
            return  # expired meanwhile, or an entry from before a cut

    def _accepts_head(self, query: KeyQuery, offset: int) -> bool:
        """Whether a record is what was asked for, whatever its body."""
        try:
            return query.accepts(self._read(offset, with_body=False))
        except RecordBlockCorrupt:
            return True  # nobody can tell: its topic and keys may be what changed
        except StorageError:
            return False

    def _newest_first(
        self, query: KeyQuery, tail: list[int], dispatched: int, below: int | None
    ) -> Iterator[int]:
        """Candidates, each once: the undispatched tail, then the index."""
        bound = self._log.max_offset if below is None else below
        yield from (offset for offset in reversed(tail) if offset < bound)
        bound = min(bound, dispatched)
        minimum = self._log.min_offset
        begin, end = query.from_ms, query.to_ms
        for offset in self._index.candidates(query.topic, query.key, begin, end, bound):
            if minimum <= offset < bound:
                bound = offset
                yield offset

    def _tail(self, start: int, end: int) -> tuple[list[int], bool]:
        """Where the records stand that dispatch has not reached, and whether these are all."""
        found: list[int] = []
        if end - start > TAIL_SCAN_MAX:
            return found, False
        position = start
        while position < end:
            try:
                size, magic = self._size_and_magic(position)
            except StorageError:
                return found, False
            if size < BLANK_RECORD_SIZE:
                return found, False
            if magic != MAGIC_BLANK:
                found.append(position)
            position += size
        return found, True

    # by queue -----------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Names of topics that have a queue, sorted."""
        return sorted({queue.topic for queue in self._queues.all()})

    def queues(self, topic: str) -> list[QueueRange]:
        """Every queue of a topic with its bounds, by queue id. Raises TopicUnknown."""
        found = [self._range(queue) for queue in self._queues.all() if queue.topic == topic]
        if not found:
            raise TopicUnknown(f"no queue of topic {topic} in this store")
        return sorted(found, key=lambda each: each.queue_id)

    def queue_range(self, topic: str, queue_id: int) -> QueueRange:
        """Raises QueueUnknown."""
        return self._range(self._queue(topic, queue_id))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the first record stored at or after a time; the queue's maximum when
        there is none. Raises QueueUnknown."""
        queue = self._queue(topic, queue_id)
        return self._settled(lambda: self._first_at(queue, timestamp_ms))

    def records(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int = 32,
        max_bytes: int = BYTES_MAX_DEFAULT,
    ) -> Pull:
        """Records of a queue from ``offset`` (from its minimum when that is higher).

        At most ``count`` records and, beyond the first, ``max_bytes`` of them. Holes and expired
        entries are skipped; unreadable records are named. Raises QueueUnknown, OffsetOutOfRange
        for a negative offset.
        """
        queue = self._queue(topic, queue_id)
        return self._settled(lambda: self._pull(queue, offset, count, max_bytes))

    def _pull(self, queue: QueueView, offset: int, count: int, max_bytes: int) -> Pull:
        if offset < 0:
            raise OffsetOutOfRange(f"queue offset {offset} is negative; begin at 0")
        bounds = self._range(queue)
        low, high = bounds.min_offset, bounds.max_offset
        if offset >= high:
            at_end = offset == high
            status = PullStatus.OFFSET_OVERFLOW_ONE if at_end else PullStatus.OFFSET_OVERFLOW_BADLY
            return Pull(status, [], [], high, low, high)
        pull = Pull(PullStatus.FOUND, [], [], max(offset, low), low, high)
        self._fill(queue, pull, max(1, min(count, COUNT_MAX)), max_bytes)
        if not pull.records:
            pull.status = self._why_empty(queue, pull)
        return pull

    def _fill(self, queue: QueueView, pull: Pull, count: int, max_bytes: int) -> None:
        """Take records into an answer until something ends it; its ``next_offset`` goes along."""
        taken, dispatched = 0, self._bounds.dispatched_offset
        stop = min(pull.max_offset, pull.next_offset + ENTRIES_PER_CALL_MAX)
        while pull.next_offset < stop:
            left = count - len(pull.records) - len(pull.unreadable)
            if left == 0:
                return
            most = min(left, stop - pull.next_offset)
            found, taken = self._plain(queue, pull.next_offset, most, dispatched, taken, max_bytes)
            if found:
                pull.records += found
                pull.next_offset += len(found)
            else:
                reached = self._take(queue, pull, dispatched, taken, max_bytes)
                if reached is None:
                    return
                taken = reached

    def _plain(
        self, queue: QueueView, index: int, count: int, dispatched: int, taken: int, max_bytes: int
    ) -> tuple[list[Record], int]:
        """Records of entries from ``index`` that lie in one segment, as far as they are plain."""
        block = queue.block(index)
        if block is None:
            return [], taken
        entries, position = block
        offset = int.from_bytes(entries[position : position + 8])
        place = self._log.view_from(offset) if offset < dispatched else None
        if place is None:
            return [], taken
        view, at, end = place
        base = offset - at
        end = min(end, dispatched - base)
        topic = queue.topic.encode("utf-8", "surrogateescape")
        found, reached = read_entries(
            Record,
            entries,
            position,
            count,
            view,
            base,
            end,
            topic,
            queue.queue_id,
            index,
            taken,
            max_bytes,
        )
        whole = self._blocks.count_whole(view, base, found)
        if whole < len(found):
            found = found[:whole]
            reached = taken + sum(each.size for each in found)
        return found, reached

    def _take(
        self, queue: QueueView, pull: Pull, dispatched: int, taken: int, max_bytes: int
    ) -> int | None:
        """Handle the one entry at ``next_offset``; bytes taken by then, None to go no further."""
        index = pull.next_offset
        entry = queue.entry(index)
        if entry is not None and names_record(entry):
            is_filler = repeats(entry, queue.entry(index - 1))
            if not (is_filler and self._is_filler(queue, index, entry)):
                end = entry.physical_offset + entry.size
                if end > dispatched and self._is_coming(entry):
                    return None
                if taken and taken + entry.size > max_bytes:
                    return None
                try:
                    pull.records.append(self._named(queue, index, entry))
                    taken += entry.size
                except RecordExpired:
                    pass
                except StorageError as error:
                    pull.unreadable.append(Unreadable(entry.physical_offset, error, index))
        pull.next_offset = index + 1
        return taken

    def _is_filler(self, queue: QueueView, index: int, entry: Entry) -> bool:
        """Whether an entry that repeats the one before fills a hole: no record is its own.

        Where the one before was damaged into repeating this one, the record knows its place.
        """
        try:
            found = self._read(entry.physical_offset, entry.size, with_body=False)
        except StorageError:
            return True
        own = (found.topic, found.queue_id, found.queue_offset)
        return own != (queue.topic, queue.queue_id, index)

    def _named(self, queue: QueueView, index: int, entry: Entry) -> Record:
        """An entry's record."""
        found = self._read(entry.physical_offset, entry.size)
        if (
            found.queue_offset != index
            or found.topic != queue.topic
            or found.queue_id != queue.queue_id
        ):
            self._refuse_another(queue, index, found)
        return found

    def _bytes_at(self, offset: int, size: int) -> bytes | None:
        place = self._log.view_from(offset)
        if place is None or place[1] + size > place[2]:
            return None
        view, position, _ = place
        return bytes(view[position : position + size])

    def _refuse_another(self, queue: QueueView, index: int, found: Record) -> None:
        """OffsetOutOfRange when the record stands in its own place, so that the entry is damaged.

        A record that says it is elsewhere and is not there is taken: a broker may have counted its
        queue anew, or its header is damaged.
        """
        if (queue.topic, index) in further_queues(found):
            return
        its_queue = self._queues.get(found.topic, found.queue_id)
        named = None if its_queue is None else its_queue.entry(found.queue_offset)
        place = (found.physical_offset, found.size)
        if named is not None and (named.physical_offset, named.size) == place:
            raise OffsetOutOfRange(
                f"entry {index} of queue {queue.queue_id} of {queue.topic} is damaged: it names "
                f"the record at queue offset {found.queue_offset} of queue {found.queue_id} of "
                f"{found.topic}"
            )

    def _why_empty(self, queue: QueueView, pull: Pull) -> PullStatus:
        entry = queue.entry(pull.next_offset)
        at_end = pull.next_offset == pull.max_offset or (
            entry is not None and names_record(entry) and self._is_coming(entry)
        )
        if at_end and not pull.unreadable:
            return PullStatus.OFFSET_OVERFLOW_ONE
        return PullStatus.NO_MATCHED_MESSAGE

    def _is_coming(self, entry: Entry) -> bool:
        """Its record is in the log and dispatch has not got there: not to be trusted yet."""
        end = entry.physical_offset + entry.size
        return self._bounds.dispatched_offset < end <= self._log.max_offset

    def _first_at(self, queue: QueueView, timestamp_ms: int) -> int:
        low, end = queue.min_index, queue.max_index
        high = end
        while low < high:
            middle = (low + high) // 2
            probe, stored_ms = self._next_stored(queue, middle, high)
            if stored_ms is None or stored_ms >= timestamp_ms:
                high = middle
            else:
                low = probe + 1
        return self._next_stored(queue, low, end)[0]

    def _next_stored(self, queue: QueueView, start: int, stop: int) -> tuple[int, int | None]:
        """The first entry from ``start`` with a readable record, and its store timestamp;
        ``stop`` when there is none."""
        for index in range(start, min(stop, start + ENTRIES_PER_CALL_MAX)):
            entry = queue.entry(index)
            if entry is None or not names_record(entry) or self._is_coming(entry):
                continue
            try:
                found = self._read(entry.physical_offset, with_body=False)
            except StorageError:
                continue
            return index, found.store_timestamp_ms
        return stop, None

    def _queue(self, topic: str, queue_id: int) -> QueueView:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            raise QueueUnknown(f"no queue {queue_id} of topic {topic} in this store")
        return queue

    def _range(self, queue: QueueView) -> QueueRange:
        # The maximum first: a queue that grows or expires meanwhile never shows min above max.
        high = queue.max_index
        return QueueRange(queue.topic, queue.queue_id, min(queue.min_index, high), high)

    # reading ------------------------------------------------------------------------------

    def _settled(self, read: Callable[[], T]) -> T:
        """What ``read`` answers or raises, once no recovery changed anything under it."""
        for _ in range(_TRIES):
            epoch = self._bounds.epoch
            self._blocks.renew(epoch)
            failure: StorageError | None = None
            try:
                answer = read()
            except StorageError as error:
                failure = error
            if self._bounds.epoch != epoch:
                continue
            if failure is not None:
                raise failure
            return answer
        raise StoreNotOpen("recovering", "the store is being recovered; try again")

    def _read(
        self, offset: int, expected_size: int | None = None, *, with_body: bool = True
    ) -> Record:
        place = self._log.view_from(offset)
        if place is None or place[1] >= place[2]:
            raise self._unreadable(offset, None)
        view, position, end = place
        try:
            found = record.decode(
                view,
                position,
                end,
                physical_offset=offset,
                verify_body=with_body,
                with_body=with_body,
            )
        except RecordError as error:
            raise self._unreadable(offset, error) from None
        self._blocks.check(view, position, offset, found.size)
        if expected_size is not None and found.size != expected_size:
            raise OffsetOutOfRange(
                f"record at offset {offset} has {found.size} bytes; its queue says {expected_size}"
            )
        return record.message_of(found) if with_body else found

    def _unreadable(self, offset: int, error: RecordError | None) -> StorageError:
        """Why there is no record: a place where none can begin, or the record's own defect."""
        size, magic = self._size_and_magic(offset)
        if magic == MAGIC_BLANK:
            return OffsetOutOfRange(f"no record at offset {offset}: it is the end of a segment")
        if error is None or size < BLANK_RECORD_SIZE or self._bytes_at(offset, size) is None:
            return self._absent(offset, f"no record begins at offset {offset}")
        return error

    def _size_and_magic(self, offset: int) -> tuple[int, int]:
        end = self._log.max_offset
        if not 0 <= offset < end:
            raise OffsetOutOfRange(f"offset {offset} is not below the log's end, {end}")
        head = self._bytes_at(offset, BLANK_RECORD_SIZE)
        if head is None:
            raise self._absent(offset, f"no record begins at offset {offset}")
        size, magic = _SIZE_AND_MAGIC.unpack_from(head)
        return size, magic

    def _absent(self, offset: int, why: str) -> StorageError:
        """Looked at last: a segment may go while it is being read."""
        if offset < self._log.min_offset:
            return RecordExpired(f"offset {offset} is below the log's first, it has expired")
        return OffsetOutOfRange(why)
