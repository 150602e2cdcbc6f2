"""A plain model of a store: what was put, where it must lie, and what was promised.

It follows a living store by reading the log's new bytes after each step, and forgets nothing of
what a crash may bring back: so what any later state holds can be compared with it byte by byte.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from mqstore.storage.codec import properties
from mqstore.storage.codec.java_text import index_hash
from mqstore.storage.codec.record import Blank, Message, Record, scan
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat, SysFlag
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.queues.queue_entry import ENTRY, PRE_BLANK

_OFFSET: Final = attrgetter("offset")
_END: Final = attrgetter("end")
ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
OUT_OF_QUEUES: Final = frozenset({int(SysFlag.TRANSACTION_PREPARED), ROLLBACK})

QueueKey = tuple[str, int]


@dataclass(slots=True)
class Stored:
    """One record of the log."""

    offset: int
    size: int
    queue: QueueKey
    queue_offset: int
    queued: bool
    tags_code: int
    store_ms: int
    body: bytes
    keys: tuple[str, ...]
    """UNIQ_KEY and each of KEYS."""
    hashes: tuple[int, ...]
    """Hashes of its items in the index, in their order."""
    rotten: bool = False
    """A power cut tore it before it was durable: it may be anything but readable."""

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def entry(self) -> bytes:
        return ENTRY.pack(self.offset, self.size, self.tags_code)


@dataclass
class QueueModel:
    """One topic-queue: its records in order, and its entries as bytes, from entry 0."""

    records: list[Stored] = field(default_factory=list)
    packed: bytearray = field(default_factory=bytearray)

    def add(self, stored: Stored) -> None:
        low, high = self.next_index(stored.offset)
        assert low <= stored.queue_offset <= high, (
            f"{stored.queue} gave out queue offset {stored.queue_offset}, not {low} to {high}"
        )
        at = stored.queue_offset * QUEUE_ENTRY_SIZE
        while len(self.packed) < at:
            self.packed += PRE_BLANK
        del self.packed[at:]
        self.packed += stored.entry
        self.records.append(stored)

    def cut(self, end: int) -> None:
        while self.records and self.records[-1].end > end:
            del self.packed[self.records.pop().queue_offset * QUEUE_ENTRY_SIZE :]

    def below(self, end: int) -> Sequence[Stored]:
        """The records that lie wholly below a physical offset."""
        return self.records[: bisect_right(self.records, end, key=_END)]

    def next_index(self, end: int) -> tuple[int, int]:
        """Least and greatest entry to come when the log ends at ``end``: torn records at a queue's
        end may or may not have kept their place."""
        records = self.below(end)
        high = records[-1].queue_offset + 1 if records else 0
        low = next((r.queue_offset + 1 for r in reversed(records) if not r.rotten), 0)
        return min(low, high), max(low, high)

    def from_offset(self, offset: int) -> Sequence[Stored]:
        return self.records[bisect_left(self.records, offset, key=_OFFSET) :]


class Model:
    """See the module. Offsets are physical unless they say otherwise."""

    def __init__(self, store_format: StoreFormat) -> None:
        self.format = store_format
        self.records: list[Stored] = []
        self.image = bytearray()
        """Every byte of the log from offset 0 to ``end``."""
        self.ends: list[int] = [0]
        """Possible ends of the log, ascending: behind a record, or behind a segment's blank."""
        self.queues: dict[QueueKey, QueueModel] = {}
        self.durable = 0
        """Acknowledged as sync, or said to be durable by a recovery: no crash may lose it."""
        self.min_offset = 0
        """Least offset of the open store."""
        self.min_range = (0, 0)
        """Possible beginnings of the log after a crash: expiry may have been under way."""
        self.pending: list[bytes] = []
        """Bodies that were handed to the store, in order, and were not seen in the log yet."""
        self.knows_clock = True
        """False once a disk refused to note a step of the clock: searches by time may then go by
        a step that was noted too late."""
        self.half_committed = False
        """Whether the log may end behind what the store says."""
        self.topics: dict[str, set[int]] = {}
        """Numbers of queues that may be read back, 0 for no such topic; one only unless a save was
        cut off."""
        self.consumed: dict[QueueKey, set[int]] = {}
        """Consumer offsets that may be read back, likewise."""
        self.passed: dict[QueueKey, set[bytes]] = {}
        """Bodies of the messages that the group's commits have ever passed."""

    @property
    def end(self) -> int:
        return len(self.image)

    # following a living store

    def follow(self, log: CommitLog) -> list[Stored]:
        """Take over what the log has that the model has not; the new records.

        Raises AssertionError for a record that was not put, or in another order.
        """
        new: list[Stored] = []
        for file in log.files.files:
            written = file.base_offset + file.wrote_position
            if written > self.end:
                assert file.base_offset <= self.end, "the log has a hole"
                new += self.take(bytes(file.view[: file.wrote_position]), file.base_offset)
        assert self.end == log.max_offset or self.half_committed, (self.end, log.max_offset)
        return new

    def follow_failed_commit(self, log: CommitLog) -> None:
        """Take over what a commit of the pool wrote before the disk failed it half way: it was not
        acknowledged, and a kill may bring it back."""
        for file in log.files.files:
            if file.end_offset > self.end:
                self._take_whole(bytes(file.view), file.base_offset)

    def _take_whole(self, content: bytes, base: int) -> None:
        for found in scan(memoryview(content), self.end - base, len(content), base):
            if not isinstance(found, Record | Blank):
                return
            at = found.physical_offset if isinstance(found, Record) else found.offset
            start, stop = at - base, at + found.size - base
            self.image += content[start:stop]
            self.half_committed = True
            if isinstance(found, Record):
                self._add(found)
            else:
                self.ends.append(base + stop)

    def take(self, content: bytes, base: int) -> list[Stored]:
        """Take over bytes of the log that begin at ``base``, as far as they are new."""
        position = self.end - base
        self.image += content[position:]
        new: list[Stored] = []
        for found in scan(memoryview(content), position, len(content), base):
            if isinstance(found, Record):
                new.append(self._add(found))
            else:
                assert isinstance(found, Blank), f"the store wrote what cannot be read: {found}"
                self.ends.append(found.offset + found.size)
        return new

    def _add(self, found: Record) -> Stored:
        assert self.pending, f"no put made the record at {found.physical_offset}"
        assert found.body == self.pending.pop(0), f"another record at {found.physical_offset}"
        stored = self._stored(found)
        self.records.append(stored)
        self.ends.append(stored.end)
        if stored.queued:
            self.queues.setdefault(stored.queue, QueueModel()).add(stored)
        return stored

    def _stored(self, found: Record) -> Stored:
        return Stored(
            offset=found.physical_offset,
            size=found.size,
            queue=(found.topic, found.queue_id),
            queue_offset=found.queue_offset,
            queued=found.sys_flag & ROLLBACK not in OUT_OF_QUEUES,
            tags_code=found.tags_code,
            store_ms=found.store_timestamp_ms,
            body=found.body,
            keys=tuple(properties.index_keys(found.uniq_key, found.keys)),
            hashes=tuple(self._hashes(found)),
        )

    def _hashes(self, found: Record) -> Iterable[int]:
        if found.sys_flag & ROLLBACK == ROLLBACK:
            return
        for key in properties.index_keys(found.uniq_key, found.keys):
            yield index_hash(f"{found.topic}#{key}")
        if self.format.indexes_tags and found.tags:
            yield index_hash(f"{found.topic}#T#{found.tags}")

    # promises

    def expect(self, messages: Sequence[Message]) -> None:
        """These are about to be put."""
        self.pending += [message.body or b"" for message in messages]

    def refused(self) -> None:
        """Note a refused message: if it is not in the log now, it never appears there."""
        self.pending = []

    def promise(self, end: int) -> None:
        """Everything below ``end`` was acknowledged as being on disk."""
        self.durable = max(self.durable, end)

    def expire_up_to(self, offset: int) -> None:
        """The segments below ``offset`` are about to be unlinked, one by one."""
        self.min_range = (self.min_range[0], offset)

    def expired(self, min_offset: int) -> None:
        """They were, and their directory was synced."""
        self.min_offset = min_offset
        self.min_range = (min_offset, min_offset)

    def topic(self, name: str, queues: int, *, done: bool) -> None:
        """A topic is about to be, or was, created or changed."""
        before = set() if done else self.topics.get(name, {0})
        self.topics[name] = before | {queues}

    def consume(self, key: QueueKey, offset: int, *, done: bool) -> None:
        """A group's offset is about to be committed, or was saved."""
        before = set() if done else self.consumed.get(key, {0})
        self.consumed[key] = before | {offset}
        queue = self.queues.get(key, QueueModel())
        passed = {record.body for record in queue.records if record.queue_offset < offset}
        self.passed.setdefault(key, set()).update(passed)

    # after a crash

    def settle(self, end: int, content: bytes, min_offset: int) -> None:
        """A recovery, already checked against this model, found the log's bytes from
        ``min_offset`` to ``end``: from here on nothing else may come back."""
        self.pending = []
        self.half_committed = False
        while self.records and self.records[-1].end > end:
            self.records.pop()
        for queue in self.queues.values():
            queue.cut(end)
        del self.ends[bisect_right(self.ends, end) :]
        del self.image[end:]
        self.image[min_offset:end] = content
        self.durable = end
        self.min_offset = min_offset
        self.min_range = (min_offset, min_offset)

    # answers

    def live(self, min_offset: int, end: int) -> Sequence[Stored]:
        """The records between two physical offsets."""
        low = bisect_left(self.records, min_offset, key=_OFFSET)
        return self.records[low : bisect_right(self.records, end, key=_END)]

    def may_end_at(self, offset: int) -> bool:
        at = bisect_left(self.ends, offset)
        return at < len(self.ends) and self.ends[at] == offset
