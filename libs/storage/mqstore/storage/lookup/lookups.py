"""``Lookups`` finds messages by every key, for the writer's own process and for read-only readers.

The kernel reads the plain cases by itself (``LogWindow``); the others are handled here, one by one.
Queue and index entries count only below the dispatched offset. Nothing here waits, and every loop
is bounded by the caller's limit or by one of this module.

Called from ``message_store``, ``store_reader`` and the services. Every method may be called from
any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from mqstore.storage._kernel import Tags, in_memory, records_by_id
from mqstore.storage.codec import cursors, message_id
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    KeyUnknown,
    OffsetOutOfRange,
    QueryError,
    QueueUnknown,
    RecordError,
    RecordExpired,
    RecordTombstone,
    StorageError,
    TopicUnknown,
)
from mqstore.storage.layout import BLANK_RECORD_SIZE, MAGIC_BLANK, TRANSACTION_MASK
from mqstore.storage.log.multi_dispatch import further_queues
from mqstore.storage.lookup.answers import (
    KeyAnswer,
    Pull,
    PullStatus,
    QueueRange,
    ScanRange,
    Slices,
    Unreadable,
)
from mqstore.storage.lookup.key_query import KeyQuery
from mqstore.storage.lookup.log_reads import LogReads
from mqstore.storage.lookup.queue_ranges import QueueRanges
from mqstore.storage.lookup.time_search import TimeSearch
from mqstore.storage.lookup.views import (
    Bounds,
    Entry,
    IndexView,
    LogView,
    QueuesView,
    QueueView,
    is_copy_of,
    names_record,
)
from mqstore.storage.metadata.block_guard import BlockGuard
from mqstore.storage.metadata.clock_steps import NO_STEPS, StepsView

COUNT_MAX: Final = 1_000
"""Maximum number of records in one answer."""
BYTES_MAX_DEFAULT: Final = 8 << 20
ENTRIES_PER_CALL_MAX: Final = 10_000
"""Maximum number of queue entries examined for one answer, holes and expired ones included."""
CANDIDATES_PER_CALL_MAX: Final = 10_000
"""Maximum number of index candidates whose records are read for one answer."""
TAIL_SCAN_MAX: Final = 1 << 20
"""Maximum bytes above the dispatched offset that a key query scans itself."""
TIME_MAX: Final = (1 << 63) - 1
"""Default end of a time range in ms: RocketMQ's Long.MAX_VALUE."""

_FOUND: Final = PullStatus.FOUND

A = TypeVar("A", Pull, Slices)


