"""Invariants of a store after any crash and recovery, and whenever no operation is in progress.

The simulated crash states, the state machine and the tests that kill real processes check the same
invariants.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pytest

from mqstore.storage._kernel import check_block
from mqstore.storage.errors import StorageError
from mqstore.storage.index.file import ITEM, items_start
from mqstore.storage.layout import BLOCK_SIZE, QUEUE_ENTRY_SIZE
from mqstore.storage.lookup.answers import PullStatus
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.block_files import blocks_of
from mqstore.storage.paths import segment_name
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.queue_entry import QueueEntry
from mqstore.storage.seams import Seams
from mqstore.storage.tables.config_tables import ConsumerOffsets, TopicTable
from tests.simulation.model import Model, QueueKey, QueueModel, Stored

SAMPLED: Final = 4
"""Look-ups of each kind per check."""
GROUP: Final = "group"


class Checker:
    """Compares one open store with the model."""

    def __init__(
        self, store: MessageStore, model: Model, seams: Seams, rng: random.Random, *, torn: bool
    ) -> None:
        """``torn``: the power was cut, so records above what is durable may be unreadable."""
        self.store = store
        self.model = model
        self.seams = seams
        self.rng = rng
        self.torn = torn
        self.end = store.log.max_offset
        self.min = store.log.min_offset
        self.rotten: set[int] = set()
        """Offsets of records that a power cut tore."""
        self.live: Sequence[Stored] = ()

    def check(self, floor: int) -> None:
        """Everything. The log must reach ``floor`` at least."""
        self.store.wait_for_index()
        self._bounds(floor)
        self._log(floor)
        self._blocks()
        self._queues()
        self._index()
        self._lookups()
        self._tables()
        self._files()

    def settle(self) -> None:
        """Take the recovered state as the state from now on."""
        model, log = self.model, self.store.log
        for record in self.live:
            record.rotten = not self.readable(record)
        content = b"".join(bytes(f.view[: f.wrote_position]) for f in log.files.files)
        model.settle(self.end, content, self.min)
        topics, offsets = self._topics(), self._consumer_offsets()
        # What is read after a kill may still be lost by a power cut.
        for name, allowed in model.topics.items():
            model.topics[name] = (set() if self.torn else allowed) | {topics.get(name, 0)}
        for key, allowed in model.consumed.items():
            model.consumed[key] = (set() if self.torn else allowed) | {self._consumed(offsets, key)}

    # the log

    def _bounds(self, floor: int) -> None:
        model, low = self.model, self.model.min_range
        assert floor <= self.end <= model.end, f"log ends at {self.end}, not {floor}..{model.end}"
        assert model.may_end_at(self.end), f"log ends at {self.end}, inside a record"
        assert low[0] <= self.min <= low[1], f"log begins at {self.min}, not in {low}"
        assert self.store.log.flushed_offset <= self.end
        assert self.store.dispatcher.position == self.end
        self.live = model.live(self.min, self.end)

    def _log(self, floor: int) -> None:
        """Byte for byte what was appended, but for what a power cut tore above the floor."""
        image, position = self.model.image, self.min
        for file in self.store.log.files.files:
            stop = min(file.end_offset, self.end)
            assert file.base_offset == position, f"nothing at offset {position}"
            if bytes(file.view[: stop - position]) != image[position:stop]:
                self._torn_in(bytes(file.view), position, stop, floor)
            assert not any(file.view[stop - position :]), "bytes behind the log's end"
            position = stop
        assert position == self.end
        self.rotten.update(record.offset for record in self.live if record.rotten)
        for offset in self.rotten:
            with pytest.raises(StorageError):
                self.store.lookups.by_physical_offset(offset)

    def _torn_in(self, content: bytes, base: int, stop: int, floor: int) -> None:
        for record in self.model.live(base, stop):
            found = content[record.offset - base : record.end - base]
            if found != self.model.image[record.offset : record.end]:
                assert self.torn, f"the record at {record.offset} changed"
                assert record.end > floor, f"the durable record at {record.offset} was torn"
                self.rotten.add(record.offset)

    def readable(self, record: Stored) -> bool:
        return not record.rotten and record.offset not in self.rotten

    def _blocks(self) -> None:
        """Every checksum of a block is of the log as it is, and of nothing behind its end."""
        plan, blocks = self.store.recovery.plan, self.store._parts.directory.blocks
        assert plan.damaged_block_count == 0, plan.damaged_blocks
        segments = {file.base_offset: file for file in self.store.log.files.files}
        for base in blocks.bases():
            entries = blocks.entries(base)
            assert entries is not None, f"the checksums of segment {base} cannot be read"
            assert base in segments, f"checksums of segment {base}, which is not there"
            for number in range(blocks_of(segments[base].size)):
                covered = check_block(segments[base].view, entries, base, number, 0)
                assert covered >= 0, f"block {number} of segment {base} is not as covered"
                assert not covered or base + number * BLOCK_SIZE + covered <= self.end

    # the queues

    def _queues(self) -> None:
        found = {(queue.topic, queue.queue_id): queue for queue in self.store.queues.all()}
        for key, queue in found.items():
            expected = self.model.queues.get(key)
            if expected is None:
                assert queue.max_index == 0, f"nothing was put into {key}"
            else:
                self._queue(key, queue, expected)
        for key, expected in self.model.queues.items():
            if key not in found:
                kept = [r for r in expected.below(self.end) if r.offset >= self.min]
                assert not any(map(self.readable, kept)), f"{key} is not there"

    def _queue(self, key: QueueKey, queue: ConsumeQueue, expected: QueueModel) -> None:
        records = expected.below(self.end)
        high = records[-1].queue_offset + 1 if records else 0
        readable = (r for r in reversed(records) if self.readable(r))
        low = next((r.queue_offset + 1 for r in readable), 0)
        assert low <= queue.max_index <= max(low, high), (
            f"{key} goes on at {queue.max_index}, not {low}..{high}"
        )
        first = queue.first_index
        content = b"".join(bytes(file.view) for file in queue.files.files)
        used = (queue.max_index - first) * QUEUE_ENTRY_SIZE
        assert len(content) >= used, f"{key} has a gap between its files"
        assert not any(content[used:]), f"{key} has entries behind its end"
        start = first * QUEUE_ENTRY_SIZE
        if content[:used] != expected.packed[start : start + used]:
            self._entries(key, queue, records)
        kept = [r for r in records if r.offset >= self.min and self.readable(r)]
        if kept:
            assert first <= kept[0].queue_offset, f"{key} lacks its first entries"
        self._least(key, queue)

    def _least(self, key: QueueKey, queue: ConsumeQueue) -> None:
        """The first entry of a record that is in the log, found by looking at each."""
        entries = queue.entries(queue.first_index, queue.max_index)
        real = ((index, entry) for index, entry in entries if not entry.is_hole)
        due = next((i for i, e in real if e.physical_offset >= self.min), queue.max_index)
        # Nothing has expired: blanks before the first entry may count.
        low = due if self.min else queue.first_index
        assert low <= queue.min_index <= due, f"{key} begins at {queue.min_index}, not at {due}"

    def _entries(self, key: QueueKey, queue: ConsumeQueue, records: Sequence[Stored]) -> None:
        """Entry by entry, where holes or torn records make them differ from the plain case."""
        # Of records that share a place the last one counts: those before it are torn.
        places = {record.queue_offset: record for record in records}
        for index in range(queue.first_index, queue.max_index):
            entry, record = queue.entry(index), places.get(index)
            assert entry is not None
            assert not entry.is_missing, f"{key} has {entry} at {index}: a broker would end it"
            if record is None or not self.readable(record):
                if not (entry.is_hole or self._is_filler(queue, index, records)):
                    torn = {(r.offset, r.size) for r in records if not self.readable(r)}
                    assert entry[:2] in torn, f"{key} names {entry} at {index}"
            elif entry.is_hole:
                assert record.offset < self.min, f"{key} lost entry {index}"
            else:
                expected = QueueEntry(record.offset, record.size, record.tags_code)
                assert entry == expected, f"{key} has {entry} at {index}, not {expected}"

    def _is_filler(self, queue: ConsumeQueue, index: int, records: Sequence[Stored]) -> bool:
        """Whether an entry repeats the one before, which may have expired with its file."""
        if index > queue.first_index:
            return queue.is_filler(index)
        entry = queue.entry(index)
        named = (r for r in records if r.queue_offset < index)
        return entry is not None and any(entry[:2] == (r.offset, r.size) for r in named)

    # the index

    def _index(self) -> None:
        """Every key of every record in the log, once, in order; nothing beyond its end."""
        expected = [
            (key_hash, record.offset)
            for record in self.live
            if self.readable(record)
            for key_hash in record.hashes
        ]
        items = list(self._items())
        found = [item for item in items if item[1] >= self.min and item[1] not in self.rotten]
        assert found == expected, _difference(found, expected)
        known = {record.offset for record in self.model.records}
        assert all(offset in known for _, offset in items), "the index names what was never put"

    def _items(self) -> Iterator[tuple[int, int]]:
        for file in self.store.index.files:
            start = items_start(file.slots)
            stop = start + file.index_count * ITEM.size
            for key_hash, offset, *_ in ITEM.iter_unpack(file.view[start + ITEM.size : stop]):
                yield key_hash, offset

    # look-ups

    def _lookups(self) -> None:
        records = [record for record in self.live if self.readable(record)]
        if not records:
            return
        for record in [*self.rng.choices(records, k=SAMPLED), records[-1]]:
            self._by_key(record, records)
            self._by_time(record)
            self._pull(record)

    def _by_key(self, record: Stored, records: Sequence[Stored]) -> None:
        """The index answers what a full scan answers."""
        key = self.rng.choice(record.keys) if record.keys else "no such key"
        topic = record.queue[0]
        times = sorted(each.store_ms for each in self.rng.choices(records, k=2))
        from_ms, to_ms = times if self.rng.random() < 0.5 else (0, times[-1])
        found = list(self._found_by_key(topic, key, from_ms, to_ms))
        scan = [
            each.offset
            for each in reversed(records)
            if each.queue[0] == topic and key in each.keys and from_ms <= each.store_ms <= to_ms
            if each.hashes
        ]
        assert found == scan, (topic, key)

    def _found_by_key(self, topic: str, key: str, from_ms: int, to_ms: int) -> Iterator[int]:
        """Page by page."""
        by_key = partial(self.store.lookups.by_key, topic, key, from_ms=from_ms, to_ms=to_ms)
        limit, cursor, is_last = self.rng.choice([2, 1000]), None, False
        while not is_last:
            answer = by_key(limit=limit, cursor=cursor)
            yield from (found.physical_offset for found in answer.records)
            cursor, is_last = answer.cursor, answer.cursor is None
        assert answer.complete

    def _by_time(self, record: Stored) -> None:
        queue = self._live_queue(record.queue)
        if not self.model.knows_clock:
            return
        if not queue or any(not self.readable(each) for each in queue):
            return
        wanted_ms = record.store_ms + self.rng.choice([-1, 0, 1])
        due = next((r.queue_offset for r in queue if r.store_ms >= wanted_ms), None)
        found = self.store.lookups.offset_by_time(*record.queue, wanted_ms)
        assert found == (queue[-1].queue_offset + 1 if due is None else due), record.queue

    def _pull(self, record: Stored) -> None:
        queue = self._live_queue(record.queue)
        if not record.queued or not queue:
            return
        pull = self.store.lookups.records(*record.queue, record.queue_offset, 5)
        assert pull.status is PullStatus.FOUND
        expected = [r for r in queue if self.readable(r) and r.offset >= record.offset]
        bodies = [found.body for found in pull.records]
        assert bodies == [r.body for r in expected[: len(bodies)]], record.queue

    def _live_queue(self, key: QueueKey) -> Sequence[Stored]:
        model = self.model.queues.get(key)
        return [r for r in model.below(self.end) if r.offset >= self.min] if model else []

    # tables and files

    def _tables(self) -> None:
        model, topics, offsets = self.model, self._topics(), self._consumer_offsets()
        assert topics.keys() <= model.topics.keys(), "a topic that was never created"
        for name, allowed in model.topics.items():
            assert topics.get(name, 0) in allowed, (name, topics.get(name), allowed)
        for key, allowed in model.consumed.items():
            offset = self._consumed(offsets, key)
            assert offset in allowed, key
            self._skips_nothing(key, offset)

    def _skips_nothing(self, key: QueueKey, offset: int) -> None:
        """A group's offset is no further than its queue, and behind nothing that the group never
        passed."""
        queue = self.store.queues.get(*key)
        end = 0 if queue is None else queue.max_index
        assert offset <= end, f"the group is at {offset} of {key}, which ends at {end}"
        passed = self.model.passed[key]
        for record in self._live_queue(key):
            if record.queue_offset < offset and self.readable(record):
                assert record.body in passed, f"the group skips {record.queue_offset} of {key}"

    def _topics(self) -> dict[str, int]:
        table = TopicTable.load(self.store.paths, self.store.format, self.seams)
        return {topic.name: topic.write_queues for topic in table.all()}

    def _consumed(self, offsets: ConsumerOffsets, key: QueueKey) -> int:
        return offsets.get(GROUP, *key) or 0

    def _consumer_offsets(self) -> ConsumerOffsets:
        return ConsumerOffsets.load(self.store.paths, self.store.format, self.seams)

    def _files(self) -> None:
        """Nothing but segments in the log's directory: a real broker would refuse to start."""
        store = self.store
        names = self.seams.files.list(store.paths.commit_log)
        files = store.log.files.files
        spare = segment_name(files[-1].end_offset if files else 0)
        expected = [file.path.name for file in files]
        assert names in (expected, [*expected, spare]), names
        indexes = self.seams.files.list(store.paths.index)
        assert indexes == [file.path.name for file in store.index.files], indexes


def check_expired(store: MessageStore) -> None:
    """At the end of an expiry: no file is left that only speaks of what has gone."""
    min_offset = store.log.min_offset
    for file in store.index.files[:-1]:
        assert file.end_physical >= min_offset, f"{file.mapped.path} was kept"
    for queue in store.queues.all():
        for mapped in queue.files.files[:-1]:
            entry = queue.entry(mapped.end_offset // QUEUE_ENTRY_SIZE - 1)
            assert entry is not None
            assert entry.physical_offset >= min_offset, f"{mapped.path} was kept"


def _difference(found: Sequence[object], expected: Sequence[object]) -> str:
    at = next(
        (n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
        min(len(found), len(expected)),
    )
    near = slice(at, at + 3)
    return f"item {at} of {len(found)} (due {len(expected)}): {found[near]} {expected[near]}"
