"""Appends messages under unique keys: duplicates are answered with the first placement.

Called from ``message_store``. A message is identified by its topic and its client's unique key; the
stored record shows whether it is the same message.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mqstore.storage._kernel import EncodedBatch, KeyTables, key_digests
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.dedup.window import KeyWindow
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import OriginalsUnread, PutRefused, StorageError, UniqueKeyTaken
from mqstore.storage.layout import HALF_TOPIC, PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore.storage.log.commit_log import CommitLog, Placement
from mqstore.storage.log.waiting import placement_in
from mqstore.storage.queues.consume_queues import ConsumeQueues

Put = tuple[list[Placement], frozenset[int]]
"""The placements of one request's messages, and the numbers, from 0, of the duplicates."""
NO_REPEATS: Final[frozenset[int]] = frozenset()


class Originals(NamedTuple):
    """The stored messages of a request, read from the log at one moment."""

    known: list[int]
    """Physical offsets by number of the message, negative for an unknown key."""
    placements: dict[str, Placement]
    """Placements by unique key."""


Keys = Sequence[str | None]
"""The client's unique keys, one for each message of one topic; a message with None or "" is never a
duplicate."""


class DeduplicatedPuts:
    """Deduplicates puts. Any thread may put; one at a time does.

    A put that comes before the keys are loaded waits for them: on an event loop, call ``prepare``
    first.
    """

    name = "unique-keys"

    def __init__(
        self,
        read: Callable[[], KeyWindow],
        log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        put: Callable[[EncodedBatch], list[Placement]],
        levels: DelayLevels,
    ) -> None:
        """``read`` loads the keys that were put before the store was opened."""
        self.repeats = 0
        """Number of duplicates that were not stored."""
        self._log = log
        self._put = put
        self._levels = levels
        self._queues = queues
        self._dispatcher = dispatcher
        self.lock = threading.Lock()
        """Protects ``tables``, and is held while a message under a key is put."""
        self._read = read
        self._window: KeyWindow | None = None

    @property
    def tables(self) -> KeyTables | None:
        """The table of keys, which ``lock`` protects; None until it is prepared."""
        return self._window

    @property
    def count(self) -> int:
        """Number of known keys."""
        return 0 if self._window is None else self._window.count

    def prepare(self) -> None:
        """Load the keys from before the opening, unless that is done; otherwise the first put
        does."""
        # Otherwise never take the lock: its holder may be waiting for the disk.
        if self._window is None:
            with self.lock:
                self._known()

    def step(self, now: float) -> float:
        """Load the keys, once (a ``BackgroundService``)."""
        self.prepare()
        return math.inf

    def _known(self) -> KeyWindow:
        """The table of keys; called with the lock held."""
        if self._window is None:
            self._window = self._read()
        return self._window

    def append(
        self,
        batch: EncodedBatch,
        *,
        originals: Originals | None = None,
        reads_max: int | None = None,
    ) -> Put:
        """Append those messages whose unique key (``EncodedBatch.given``) is not known.

        ``originals`` were read before; they are read again if keys were added since. Raises
        UniqueKeyTaken (nothing is stored) for a key of another message, OriginalsUnread when more
        than ``reads_max`` messages must be read, and the errors of the append.
        """
        keys, digests = _keys_of(batch)
        with self.lock:
            known = self._known().find(digests)
            if known is None and (len(keys) == 1 or _all_differ(keys)):
                placements, repeats = self._put(batch), NO_REPEATS
            else:
                if originals is not None and originals.known == known:
                    placed = originals.placements
                else:
                    refuse_reads(sum(offset >= 0 for offset in known or ()), reads_max)
                    placed = self._originals(batch, known)
                placements, repeats = self._append_the_others(batch, placed)
                self.repeats += len(repeats)
            self._known().add(digests, placements)
            return placements, repeats

    def originals(self, batch: EncodedBatch) -> Originals:
        """Read the stored messages with these keys for ``append``, while other threads may put.

        Raises UniqueKeyTaken.
        """
        with self.lock:
            known = self._known().find(_keys_of(batch)[1]) or []
        return Originals(known, self._originals(batch, known or None))

    def remember(self, topic: str, keys: Keys, placements: list[Placement]) -> None:
        """Note messages that were put under generated keys: their client got the keys, and may send
        them again."""
        with self.lock:
            self._known().add(key_digests(topic, keys), placements)

    def may_know(self, topic: str, keys: Sequence[str]) -> bool:
        """Whether a message under any of these unique keys may be stored: one look-up in the table,
        and no read of the log."""
        with self.lock:
            return self._known().find(key_digests(topic, keys)) is not None

    def knows(self, topic: str, keys: Sequence[str]) -> bool:
        """Whether a message under any of these unique keys is stored."""
        with self.lock:
            known = self._known().find(key_digests(topic, keys)) or ()
            return any(
                offset >= 0 and self._original(offset, topic, key) is not None
                for key, offset in zip(keys, known, strict=False)
            )

    def _originals(self, batch: EncodedBatch, known: list[int] | None) -> dict[str, Placement]:
        """The placements of stored messages, by key. Raises UniqueKeyTaken."""
        topic, messages = batch.topic, batch.messages()
        keys, _ = _keys_of(batch)
        first_of: dict[str, Message] = {}
        found: dict[str, Placement] = {}
        for number, (message, key) in enumerate(zip(messages, keys, strict=True)):
            if not key:
                continue
            if key in first_of:
                _require_same(key, topic, first_of[key].body, message, number)
                continue
            first_of[key] = message
            if known is not None and known[number] >= 0:
                original = self._original(known[number], topic, key)
                if original is not None:
                    _refuse_half(key, topic, original, number)
                    _require_same(key, topic, original.body, message, number)
                    found[key] = _placement(original, self._levels)
        return found

    def _append_the_others(self, batch: EncodedBatch, placed: dict[str, Placement]) -> Put:
        keys, _ = _keys_of(batch)
        missing: list[int] = []
        taken = set(placed)
        for number, key in enumerate(keys):
            if key not in taken:
                missing.append(number)
                taken |= {key} if key else set()
        try:
            appended = self._put(batch.only(missing)) if missing else []
        except PutRefused as refused:
            if refused.index is not None:
                refused.index = missing[refused.index]
            raise
        new = dict(zip(missing, appended, strict=True))
        placed = placed | {key: new[at] for at in missing if (key := keys[at])}
        placements = [new.get(at) or placed[key or ""] for at, key in enumerate(keys)]
        return placements, frozenset(range(len(keys))) - new.keys()

    def _original(self, offset: int, topic: str, key: str) -> Record | None:
        """Read the stored message; None when it is not there any more."""
        if self._log.commits is not None:
            self._log.commits.commit()
        try:
            found = self._log.record_at(offset)
        except StorageError:
            return None
        if found.uniq_key != key or _put_topic(found) != topic:
            return None  # a different key with the same digest
        if offset < self._dispatcher.deleted_below(topic):
            return None  # of the topic before, which was deleted
        return found if self._is_queued(found) else None

    def _is_queued(self, found: Record) -> bool:
        """Whether the message is, or will be, in its queue; not if a broker deleted its topic."""
        if found.physical_offset >= self._dispatcher.position:
            return True
        queue = self._queues.get(found.topic, found.queue_id)
        entry = None if queue is None else queue.entry(found.queue_offset)
        place = found.physical_offset, found.size
        return entry is not None and (entry.physical_offset, entry.size) == place


