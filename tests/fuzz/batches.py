"""Batches in RocketMQ's encoding, as a request brings them: Python's reading and the kernel's."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from mqstore.storage._kernel import (
    Defect,
    DispatchEnd,
    EncodedBatch,
    FilePositions,
    GeneratedKeys,
    IndexWindow,
    JsonReader,
    LogEnd,
    NameRules,
    Placement,
    QueueTurns,
    QueueWindow,
    Reason,
    SendLane,
    StateWords,
    StoredSend,
    SystemClock,
    ValueCounts,
    check_record,
    dispatch_run,
    key_digests,
    placements_json,
)
from mqstore.storage.codec import batch, properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import PutRefused
from mqstore.storage.index.file import file_size
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat, SysFlag
from mqstore.storage.log.put_checks import PutLimits, check_batch, check_message
from mqstore.storage.queues.consume_queues import queue_key
from mqstore.storage.seams import Clock
from tests.fuzz import stores
from tests.fuzz.guarded import GuardedMemory
from tests.fuzz.mutate import Mutator
from tests.simulation.clock import SimulatedClock
from tests.unit.storage import kernel_model

ROOM = 1 << 14
ENTRIES, SLOTS, ITEMS = 64, 7, 500
"""Room for the longest batch that mutations make of the seeds."""
BASE = 7_000
"""Physical offset at which a batch is put."""
NUMBER = 5
"""Its first queue offset."""
TIME = stores.BORN_MS
STOPPED = SimulatedClock(TIME)
FREE = ("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "__SHARDINGKEY")
REFUSED = ("DELAY", "PGROUP", "a")
RULES = NameRules([name.encode() for name in FREE], [name.encode() for name in REFUSED])

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
TEMPLATES = (
    *[UNNAMED] * 6,
    UNNAMED.replace(born_host=stores.BORN_V6),
    UNNAMED.replace(store_host=stores.BORN_V6, reconsume_times=3),
    UNNAMED.replace(topic="SCHEDULE_TOPIC_XXXX"),
    UNNAMED.replace(topic="日本"),
    UNNAMED.replace(queue_id=9),
    UNNAMED.replace(queue_id=-1),
    UNNAMED.replace(sys_flag=int(SysFlag.TRANSACTION_COMMIT)),
)


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
    """The kernel accepts the same batches as Python and places their bytes as Python would, with
    any free space."""

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator
        odd = [Seed.of((PLAIN[0], each)) for each in ODD]
        plain = [PLAIN, PLAIN[:1], PLAIN * 3, ORDERED, ORDERED[:1]]
        self._seeds = [*map(Seed.of, plain), *odd]
        self._pool = [seed.data for seed in self._seeds]
        self._room = _Room()

    def one(self) -> None:
        draw = self._mutator.random
        template, data = draw.choice(TEMPLATES), self._mutated(draw.choice(self._seeds))
        body_max = draw.choice((ROOM, ROOM, 300))
        messages = self._decoded(data, template, body_max)
        is_tight = draw.random() < 0.3
        end = self._room.end(body_max, draw if is_tight else None)
        rules = draw.choice((None, RULES))
        found = end.read_batch(template, data, rules)
        if found is None:
            return
        assert messages is not None, "the kernel takes what Python refuses"
        self._check(found, messages, rules)
        placed = end.put(found)
        if isinstance(placed, Reason):
            assert is_tight or template.queue_id != 0 or template.topic != "Topic"
            self._room.is_untouched()
        else:
            self._room.has(messages, placed, TIME)
        self._send(template, data, messages, body_max)

    def _send(self, template: Message, data: bytes, messages: list[Message], body_max: int) -> None:
        """Put a batch by a send lane: the same records, and a reply that has their placements."""
        hosts = template.born_host, template.store_host
        lane = _lane(self._room.end(body_max, None, SystemClock()), template.topic, hosts[1])
        sent, queue_id = None, self._mutator.random.choice((-1, template.queue_id))
        if lane.read_batch(data, hosts[0], queue_id, True):
            sent = lane.put()
        if sent is None:
            self._room.is_untouched()
            return
        assert isinstance(sent, StoredSend)
        named = [properties.decode(each.properties) for each in messages]
        assert {each.get("__SHARDINGKEY") for each in named} == {lane.ordering_key}
        assert lane.ordering_key is None or queue_id == -1
        time = sent.placements[0].store_timestamp_ms
        born = self._room.born_timestamp_ms
        changes = {"born_timestamp_ms": born, "reconsume_times": 0, "queue_id": 0}
        self._room.has([each.replace(**changes) for each in messages], sent.placements, time)
        text = placements_json(sent.placements, sent.keys, 0, (), _quote)
        assert sent.reply == b'{"messages":%b}' % text

    def _mutated(self, seed: Seed) -> bytes:
        """A batch with changed bytes, or one whose parts add up, of a changed message."""
        if self._mutator.random.random() < 0.5:
            return bytes(self._mutator.mutated(seed.data, seed.numbers, self._pool))
        changed = self._mutator.random.randrange(len(seed.items))
        body, own = (
            bytes(self._mutator.mutated(each, (), SPLICED)) for each in seed.items[changed]
        )
        return encoded((*seed.items[:changed], (body, own), *seed.items[changed + 1 :]))

    def _decoded(self, data: bytes, template: Message, body_max: int) -> list[Message] | None:
        """The messages as Python reads them; None where it refuses them."""
        limits = PutLimits(body_max, ROOM, long_topics=True)
        try:
            found = batch.decode_batch(
                data, template, batch_properties=b"z\x01z", store_format=StoreFormat.V4_9
            )
            assert sum(len(each.body or b"") for each in found) <= len(data)
            found = batch.decode_batch(data, template, store_format=StoreFormat.V5_X)
            check_batch(found, limits)
            for each in found:
                check_message(each, limits)
        except PutRefused as error:
            assert str(error)
            return None
        return found

    def _check(self, found: EncodedBatch, messages: list[Message], rules: NameRules | None) -> None:
        named = [properties.decode(each.properties) for each in messages]
        assert len(found) == len(messages)
        assert found.keys == [each.get("UNIQ_KEY", "") for each in named]
        assert found.digests == key_digests(messages[0].topic, found.keys)
        for name, value in (pair for each in named for pair in each.items() if rules is not None):
            assert name not in REFUSED
            assert name in FREE or ((name + value).isascii() and (name + value).isprintable())


def _quote(text: str) -> bytes:
    return json.dumps(text).encode()


def _lane(end: LogEnd, topic: str, store_host: Host) -> SendLane:
    keys = GeneratedKeys(bytes(20))
    return SendLane(
        end,
        JsonReader(RULES, keys, True, ENTRIES),
        RULES,
        topic,
        queues=1,
        turns=QueueTurns(),
        queue_of=lambda key, _: 0,
        store_host=store_host,
        keys=None,
        lock=None,
        shard=0,
        waits=0,
        traffic=[0, 0],
        put_s=ValueCounts((1.0,)),
        record_size=ValueCounts((1.0,)),
    )


class _Room:
    """A log's end, a queue and an index between forbidden pages."""

    def __init__(self) -> None:
        self._log_memory = GuardedMemory(ROOM)
        self._queue_memory = GuardedMemory(QUEUE_ENTRY_SIZE * ENTRIES)
        self._index_memory = GuardedMemory(file_size(SLOTS, ITEMS))
        self._page = memoryview(bytearray(24))

    def end(self, body_max: int, tight: random.Random | None, clock: Clock = STOPPED) -> LogEnd:
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

    @property
    def born_timestamp_ms(self) -> int:
        """Born timestamp of the first record, in Unix ms."""
        return int.from_bytes(self._log[40:48], "big")

    def is_untouched(self) -> None:
        assert not any(map(any, (self._log, self._entries, self._index)))

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
