"""A store as the transaction engine sees it: one contiguous append, reads, and saved offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from typing import Final

from mqstore.storage._kernel import TransactionLane
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host, parse_host
from mqstore.storage.codec.record import Message, Record, decode, message_of
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import (
    FilePending,
    QueueUnknown,
    RecordError,
    TopicUnknown,
    TransactionsNotLoaded,
)
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP, StoreFormat
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.clock_steps import StepsView
from mqstore.storage.transactions.records import Key, KeyedRecords, LogRecord, NewRecord, Page

KEYED_MAX: Final = 64
HOSTS_KEPT: Final = 1_024
"""Number of producers' hosts whose parsed form is cached."""
HOUR_MS: Final = 3_600_000

QueueOffsets = Mapping[tuple[str, int], int]
"""Next offsets of group CID_RMQ_SYS_TRANS, by topic and queue."""

Kinds = Mapping[Key, Set[int]]
"""Transaction types (``TRANSACTION_MASK`` of SYSFLAG) of the records of a topic with a unique key;
keys without a record are left out."""


class TransactionLog:
    """The engine's access to the store. Used by one thread at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.format: StoreFormat = store.format
        self.host = _text(store.host)
        """``address:port`` of the store, for records of the engine."""

    def lane(self, keys: UniqueKeys) -> TransactionLane:
        """Build the kernel's way to store plain transactions; ``keys`` names op records."""
        store = self._store
        is_5x = self.format is StoreFormat.V5_X
        return TransactionLane(store.log.end, keys.generated, store.host, is_5x)

    @property
    def reserved_ms(self) -> int:
        """fileReservedTime in ms: older records may be deleted at any time."""
        return self._store.config.file_reserved_time * HOUR_MS

    def append(self, records: Sequence[NewRecord], *, makes_files: bool) -> list[Placement]:
        """Append contiguously, all or none.

        Raises PutRefused (nothing was stored), StoreFailed; and without ``makes_files``
        FilePending, where a file has to be made first.
        """
        store = self._store
        messages = [self._message(each) for each in records]
        while True:
            try:
                return store.append(messages)[0]
            except FilePending as pending:
                if not makes_files:
                    raise
                pending.make()

    def remember(self, topic: str, keys: Sequence[str], placements: list[Placement]) -> None:
        """Note that messages of a topic were put under these unique keys, to detect duplicates."""
        if self._store.dedup is not None:
            self._store.dedup.remember(topic, keys, placements)

    def may_have(self, topic: str, keys: Sequence[str]) -> bool:
        """Whether a record of a topic may have one of these unique keys, by one look-up in the
        table of recent keys (uniqueKeyWindow). Without the table: True."""
        once = self._store.dedup
        return once is None or once.may_know(topic, keys)

    def deleted_below(self, topic: str) -> int:
        """The physical offset below which a topic's records were deleted with it."""
        return self._store.dispatcher.deleted_below(topic)

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> Page:
        """Records of a queue from an offset; an empty page for a missing queue."""
        try:
            found = self._store.lookups.records(topic, queue_id, offset, count)
        except (QueueUnknown, TopicUnknown):
            return Page([], 0, 0, 0)
        records = [_stored(each) for each in found.records]
        return Page(records, found.next_offset, found.min_offset, found.max_offset)

    def read_one(self, topic: str, queue_id: int, offset: int) -> LogRecord | None:
        """The record at exactly that queue offset; None when it is damaged or missing."""
        records = self.read(topic, queue_id, offset, 1).records
        return records[0] if records and records[0].queue_offset == offset else None

    def is_at_hand(self, offset: int, size: int) -> bool:
        """Whether a record of so many bytes is in the last segment, and in memory."""
        return self._store.log.end.has_in_memory(offset, size)

    def read_at_hand(self, offset: int, size: int) -> LogRecord | None:
        """The record of so many bytes at a physical offset, if it ``is_at_hand`` and undamaged.

        Of a store with a TransientStorePool, any record that its pool or a segment has.
        """
        log, commits = self._store.log, self._store.commits
        if commits is not None:
            commits.commit()
        elif not self.is_at_hand(offset, size):
            return None
        view = log.select(offset, size)
        if view is None:
            return None
        try:
            return _stored(message_of(decode(view, 0, size, physical_offset=offset)))
        except RecordError:
            return None

    def by_key(self, topic: str, key: str) -> KeyedRecords:
        """The newest 64 records of a topic with that UNIQ_KEY or KEYS."""
        try:
            found = self._store.lookups.by_key(topic, key, limit=KEYED_MAX)
        except (QueueUnknown, TopicUnknown):
            return KeyedRecords()
        complete = found.complete or found.cursor is not None
        return KeyedRecords([_stored(each) for each in found.records], complete)

    def kinds(self, keys: Sequence[Key]) -> Kinds:
        """The transaction types of the records under each unique key.

        Raises TransactionsNotLoaded while the index does not cover the log.
        """
        found: dict[Key, frozenset[int]] = {}
        for each in keys:
            kinds = self._store.lookups.transaction_types(each.topic, each.key)
            if kinds is None:
                raise TransactionsNotLoaded("the store's index is being made; transactions wait")
            if kinds:
                found[each] = kinds
        return found

    def settle(self) -> None:
        """Wait until everything appended is readable and on disk.

        Raises StoreFailed, TransactionsNotLoaded (queues are behind the log).
        """
        store, end = self._store, self._store.log.max_offset
        if store.commits is not None:
            store.commits.commit()
        store.flush.flush_all()
        if store.dispatcher.position < end:
            raise TransactionsNotLoaded("queues are being made up to the log's end; try again")

    def sync(self) -> None:
        """Sync everything appended. Raises StoreFailed, FlushTimeout."""
        self._store.flush.flush_all()

    @property
    def flushed_offset(self) -> int:
        """Physical offset below which everything is on disk."""
        return self._store.log.flushed_offset

    @property
    def end_offset(self) -> int:
        """Physical offset of the next record."""
        return self._store.log.max_offset

    def noted_time(self) -> tuple[int, StepsView]:
        """The present time, and the steps of the clock up to it (``CommitLog.noted_time``)."""
        return self._store.log.noted_time()

    def offsets(self) -> QueueOffsets:
        """The offsets as last saved."""
        found = {}
        for topic in (HALF_TOPIC, OP_TOPIC):
            with suppress(TopicUnknown):
                for each in self._store.offsets.of(TRANSACTION_GROUP, topic):
                    if each.committed is not None:
                        found[topic, each.queue_id] = each.committed
        return found

    def save_offsets(self, offsets: QueueOffsets) -> None:
        """Save changed offsets. Raises StorageError."""
        commits = [Commit(topic, queue, offset) for (topic, queue), offset in offsets.items()]
        self._store.offsets.commit(TRANSACTION_GROUP, commits, allow_back=True)

    def _message(self, record: NewRecord) -> Message:
        separator = self.format.trailing_property_separator
        return Message(
            record.topic,
            record.queue_id,
            record.body,
            properties.encode(record.properties, trailing_separator=separator),
            _host(record.born_host),
            self._store.host,
            record.born_timestamp_ms,
            record.flag,
            record.sys_flag,
            record.reconsume_times,
            record.prepared_transaction_offset,
        )


_host: Final = lru_cache(maxsize=HOSTS_KEPT)(parse_host)


def _stored(found: Record) -> LogRecord:
    record = NewRecord(
        found.topic,
        found.queue_id,
        found.body,
        found.properties or {},
        _text(found.born_host),
        found.born_timestamp_ms,
        found.flag,
        found.sys_flag,
        found.reconsume_times,
        found.prepared_transaction_offset,
    )
    place = found.queue_offset, found.physical_offset, found.store_timestamp_ms
    return LogRecord(record, *place, found.size)


def _text(host: Host) -> str:
    return (
        f"[{host.address_text}]:{host.port}" if host.is_v6 else f"{host.address_text}:{host.port}"
    )