def refuse_reads(count: int, reads_max: int | None) -> None:
    """Raise OriginalsUnread when more messages must be read from the log than allowed."""
    if reads_max is not None and count > reads_max:
        raise OriginalsUnread(f"{count} messages may have been put before")


def end_of(put: Put) -> int:
    """The end of all messages of a put, a physical offset."""
    placements, repeats = put
    return max(each.end for each in placements) if repeats else placements[-1].end


def _placement(found: Record, levels: DelayLevels) -> Placement:
    place = Placement(
        found.physical_offset,
        found.size,
        found.queue_id,
        found.queue_offset,
        found.store_timestamp_ms,
        found.store_host,
    )
    return placement_in(found.topic, place, found.properties or {}, levels)


def _keys_of(batch: EncodedBatch) -> tuple[Keys, bytes]:
    """The client's keys of a batch that has some, and their digests."""
    keys, digests = batch.given, batch.digests
    assert keys is not None, "a batch without keys has no duplicates"
    return keys, digests or bytes(8 * len(keys))


def _all_differ(keys: Keys) -> bool:
    given = [key for key in keys if key]
    return len(set(given)) == len(given)


def _put_topic(found: Record) -> str | None:
    if found.topic in (SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC):
        return (found.properties or {}).get(PROPERTY_REAL_TOPIC)
    return found.topic


def _refuse_half(key: str, topic: str, original: Record, number: int) -> None:
    """Raise UniqueKeyTaken for a message of a transaction: whether consumers get it depends on the
    transaction's decision."""
    if original.topic == HALF_TOPIC:
        taken = UniqueKeyTaken(
            f"unique key {key!r} of topic {topic} is that of a message of a transaction; send each "
            "message under a key of its own"
        )
        taken.index = number
        raise taken


def _require_same(key: str, topic: str, body: bytes | None, message: Message, number: int) -> None:
    if (body or b"") == (message.body or b""):
        return
    taken = UniqueKeyTaken(
        f"unique key {key!r} of topic {topic} is that of a message with another body; "
        "send each message under a key of its own"
    )
    taken.index = number
    raise taken
