"""Operations of a workload on a store, and the journal that is called before and after each.

The same operations run on the simulated disk, in the state machine, and in real processes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.errors import FilePending, PutRefused
from mqstore.storage.layout import SysFlag
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.seams import Seams
from tests.simulation.invariants import GROUP
from tests.simulation.model import QueueKey
from tests.unit.storage.puts import put_batch, put_message

CONFIG: Final = StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=40,
    max_index_num=240,
    max_message_size=4096,
)
"""Files so small that a store is some tens of KiB, and rolls all the time."""
POOLED: Final = CONFIG.model_copy(
    update={"transient_store_pool_enable": True, "transient_store_pool_size": 2}
)
WARMED: Final = CONFIG.model_copy(
    update={
        "warm_maped_file_enable": True,
        "flush_least_pages_when_warm_maped_file": 2,
        "flush_disk_type": FlushDiskType.SYNC,
    }
)
WIDE: Final = CONFIG.model_copy(update={"mapped_file_size_consume_queue": 20 * 120})
"""Queue files of several sectors, whose bounds go through an entry at each of its fields."""
TOPICS: Final = ("T", "%RETRY%g")
QUEUES: Final = 3
SEGMENTS_KEPT: Final = 3
KEYS: Final = 40
TYPES: Final = (
    *[0] * 12,
    int(SysFlag.TRANSACTION_PREPARED),
    int(SysFlag.TRANSACTION_COMMIT),
    int(SysFlag.TRANSACTION_ROLLBACK),
)
LARGE: Final = 3_500


class Journal(Protocol):
    """Records what is about to happen, and what was promised."""

    def expect(self, messages: Sequence[Message]) -> None:
        """These are about to be put."""

    def stored(self, end: int) -> None:
        """They were acknowledged; the last one ends at ``end``."""

    def refused(self) -> None:
        """They were not."""

    def promise(self, end: int) -> None:
        """Everything below ``end`` was acknowledged as being on disk."""

    def expire_up_to(self, offset: int) -> None:
        """The segments below are about to go."""

    def expired(self, min_offset: int) -> None:
        """They went."""

    def topic(self, name: str, queues: int, *, done: bool) -> None:
        """A topic is about to be, or was, created or changed."""

    def consume(self, key: QueueKey, offset: int, *, done: bool) -> None:
        """A group's offset is about to be committed, or was saved."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """The drawn parameters of one message."""

    number: int
    size: int
    key: int
    tag: str | None
    type: int = 0

    @property
    def body(self) -> bytes:
        return f"{self.number}:".encode().ljust(self.size, b"%d" % (self.number % 10))


def message_of(store: MessageStore, key: QueueKey, new: NewMessage, now_ms: int) -> Message:
    table = {"UNIQ_KEY": f"u{new.number}", "KEYS": f"k{new.key} n{new.number}"}
    if new.tag is not None:
        table["TAGS"] = new.tag
    encoded = properties.encode(table, trailing_separator=store.format.trailing_property_separator)
    topic, queue_id = key
    host = store.host
    return Message(topic, queue_id, new.body, encoded, host, host, now_ms, sys_flag=new.type)


class Driver:
    """Operates one open store."""

    def __init__(self, store: MessageStore, journal: Journal, seams: Seams) -> None:
        self.store = store
        self.journal = journal
        self.seams = seams

    def put(self, key: QueueKey, new: Sequence[NewMessage], durability: Durability) -> bool:
        """One message, or a batch; whether it was acknowledged. Raises what the store raises."""
        now_ms = self.seams.clock.now_ms()
        messages = [message_of(self.store, key, each, now_ms) for each in new]
        self.journal.expect(messages)
        try:
            end = self._put(messages, durability)
        except PutRefused:
            self.journal.refused()
            return False
        self.journal.stored(end)
        if durability is Durability.SYNC:
            self.journal.promise(end)
        return True

    def _put(self, messages: Sequence[Message], durability: Durability) -> int:
        """End of the last record; missing files are made first, as a service does it."""
        while True:
            try:
                if len(messages) == 1:
                    return put_message(self.store, messages[0], durability).end
                return put_batch(self.store, messages, durability)[-1].end
            except FilePending as pending:
                pending.make()

    def flush_later(self) -> None:
        """Request durability as a service does, with a callback."""
        request = self.store.flush.request(self.store.log.max_offset)
        request.add_done_callback(
            lambda done: None if done.failed else self.journal.promise(done.offset)
        )

    def flush(self) -> None:
        end = self.store.log.max_offset
        self.store.flush.flush_all()
        self.journal.promise(end)

    def expire(self, count: int) -> None:
        """Unlink the oldest segments and what is derived from them alone."""
        store = self.store
        oldest = store.log.files.files[:-1][:count]
        if oldest:
            self.journal.expire_up_to(oldest[-1].end_offset)
            store.expire(count)
            self.journal.expired(store.log.min_offset)

    def create_topic(self, name: str, queues: int) -> None:
        self.journal.topic(name, queues, done=False)
        self.store.create_topic(name, queues=queues)
        self.journal.topic(name, queues, done=True)

    def consume(self, key: QueueKey, part: int) -> None:
        """Commit an offset of a queue, from 500 on its end; the store saves it now or later."""
        queue = self.store.queues.get(*key)
        if queue is None:
            return
        offset = min(queue.max_index, queue.max_index * part // 500)
        self.journal.consume(key, offset, done=False)
        self.store.offsets.commit(GROUP, [Commit(*key, offset)], allow_back=True)
        if part % 2:
            self.store.offsets.save()
            self.journal.consume(key, offset, done=True)


class Player:
    """Draws operations for a driver from a seed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.next_number = 0

    def play(self, driver: Driver) -> None:
        """One operation. Raises what the store raises."""
        rng = self.rng
        if len(driver.store.log.files.files) > SEGMENTS_KEPT + rng.randrange(3):
            driver.expire(rng.randint(1, 2))
            return
        act: Callable[[Driver], None] = rng.choices(
            [self._put, self._batch, self._later, self._topic, self._consume, self._flush],
            [24, 5, 3, 1, 3, 1],
        )[0]
        act(driver)

    def draw(self) -> NewMessage:
        rng, number = self.rng, self.next_number
        self.next_number += 1
        size = rng.choice([20, rng.randrange(20, 400), rng.randrange(20, 400)])
        if rng.random() < 0.05:
            size = rng.randrange(LARGE)
        tag = rng.choice([None, "a", "b"])
        return NewMessage(number, max(size, 8), rng.randrange(KEYS), tag, rng.choice(TYPES))

    def _place(self) -> QueueKey:
        return self.rng.choice(TOPICS), self.rng.randrange(QUEUES)

    def _put(self, driver: Driver) -> None:
        driver.put(self._place(), [self.draw()], self.rng.choice(list(Durability)))

    def _batch(self, driver: Driver) -> None:
        new = [self.draw() for _ in range(self.rng.randint(2, 8))]
        plain = [NewMessage(m.number, m.size, m.key, m.tag) for m in new]
        driver.put(("T", self.rng.randrange(QUEUES)), plain, self.rng.choice(list(Durability)))

    def _later(self, driver: Driver) -> None:
        driver.flush_later()

    def _flush(self, driver: Driver) -> None:
        driver.flush()

    def _topic(self, driver: Driver) -> None:
        driver.create_topic(f"made{self.rng.randrange(4)}", self.rng.randint(1, 9))

    def _consume(self, driver: Driver) -> None:
        driver.consume(self._place(), self.rng.randrange(1000))
