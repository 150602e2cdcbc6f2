"""Batches in RocketMQ's encoding, as a request brings them, read and put."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mqstore.service.problems import Problem
from mqstore.storage._kernel import (
    Defect,
    DispatchEnd,
    EncodedBatch,
    FilePositions,
    IndexWindow,
    LogEnd,
    Placement,
    QueueWindow,
    Reason,
    Sends,
    StateWords,
    SystemClock,
    check_record,
    dispatch_run,
    placements_json,
)
from mqstore.storage.codec import batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.errors import StorageError
from mqstore.storage.index.file import file_size
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.log.put_checks import PutLimits, check_batch_size, check_messages
from mqstore.storage.queues.consume_queues import queue_key
from mqstore.storage.seams import Clock
from tests.fuzz import stores
from tests.fuzz.guarded import GuardedMemory
from tests.fuzz.mutate import Mutator
from tests.unit.storage import kernel_model
from tests.unit.storage.sends import items_of, quote, sends_of

ROOM = 1 << 14
ENTRIES, SLOTS, ITEMS = 64, 7, 500
"""Room for the longest batch that mutations make of the seeds."""
BASE = 7_000
"""Physical offset at which a batch is put."""
NUMBER = 5
"""Its first queue offset."""
TIME = stores.BORN_MS
CLOCK = SystemClock()
Item = tuple[bytes, bytes]
"""Body and encoded properties."""
PLAIN: tuple[Item, ...] = (
    (b"body", b"UNIQ_KEY\x01U1\x02KEYS\x01a b  c\x02TAGS\x01t\x02"),
    (b"", b""),
    (b"y" * 300, b"k\x01v"),
    ("日本語".encode(), "KEYS\x01ключ 😀\x02WAIT\x01true".encode()),
)
ORDERED: tuple[Item, ...] = (
    (b"first", b"__SHARDINGKEY\x01order-1\x02UNIQ_KEY\x01U1"),
    (b"second", b"TAGS\x01t\x02__SHARDINGKEY\x01order-2\x02__SHARDINGKEY\x01order-1\x02"),
)
"""Messages under one ordering key."""
ODD: tuple[Item, ...] = (
    (b"ordered", b"__SHARDINGKEY\x01order-1"),
    (b"due later", b"DELAY\x013\x02TAGS\x01t"),
    (b"many", b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b"),
    (b"keys", b"KEYS\x01" + b" ".join(b"%d" % number for number in range(70))),
    (b"empty parts", b"\x02\x02KEYS\x01\x02\x01v\x02a\x01b\x01c\x02"),
    (b"twice", b"UNIQ_KEY\x01U1\x02UNIQ_KEY\x01U2\x02TAGS\x01\x02TAGS\x01z"),
    (b"guarded", b"TAGS\x01t\x02__CRC32#\x010123456789\x02"),
)
SPLICED = tuple(own for _, own in (*PLAIN, *ORDERED, *ODD))
UNNAMED = Message("Topic", 0, None, b"", stores.BORN, stores.BORN, TIME)
HOSTS = (
    *[(stores.BORN, stores.BORN)] * 6,
    (stores.BORN_V6, stores.BORN),
    (stores.BORN, stores.BORN_V6),
)
TOPICS = (*["Topic"] * 6, "SCHEDULE_TOPIC_XXXX", "日本", "t" * 200)


@dataclass(frozen=True, slots=True)
class Seed:
    """A batch to mutate, and where its numbers stand."""

    items: tuple[Item, ...]
    data: bytes
    numbers: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, items: tuple[Item, ...]) -> Seed:
        numbers, at = [], 0
        for body, own in items:
            numbers += [(at + field, 4) for field in (0, 4, 8, 12, 16)] + [(at + 20 + len(body), 2)]
            at += 22 + len(body) + len(own)
        return cls(items, encoded(items), tuple(numbers))


def encoded(items: tuple[Item, ...]) -> bytes:
    """As RocketMQ's clients encode them."""
    return batch.encode_batch([UNNAMED.replace(body=body, properties=own) for body, own in items])


class Batches:
    """A batch is read as Python reads it, and its bytes are placed as Python would, with any free
    space; a batch that is refused has an error."""

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator
        odd = [Seed.of((PLAIN[0], each)) for each in ODD]
        plain = [PLAIN, PLAIN[:1], PLAIN * 3, ORDERED, ORDERED[:1]]
        self._seeds = [*map(Seed.of, plain), *odd]
        self._pool = [seed.data for seed in self._seeds]
        self._room = Room()

    def one(self) -> None:
        draw = self._mutator.random
        born, stored = draw.choice(HOSTS)
        topic, queue_id = draw.choice(TOPICS), draw.choice((-1, -1, 0, 9))
        data = self._mutated(draw.choice(self._seeds))
        body_max = draw.choice((ROOM, ROOM, 300))
        end = self._room.end(body_max, draw if draw.random() < 0.3 else None)
        sends = sends_at(end, topic, stored, body_max)
        keys_of = draw.choice((None, None, lambda count: [f"key~{n}" for n in range(count)]))
        try:
            found = sends.read_batch(data, born, queue_id, keys_of)
        except (Problem, StorageError) as refused:
            assert str(refused)
            self._room.is_untouched()
            return
        items = list(items_of(data))
        messages = found.messages()
        assert [(each.flag, each.body) for each in messages] == [each[:2] for each in items]
        for message, (_, _, own) in zip(messages, items, strict=True):
            assert message.properties.endswith(own)
            assert keys_of is not None or message.properties == own
        self._room.require_put(sends, found)

    def _mutated(self, seed: Seed) -> bytes:
        """A batch with changed bytes, or one whose parts add up, of a changed message."""
        if self._mutator.random.random() < 0.5:
            return bytes(self._mutator.mutated(seed.data, seed.numbers, self._pool))
        changed = self._mutator.random.randrange(len(seed.items))
        body, own = (
            bytes(self._mutator.mutated(each, (), SPLICED)) for each in seed.items[changed]
        )
        return encoded((*seed.items[:changed], (body, own), *seed.items[changed + 1 :]))


