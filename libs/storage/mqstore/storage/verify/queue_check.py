"""Verifies ConsumeQueues against the log: each entry names its record, and each record has its
entry."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.delay.rewriting import level_of_queue
from mqstore.storage.errors import ConfigTableError, StorageError
from mqstore.storage.layout import (
    EXT_ADDRESS_MIN,
    LMQ_PREFIX,
    QUEUE_ENTRY_SIZE,
    QUEUED_TYPES,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
    StoreFormat,
)
from mqstore.storage.log.multi_dispatch import dispatched_queues, further_queues
from mqstore.storage.mapped.mapped_file_queue import StrayFile, StrayReason
from mqstore.storage.paths import segment_name
from mqstore.storage.progress import Progress
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.queues.queue_entry import QueueEntry
from mqstore.storage.tables.config_tables import DelayOffsets
from mqstore.storage.topic_names import is_safe_path
from mqstore.storage.verify.broker import refuses_file
from mqstore.storage.verify.finding import REFUSES, REMOVES, Finding, Kind, effect
from mqstore.storage.verify.store_at_rest import StoreAtRest

_UNQUEUED_MAX: Final = 100_000
"""Maximum number of remembered records without an entry: a repair finds the rest afterwards."""
Place = tuple[str, int, int]
"""Topic, queue id and entry number."""


@dataclass(slots=True)
class _Run:
    """Neighbouring entries with the same finding."""

    kind: Kind
    first: int
    last: int
    physical: int


class QueueCheck:
    """Call ``log`` for each record in log order, then ``missing``; ``entries`` at any time."""

    def __init__(self, store: StoreAtRest, progress: Progress) -> None:
        self.entries_seen = 0
        self.unqueued = array("q")
        """Physical offsets of whole records that their own queue does not name, or out of order."""
        self._expired = 0
        self._store = store
        self._progress = progress
        self._queues = ConsumeQueues(
            store.paths,
            store.config.queue_file_size,
            store.seams,
            ext_file_size=store.config.mapped_file_size_consume_queue_ext,
            writable=False,
        )
        self._strays = self._queues.load()
        self._runs: dict[tuple[str, int], _Run] = {}
        """Missing entries by queue, to be reported in one finding."""

    @property
    def count(self) -> int:
        """Number of queues."""
        return len(self._queues.all())

    def max_physical_end(self) -> int:
        """The greatest end of a record that any queue names."""
        return max((queue.max_physical_end() for queue in self._queues.all()), default=-1)

    def next_physical(self, after: int) -> int | None:
        """The least physical offset above ``after`` that an entry names."""
        return self._queues.next_physical(after)

    # each record has its entry ------------------------------------------------------------

    def log(self, found: Record, *, is_whole: bool) -> Iterator[Finding]:
        """Check the entries of the next record of the log."""
        if found.sys_flag & TRANSACTION_MASK not in QUEUED_TYPES:
            return
        yield from self._entry_of(found, _place_of(found), is_whole=is_whole)
        for name, offset in dispatched_queues(found, self._store.format):
            place = name, self._queue_id(name, found), offset
            yield from self._entry_of(found, place, is_whole=is_whole)

    def _queue_id(self, name: str, found: Record) -> int:
        """The id of a light queue: 0, or the record's where light queues were not enabled."""
        is_light = name.startswith(LMQ_PREFIX) and self._queues.get(name, 0) is not None
        return 0 if is_light else found.queue_id

    def _entry_of(self, found: Record, place: Place, *, is_whole: bool) -> Iterator[Finding]:
        topic, queue_id, number = place
        if found.physical_offset < self._store.deleted.below(topic):
            return
        queue = self._queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(number)
        if entry is not None and entry.is_hole:
            entry = None
        if entry is not None and entry.physical_offset == found.physical_offset:
            return
        if is_whole and place == _place_of(found):
            self._note_unqueued(found)
        if queue is None or entry is None:
            kind = Kind.QUEUE_MISSING if queue is None else Kind.ENTRY_MISSING
            yield from self._count_missing(place, kind, found.physical_offset)
        elif queue.is_filler(number):
            yield from self._count_missing(place, Kind.ENTRY_MISSING, found.physical_offset)
        elif self._is_right(entry, place):
            what = (
                f"the record at offset {found.physical_offset} says it is entry {number}, which "
                f"names the whole record at {entry.physical_offset}"
            )
            yield self._finding(Kind.QUEUE_OFFSET_TAKEN, queue, number, entry, what)

    def _note_unqueued(self, found: Record) -> None:
        is_movable = is_safe_path(found.topic) and not found.is_tombstone
        if is_movable and len(self.unqueued) < _UNQUEUED_MAX:
            self.unqueued.append(found.physical_offset)

    def _count_missing(self, place: Place, kind: Kind, physical: int) -> Iterator[Finding]:
        topic, queue_id, number = place
        run = self._runs.get((topic, queue_id))
        if run is not None and run.kind is kind and number == run.last + 1:
            run.last = number
            return
        if run is not None:
            yield self._report_missing((topic, queue_id), run)
        self._runs[topic, queue_id] = _Run(kind, number, number, physical)

    def missing(self) -> Iterator[Finding]:
        """Report the records without an entry."""
        for key, run in self._runs.items():
            yield self._report_missing(key, run)
        self._runs.clear()

    def _report_missing(self, key: tuple[str, int], run: _Run) -> Finding:
        topic, queue_id = key
        directory = self._store.paths.consume_queue / topic / str(queue_id)
        return Finding(
            kind=run.kind,
            file=self._store.name_of(directory),
            what=f"{_range(run)} of records in the log, the first at {run.physical}, not there",
            broker=self._without_entries(run.kind),
            offset=run.first * QUEUE_ENTRY_SIZE,
            physical_offset=run.physical,
            topic=topic,
            queue_id=queue_id,
            index=run.first,
        )

    def _without_entries(self, kind: Kind) -> str:
        if self.count == 0:
            return "made again in full, since no queue is left at all"
        return self._store.broker.predict(kind)

    # each entry names its record ----------------------------------------------------------

    def entries(self) -> Iterator[Finding]:
        """Check every entry of every queue, and report stray files."""
        yield from map(self._stray, self._strays)
        queues = self._queues.all()
        for number, queue in enumerate(queues):
            self._progress("queues", number, len(queues))
            yield from self._gaps(queue)
            yield from self._queue(queue)
        if self._expired:
            yield self._of_expired()

    def _of_expired(self) -> Finding:
        """The finding for entries of expired records.

        Retention leaves such entries for a while; so does a lost first segment.
        """
        first = self._store.min_offset
        what = f"{self._expired} entries name records below offset {first}, where the log begins"
        name = self._store.name_of(self._store.paths.consume_queue)
        return Finding(Kind.EXPIRED, name, what, self._store.broker.predict(Kind.EXPIRED))

    def _stray(self, stray: StrayFile) -> Finding:
        """The finding for a queue file of a wrong length, or another path in the queue's
        directory."""
        store = self._store
        name = store.name_of(stray.path)
        what = f"{stray.reason.value}, {stray.size} bytes"
        is_ext = stray.path.is_relative_to(store.paths.consume_queue_ext)
        root = store.paths.consume_queue_ext if is_ext else store.paths.consume_queue
        topic, *queue = stray.path.parent.relative_to(root).parts or ("",)
        if not queue:
            return Finding(Kind.STRAY, name, what, store.broker.predict(Kind.STRAY))
        stat = store.seams.files.stat(stray.path)
        is_directory = stat is not None and stat.is_directory
        if is_directory and store.format is StoreFormat.V5_X:
            return Finding(Kind.STRAY, name, what, store.broker.predict(Kind.STRAY))
        kind = Kind.STRAY_REFUSED if stray.reason is StrayReason.NAME else Kind.QUEUE_FILE
        return Finding(
            kind=kind,
            file=name,
            what=what,
            broker=self._effect_of(stray),
            offset=0,
            topic=topic,
            queue_id=int(queue[0]),
        )

    def _effect_of(self, stray: StrayFile) -> str:
        store, name = self._store, stray.path.name
        is_ext = stray.path.is_relative_to(store.paths.consume_queue_ext)
        config = store.config
        due = config.mapped_file_size_consume_queue_ext if is_ext else config.queue_file_size
        is_last = name == max(store.seams.files.list(stray.path.parent), default="")
        if refuses_file(store.format, name, stray.size, due, is_last=is_last):
            return REFUSES
        return REMOVES if stray.size == 0 else effect(Kind.QUEUE_FILE, crashed=store.view.abort)

    def _gaps(self, queue: ConsumeQueue) -> Iterator[Finding]:
        expected = queue.files.min_offset
        for mapped in queue.files.files:
            if mapped.base_offset != expected or mapped.base_offset % queue.file_size:
                what = f"the file before it should be {segment_name(expected)} and is not there"
                yield self._finding(
                    Kind.QUEUE_FILE, queue, mapped.base_offset // QUEUE_ENTRY_SIZE, None, what
                )
            expected = mapped.end_offset

    def _of_level(self, queue: ConsumeQueue) -> Iterator[Finding]:
        """Yield a note about delayed messages of a level that messageDelayLevel does not have."""
        store, level = self._store, level_of_queue(queue.queue_id)
        if queue.topic != SCHEDULE_TOPIC or level in self._store.delays.numbers:
            return
        try:
            delivered = DelayOffsets.load(store.paths, store.format, store.seams).get(level)
        except ConfigTableError:  # a finding of its own
            return
        count = queue.max_index - max(queue.first_index, delivered)
        if count > 0:
            what = (
                f"{count} messages of delay level {level} wait, and messageDelayLevel has "
                f"{self._store.delays.max_level} levels: they are delivered once it has their level"
            )
            does, name = (
                store.broker.predict(Kind.STATE_NAMED),
                f"{SCHEDULE_TOPIC}/{queue.queue_id}",
            )
            yield Finding(Kind.STATE_NAMED, f"consumequeue/{name}", what, does, topic=queue.topic)

    def _queue(self, queue: ConsumeQueue) -> Iterator[Finding]:
        yield from self._of_level(queue)
        before, run, begun = -1, None, False
        for number, entry in queue.entries(queue.first_index, queue.max_index):
            self.entries_seen += 1
            kind = self._run_kind(queue, number, entry, begun)
            if run is not None and (kind is not run.kind or number != run.last + 1):
                yield self._of_run(queue, run)
                run = None
            if kind is not None:
                run = run or _Run(kind, number, number, entry.physical_offset)
                run.last = number
            elif not entry.is_hole and before < 0 and self._has_expired(entry):
                self._expired += 1
            elif not entry.is_hole:
                yield from self._entry(queue, number, entry, before)
                before = entry.physical_offset
            begun = begun or not entry.is_hole
        if run is not None:
            yield self._of_run(queue, run)
        if not begun and queue.max_index > queue.first_index:
            blanks = _Run(Kind.QUEUE_HOLE, queue.first_index, queue.max_index - 1, 0)
            yield self._of_run(queue, blanks)

    def _has_expired(self, entry: QueueEntry) -> bool:
        return 0 <= entry.physical_offset < self._store.min_offset

    def _run_kind(
        self, queue: ConsumeQueue, number: int, entry: QueueEntry, begun: bool
    ) -> Kind | None:
        """The kind of entries that are reported as a run: holes (except those before a queue's
        first entry), fillers, and entries beyond the log; else None."""
        if entry.is_hole:
            return Kind.QUEUE_HOLE if begun or entry.is_missing else None
        if entry.physical_offset >= self._store.end:
            return None if self._store.is_live else Kind.ENTRY_BEYOND
        place = (queue.topic, queue.queue_id, number)
        is_filler = queue.is_filler(number) and not self._is_right(entry, place)
        return Kind.FILLER if is_filler else None

    def _of_run(self, queue: ConsumeQueue, run: _Run) -> Finding:
        whys = {
            Kind.QUEUE_HOLE: "holes: they name no record",
            Kind.FILLER: "filled holes: they repeat the entry before them",
            Kind.ENTRY_BEYOND: f"named offset {run.physical} is beyond the log's end",
        }
        found = self._finding(run.kind, queue, run.first, None, f"{_range(run)}: {whys[run.kind]}")
        if run.kind is Kind.ENTRY_BEYOND:
            does = self._store.broker.predict(run.kind, run.physical)
            return replace(found, broker=does, physical_offset=run.physical)
        return found

    def _entry(
        self, queue: ConsumeQueue, number: int, entry: QueueEntry, before: int
    ) -> Iterator[Finding]:
        if self._store.is_live and entry.physical_offset >= self._store.end:
            return
        if entry.physical_offset <= before:
            what = f"it names offset {entry.physical_offset}, the one before it {before}"
            yield self._finding(Kind.ENTRY_ORDER, queue, number, entry, what)
        try:
            found = self._store.record_at(entry.physical_offset)
        except StorageError as error:
            yield self._finding(Kind.ENTRY_WRONG, queue, number, entry, str(error))
            return
        place = queue.topic, queue.queue_id, number
        why = _disagreement(found, entry, place)
        if why is None and place == _place_of(found) and entry.physical_offset <= before:
            self._note_unqueued(found)
        if why is not None:
            yield self._finding(Kind.ENTRY_WRONG, queue, number, entry, why)
        elif found.is_tombstone:
            return  # the entry is still that of the previous record
        elif entry.is_ext_address:
            yield from self._unit(queue, number, entry, found)
        elif not self._codes_agree(found, entry):
            what = f"its tagsCode is {entry.tags_code}; its record makes "
            code = self._store.tags_code(found)
            yield self._finding(Kind.ENTRY_TAGS, queue, number, entry, f"{what}{code}")

    def _codes_agree(self, found: Record, entry: QueueEntry) -> bool:
        """Whether the tagsCode is right; 4.9.7 writes the code of TAGS for delayed messages when it
        recovers from a crash."""
        due = (self._store.tags_code(found), found.tags_code)
        return entry.tags_code in due

    def _unit(
        self, queue: ConsumeQueue, number: int, entry: QueueEntry, found: Record
    ) -> Iterator[Finding]:
        unit = None if queue.ext is None else queue.ext.unit(entry.tags_code)
        at = entry.tags_code - EXT_ADDRESS_MIN
        if unit is None:
            what = f"there is no whole unit at {at} of its ConsumeQueueExt"
            yield self._finding(Kind.UNIT_MISSING, queue, number, entry, what)
            return
        due = self._store.tags_code(found), found.store_timestamp_ms
        if unit[:2] != due:
            what = f"its unit at {at} has tagsCode and store time {unit[:2]}, its record {due}"
            yield self._finding(Kind.ENTRY_UNIT, queue, number, entry, what)

    def _is_right(self, entry: QueueEntry, place: Place) -> bool:
        try:
            found = self._store.record_at(entry.physical_offset)
        except StorageError:
            return False
        return _disagreement(found, entry, place) is None

    def _finding(
        self, kind: Kind, queue: ConsumeQueue, number: int, entry: QueueEntry | None, what: str
    ) -> Finding:
        at = number * QUEUE_ENTRY_SIZE
        mapped = queue.files.find(at)
        path = queue.files.directory if mapped is None else mapped.path
        return Finding(
            kind=kind,
            file=self._store.name_of(path),
            what=what,
            broker=self._store.broker.predict(kind),
            offset=at if mapped is None else at - mapped.base_offset,
            physical_offset=None if entry is None else entry.physical_offset,
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=number,
        )


def _place_of(found: Record) -> Place:
    return found.topic, found.queue_id, found.queue_offset


def _disagreement(found: Record, entry: QueueEntry, place: Place) -> str | None:
    """Why a record is not the one that an entry should name, or None."""
    topic, _, number = place
    if found.size != entry.size:
        return f"it says {entry.size} bytes; the record has {found.size}"
    if _place_of(found) == place:
        return None
    if (topic, number) in further_queues(found):
        return None
    return (
        f"it names the record of queue {found.queue_id} of {found.topic!r} at queue offset "
        f"{found.queue_offset}"
    )


def _range(run: _Run) -> str:
    return f"entry {run.first}" if run.first == run.last else f"entries {run.first} to {run.last}"