class Lookups:
    """The read paths over a log, its queues and its index."""

    def __init__(
        self,
        log: LogView,
        queues: QueuesView,
        index: IndexView,
        bounds: Bounds,
        blocks: BlockGuard,
        steps: Callable[[], StepsView] = lambda: NO_STEPS,
    ) -> None:
        """``steps`` are the clock steps that the writer recorded: store times go back there."""
        self._steps = steps
        self._log = log
        self._queues = queues
        self._index = index
        self._bounds = bounds
        self._reads = LogReads(log, queues, bounds, blocks)
        self.read_consistently = self._reads.read_consistently
        """See ``LogReads.read_consistently``; scans of several records use it too."""
        self._window = blocks.window
        self._ranges = QueueRanges(bounds)
        self.times = TimeSearch(log, bounds, self._reads, self._window, self._ranges, steps)
        self.forget = blocks.window.forget
        """Release segments that were read: they may have been removed."""

    # one record ---------------------------------------------------------------------------

    def by_physical_offset(self, offset: int) -> Record:
        """Read the record that begins at a physical offset.

        Raises RecordExpired, OffsetOutOfRange (beyond the end, or no record begins there),
        RecordError by its defect.
        """
        found = self._window.record_at(Record, offset)
        return self._reads.read_consistently(self._reads.read, offset) if found is None else found

    def slice_at(self, offset: int) -> bytes:
        """Read the bytes of the record that begins at a physical offset.

        Raises as ``by_physical_offset``.
        """
        found = self._window.slice_at(offset)
        return self.by_physical_offset(offset).raw if found is None else found

    def by_message_id(self, text: str) -> Record:
        """Read the record of an offset message id (32 hexadecimal characters, or 56 for IPv6).

        Raises MessageIdError, and as ``by_physical_offset``; OffsetOutOfRange also when the record
        there was stored under another host than the id names.
        """
        found = self._window.record_by_id(Record, text)
        if found is not None:
            return found
        _, offset = message_id.decode(text)
        found = self.by_physical_offset(offset)
        if found.offset_message_id != text.upper():
            raise OffsetOutOfRange(f"no message {text} in this store: its host is another's")
        return found

    def plain_by_ids(self, ids: list[str], max_bytes: int) -> list[Record | None]:
        """Read the records of ids in one call, as ``bulk.by_message_ids``; None for a record that
        needs a full check, and where there is none."""
        return records_by_id(self._window, Record, ids, max_bytes)

    def by_unique_key(self, topic: str, key: str) -> Record:
        """Find the newest record of a topic with that UNIQ_KEY.

        Raises KeyUnknown, whose ``complete`` says whether the whole log was covered.
        """
        answer = self._window.find_by_key(
            Record, self._index, topic, key, 0, TIME_MAX, True, TIME_MAX, 1
        )
        if answer is None:
            query = KeyQuery(topic, key, 0, TIME_MAX, uniq_key_only=True)
            answer = self._reads.read_consistently(self._by_key, query, 1, TIME_MAX)
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
        """Find the records of a topic with that UNIQ_KEY or KEYS, newest first.

        Store timestamps within ``from_ms`` … ``to_ms``, both included. ``cursor`` is that of an
        earlier answer to the same query. Hash collisions are left out. Raises CursorError.
        """
        to = TIME_MAX if to_ms is None else to_ms
        below, count = TIME_MAX, max(1, min(limit, COUNT_MAX))
        if cursor is not None:
            below = cursors.decode(cursor, repr(KeyQuery(topic, key, from_ms, to)))
        answer = None
        if not self._goes_back(from_ms, to):
            answer = self._window.find_by_key(
                Record, self._index, topic, key, from_ms, to, False, below, count
            )
        if answer is not None and answer.following < 0:
            return answer
        query = KeyQuery(topic, key, from_ms, to)
        if answer is None:
            return self._reads.read_consistently(self._by_key, query, count, below)
        answer.cursor = cursors.encode(answer.following + 1, repr(query))
        return answer

    def transaction_types(self, topic: str, key: str) -> frozenset[int] | None:
        """Transaction types (``TRANSACTION_MASK`` of SYSFLAG) of the newest 64 records of a topic
        with this UNIQ_KEY; None while the index does not cover the log."""
        found = self.by_key(topic, key)
        if not found.complete and found.cursor is None:
            return None
        return frozenset(
            each.sys_flag & TRANSACTION_MASK for each in found.records if each.uniq_key == key
        )

    def _by_key(self, query: KeyQuery, limit: int, below: int) -> KeyAnswer:
        complete = self._bounds.index_complete
        # The end is read before the dispatched offset: the tail lies between them.
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
                cursor = cursors.encode(offset + 1, repr(query))
                break
            looked_at += 1
            self._judge(query, offset, records, unreadable)
        whole = complete and tail_is_whole and cursor is None and self._bounds.index_complete
        reached = end if tail_is_whole else dispatched
        scanned = ScanRange(query.from_ms, query.to_ms, looked_at, minimum, reached)
        return KeyAnswer(records, unreadable, cursor, whole, scanned)

    def shift_ms(self, physical_offset: int) -> int:
        """The sum of clock steps since the record at an offset was stored, in ms."""
        return self._steps().shift_ms(physical_offset)

    def _goes_back(self, from_ms: int, to_ms: int) -> bool:
        """Whether a query has a time range, and the store times of the log are not in order."""
        is_about_times = from_ms > 0 or to_ms < TIME_MAX
        return is_about_times and bool(self.times.back_offsets)

    def _judge(
        self, query: KeyQuery, offset: int, records: list[Record], unreadable: list[Unreadable]
    ) -> None:
        """Read a candidate, and add it to the answer when it matches the query."""
        try:
            found = self._reads.read(offset)
            if query.accepts(found):
                records.append(found)
        except (RecordError, RecordTombstone) as error:
            if self._may_be_meant(query, offset):
                unreadable.append(Unreadable(offset, error))
        except QueryError:
            return  # expired meanwhile, or the entry is older than a cut of the log

    def _may_be_meant(self, query: KeyQuery, offset: int) -> bool:
        """Whether a damaged record may match the query, as far as it can be read."""
        try:
            return query.accepts(self._reads.read(offset, with_body=False))
        except RecordError:
            return True  # its topic and keys may be damaged
        except QueryError:
            return False

    def _newest_first(
        self, query: KeyQuery, tail: list[int], dispatched: int, below: int
    ) -> Iterator[int]:
        """Yield candidates, each once: the undispatched tail, then the index."""
        yield from (offset for offset in reversed(tail) if offset < below)
        bound = min(below, dispatched)
        minimum = self._log.min_offset
        begin, end = query.from_ms, query.to_ms
        if self._goes_back(begin, end):
            begin, end = 0, TIME_MAX  # times in the index are valid while they go forward
        for offset in self._index.candidates(query.topic, query.key, begin, end, bound):
            if minimum <= offset < bound:
                bound = offset
                yield offset

    def _tail(self, start: int, end: int) -> tuple[list[int], bool]:
        """The offsets of records that are not dispatched yet, and whether these are all."""
        found: list[int] = []
        if end - start > TAIL_SCAN_MAX:
            return found, False
        position = start
        while position < end:
            try:
                size, magic = self._reads.size_and_magic(position)
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
        return self._queues.topics()

    def queues(self, topic: str) -> list[QueueRange]:
        """The bounds of every queue of a topic, by queue id. Raises TopicUnknown."""
        found = self.read_consistently(self._ranges_of, topic)
        if not found:
            raise TopicUnknown(f"no queue of topic {topic} in this store")
        return found

    def _ranges_of(self, topic: str) -> list[QueueRange]:
        return [self._ranges.of(queue) for queue in self._queues.of_topic(topic)]

    def queue_range(self, topic: str, queue_id: int) -> QueueRange:
        """The bounds of one queue. Raises QueueUnknown."""
        return self.read_consistently(self._ranges.of, self._queue(topic, queue_id))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Find the queue offset of the first record stored at or after a time.

        The queue's maximum when there is none. Where the clock was set back, later records may have
        earlier times; no earlier record has this time or a later one. Raises QueueUnknown.
        """
        return self.times.find(self._queue(topic, queue_id), timestamp_ms)

    def offsets_by_time(
        self, queues: Iterable[tuple[str, int]], timestamp_ms: int
    ) -> list[tuple[QueueRange, int] | None]:
        """Find ``queue_range`` and ``offset_by_time`` of each queue; None for an unknown queue."""
        found = [self._queues.get(*each) for each in queues]
        known = [each for each in found if each is not None]
        results = iter(self.times.find_each(known, timestamp_ms))
        return [None if each is None else next(results) for each in found]

    def records(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int = 32,
        max_bytes: int = BYTES_MAX_DEFAULT,
    ) -> Pull:
        """Read records of a queue from ``offset`` (from its minimum when that is higher).

        At most ``count`` records and, after the first, ``max_bytes`` of them. Holes and expired
        entries are skipped; unreadable records are listed. Raises QueueUnknown, OffsetOutOfRange
        for a negative offset.
        """
        queue = self._queue(topic, queue_id)
        return self._window.pull(
            Pull, _FOUND, Record, queue, offset, count, COUNT_MAX, max_bytes
        ) or self._reads.read_consistently(self._pull, Pull, queue, offset, count, max_bytes)

    def slices(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int = 32,
        max_bytes: int = BYTES_MAX_DEFAULT,
    ) -> Slices:
        """Read the bytes of the records that ``records`` returns, after the same checks."""
        queue = self._queue(topic, queue_id)
        return self._window.pull(
            Slices, _FOUND, Record, queue, offset, count, COUNT_MAX, max_bytes
        ) or self._reads.read_consistently(self._pull, Slices, queue, offset, count, max_bytes)

    def add_tagged(
        self,
        answer: A,
        tags: Tags,
        queue: QueueView,
        stop: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """Add records with one of the tags to an answer, from its ``next_offset`` up to ``stop`` at
        most.

        It stops at the first record that needs a full check, at ``count`` records, or at
        ``max_bytes`` including those ``taken`` before. Returns the bytes taken by then, and whether
        one of the two limits was reached.
        """
        begin, is_full, wanted = -1, False, len(answer) + count
        while begin < answer.next_offset < stop and not is_full:
            begin = answer.next_offset
            if (place := queue.block(begin)) is None:
                break
            taken, is_full = answer.take_tagged(
                self._window,
                Record,
                tags,
                *place,
                queue,
                stop - begin,
                wanted - len(answer),
                taken,
                max_bytes,
            )
        return taken, is_full

    def in_memory(
        self, kind: type[A], queue: QueueView, offset: int, count: int, max_bytes: int
    ) -> A | None:
        """Read as ``records`` or ``slices``, by the answer's kind, when it takes no disk read.

        None where the disk may have to be read, or a full check is needed. The caller must know
        that the queue's last entries are in memory.
        """
        count = min(count, queue.max_index - offset)
        place = queue.block(offset) if count > 0 else None
        if place is None or in_memory(self._window, *place, count, max_bytes) < count:
            return None
        return self._window.pull(kind, _FOUND, Record, queue, offset, count, COUNT_MAX, max_bytes)

    def _pull(self, kind: type[A], queue: QueueView, offset: int, count: int, max_bytes: int) -> A:
        if offset < 0:
            raise OffsetOutOfRange(f"queue offset {offset} is negative; begin at 0")
        bounds = self._ranges.of(queue)
        low, high = bounds.min_offset, bounds.max_offset
        if offset >= high:
            at_end = offset == high
            status = PullStatus.OFFSET_OVERFLOW_ONE if at_end else PullStatus.OFFSET_OVERFLOW_BADLY
            return kind(status, [], [], high, low, high)
        pull = kind(PullStatus.FOUND, [], [], max(offset, low), low, high)
        self._fill(queue, pull, max(1, min(count, COUNT_MAX)), max_bytes)
        if not len(pull):
            pull.status = self._why_empty(queue, pull)
        return pull

    def _fill(self, queue: QueueView, pull: A, count: int, max_bytes: int) -> None:
        """Add records to an answer, and move its ``next_offset``, until a limit or the end."""
        taken = 0
        stop = min(pull.max_offset, pull.next_offset + ENTRIES_PER_CALL_MAX)
        while (begin := pull.next_offset) < stop:
            left = count - len(pull) - len(pull.unreadable)
            if left == 0:
                return
            place = queue.block(begin)
            if place is not None:
                most = min(left, stop - begin)
                taken, _ = pull.take(self._window, Record, *place, queue, most, taken, max_bytes)
            if pull.next_offset == begin:
                reached = self._take(queue, pull, taken, max_bytes)
                if reached is None:
                    return
                taken = reached

    def _take(self, queue: QueueView, pull: A, taken: int, max_bytes: int) -> int | None:
        """Handle the one entry at ``next_offset``; returns the bytes taken by then, None to
        stop."""
        index = pull.next_offset
        entry = queue.entry(index)
        if entry is not None and names_record(entry):
            is_filler = is_copy_of(entry, queue.entry(index - 1))
            if not (is_filler and self._is_filler(queue, index, entry)):
                if self._ranges.is_coming(entry):
                    return None
                if taken and taken + entry.size > max_bytes:
                    return None
                try:
                    pull.add(self._record_of(queue, index, entry))
                    taken += entry.size
                except RecordExpired:
                    pass
                except StorageError as error:
                    pull.unreadable.append(Unreadable(entry.physical_offset, error, index))
        pull.next_offset = index + 1
        return taken

    def _is_filler(self, queue: QueueView, index: int, entry: Entry) -> bool:
        """Whether an entry that repeats the one before fills a hole, so that no record is its own.

        If the entry before was damaged into an equal one, the record's own queue offset shows it.
        """
        try:
            found = self._reads.read(entry.physical_offset, entry.size, with_body=False)
        except StorageError:
            return True
        own = (found.topic, found.queue_id, found.queue_offset)
        return own != (queue.topic, queue.queue_id, index)

    def _record_of(self, queue: QueueView, index: int, entry: Entry) -> Record:
        """Read an entry's record."""
        found = self._reads.read(entry.physical_offset, entry.size)
        if (
            found.queue_offset != index
            or found.topic != queue.topic
            or found.queue_id != queue.queue_id
        ):
            self._refuse_another(queue, index, found)
        return found

    def _refuse_another(self, queue: QueueView, index: int, found: Record) -> None:
        """Raise OffsetOutOfRange when the record is the one of another entry, so that this entry is
        damaged.

        A record that states another place and is not there is accepted: a broker may have
        renumbered its queue, or its header is damaged.
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

    def _why_empty(self, queue: QueueView, pull: A) -> PullStatus:
        following = pull.next_offset
        at_end = following == pull.max_offset or self._ranges.is_incoming(queue, following)
        if at_end and not pull.unreadable:
            return PullStatus.OFFSET_OVERFLOW_ONE
        return PullStatus.NO_MATCHED_MESSAGE

    def _queue(self, topic: str, queue_id: int) -> QueueView:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            raise QueueUnknown(f"no queue {queue_id} of topic {topic} in this store")
        return queue