def sends_at(end: LogEnd, topic: str, store_host: Host, body_max: int) -> Sends:
    """Build what reads and puts requests at an end; ``body_max`` is the limit of a request."""
    limits = PutLimits(body_max, ROOM, long_topics=True)

    def check(messages: list[Message]) -> list[int]:
        if len(messages) > 1:
            check_batch_size(messages, body_max)
        return check_messages(messages, limits)

    store: Any = SimpleNamespace(
        format=StoreFormat.V5_X,
        delays=SimpleNamespace(levels=DelayLevels("1s 5s")),
        log=SimpleNamespace(end=end, check=check),
        host=store_host,
        dedup=None,
    )
    return sends_of(store, topic, queues=1)


class Room:
    """A log's end, a queue and an index between forbidden pages."""

    def __init__(self) -> None:
        self._log_memory = GuardedMemory(ROOM)
        self._queue_memory = GuardedMemory(QUEUE_ENTRY_SIZE * ENTRIES)
        self._index_memory = GuardedMemory(file_size(SLOTS, ITEMS))
        self._page = memoryview(bytearray(24))

    def end(self, body_max: int, tight: random.Random | None, clock: Clock = CLOCK) -> LogEnd:
        """An end to put at; ``tight`` draws how little room there is."""
        size, entries, items = ROOM, ENTRIES, ITEMS
        if tight is not None:
            size, entries = tight.choice((0, 100, 700, ROOM)), tight.choice((1, 3, ENTRIES))
            items = tight.choice((1, 3, 8, ITEMS))
        self._items = items
        self._index_tags = (size + entries + body_max) % 3 > 0
        self._log = self._log_memory.at_end(bytes(size))
        self._entries = self._queue_memory.at_end(bytes(QUEUE_ENTRY_SIZE * entries))
        self._index = self._index_memory.at_end(bytes(file_size(SLOTS, items)))
        dispatch = DispatchEnd()
        dispatch.position, dispatch.is_idle = BASE, True
        queue, index = self._windows(self._entries, self._index)
        dispatch.follow({("Topic", 0): queue}, index, self._index_tags, 0)
        end = LogEnd({("Topic", 0): NUMBER}, body_max, clock)
        end.room_end, end.max_offset = size, BASE
        segment = FilePositions()
        segment.populate_at = ROOM
        end.attach(segment, self._log)
        end.publish_to(StateWords(self._page, 0, 8, 16), dispatch)
        return end

    def is_untouched(self) -> None:
        assert not any(map(any, (self._log, self._entries, self._index)))

    def require_put(self, sends: Sends, batch: EncodedBatch) -> None:
        """Put a batch: records and an answer as Python makes them, or nothing."""
        reply = sends.put(batch)
        if isinstance(reply, Reason):
            self.is_untouched()
            return
        placed = batch.placements
        self.has(batch.messages(), placed, placed[0].store_timestamp_ms)
        text = placements_json(placed, batch.keys, 0, (), quote)
        assert reply == b'{"messages":%b}' % text

    def has(self, messages: list[Message], placed: list[Placement], time: int) -> None:
        """Records as Python encodes them; entries and items as a dispatch of them writes."""
        records, offset = b"", BASE
        for number, (message, place) in enumerate(zip(messages, placed, strict=True), NUMBER):
            record = kernel_model.encode(message, 1, number, offset, time)
            assert place == Placement(offset, len(record), 0, number, time, message.store_host)
            assert check_record(record, 0, len(record), offset, True) == (Defect.NONE, len(record))
            records, offset = records + record, offset + len(record)
        assert self._log == records.ljust(len(self._log), b"\0")
        entries, index = (memoryview(bytearray(len(each))) for each in (self._entries, self._index))
        queue, index_window = self._windows(entries, index)
        queues = {queue_key(b"Topic", 0): queue}
        position = self._dispatch(0, len(records), queues, index_window)
        if position < len(records):  # the index is full, and what is left has no keys
            position = self._dispatch(position, len(records), queues, None)
        assert position == len(records)
        assert (self._entries, self._index) == (entries, index)

    def _dispatch(
        self, position: int, end: int, queues: dict[bytes, QueueWindow], index: IndexWindow | None
    ) -> int:
        """From a position of the log; where it ended."""
        tags, most = self._index_tags, ENTRIES
        return dispatch_run(self._log, position, end, BASE, queues, index, tags, 0, most, None)[1]

    def _windows(
        self, entries: memoryview, index_file: memoryview
    ) -> tuple[QueueWindow, IndexWindow]:
        queue, index = QueueWindow(), IndexWindow()
        queue.attach(entries, NUMBER, len(entries) // QUEUE_ENTRY_SIZE)
        queue.next_index = NUMBER
        index.attach(index_file, SLOTS, self._items)
        return queue, index
