"""The coordinator's log over a MessageStore in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from mqstore.coordinator.errors import (
    Fenced,
    KeysKnown,
    LogRefused,
    LogUnavailable,
    NotLoaded,
    Reopened,
)
from mqstore.coordinator.log import Kinds, LogPosition, QueueOffsets, Standing
from mqstore.coordinator.records import Append, Key, Keyed, NewRecord, Page, Placement, Stored
from mqstore.storage import errors
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host, parse_host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.config import FlushDiskType
from mqstore.storage.errors import (
    FencedOff,
    FenceUnknown,
    PutRefused,
    QueueUnknown,
    StorageError,
    TopicUnknown,
)
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from mqstore.storage.message_store import MessageStore

FENCE: Final = "transaction-coordinator"
KEYED_MAX: Final = 64


class StoreLog:
    """A ``mqstore.coordinator.log.Log``, and a ``SoonLog``."""

    def __init__(self, opened: Callable[[], MessageStore]) -> None:
        """``opened`` gives the present opening of the store."""
        self._opened = opened
        self._epoch = 0
        self._opening = 0
        self.answers = 0

    @property
    def store(self) -> MessageStore:
        return self._opened()

    def take_over(self) -> Standing:
        try:
            self._opening = self.store.epoch
            self._epoch = self.store.fences.raise_to(FENCE, self._present() + 1).epoch
            self.store.flush.flush_all()
            self.store.wait_for_index()
        except (OSError, StorageError) as error:
            raise LogUnavailable(str(error)) from error
        host, hours = self.store.host, self.store.config.file_reserved_time
        return Standing(self.store.format, _text(host), hours * 3_600_000)

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        return self._append(Append(records))

    def _append(self, append: Append) -> list[Placement]:
        store = self.store
        absent = [(each.topic, each.key) for each in append.absent]
        try:
            messages = [message_of(store, each) for each in append.records]
            found = store.append_fenced(FENCE, self._epoch, messages, absent)
            if store.config.flush_disk_type is FlushDiskType.SYNC:
                store.flush.wait(store.flush.request(found[-1].end))
        except FencedOff as error:
            raise Fenced(str(error)) from error
        except errors.KeysKnown as error:
            raise KeysKnown(str(error)) from error
        except PutRefused as error:
            raise LogRefused(str(error)) from error
        except (OSError, StorageError) as error:
            raise LogUnavailable(str(error)) from error
        return [
            Placement(each.queue_offset, each.physical_offset, each.store_timestamp_ms)
            for each in found
        ]

    async def append_soon(self, append: Append) -> list[Placement]:
        return self._append(append)

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> Page:
        try:
            found = self.store.lookups.records(topic, queue_id, offset, count)
        except (QueueUnknown, TopicUnknown):
            return Page([], 0, 0, 0)
        records = [stored(each) for each in found.records]
        return Page(records, found.next_offset, found.min_offset, found.max_offset)

    def by_key(self, topic: str, key: str) -> Keyed:
        try:
            found = self.store.lookups.by_key(topic, key, limit=KEYED_MAX)
        except (QueueUnknown, TopicUnknown):
            return Keyed()
        complete = found.complete or found.cursor is not None
        return Keyed([stored(each) for each in found.records], complete)

    def kinds(self, keys: Sequence[Key]) -> Kinds:
        found: dict[Key, frozenset[int]] = {}
        for each in keys:
            kinds = self.store.lookups.transaction_types(each.topic, each.key)
            if kinds is None:
                raise NotLoaded("the index does not cover the log")
            if kinds:
                found[each] = kinds
        return found

    def sync(self) -> None:
        try:
            self.store.flush.flush_all()
        except (OSError, StorageError) as error:
            raise LogUnavailable(str(error)) from error

    def position(self) -> LogPosition:
        if self.store.epoch != self._opening:
            raise Reopened("the store was opened again")
        return LogPosition(self.store.log.flushed_offset, self.store.log.max_offset)

    def offsets(self) -> QueueOffsets:
        found = {}
        for topic in (HALF_TOPIC, OP_TOPIC):
            with suppress(TopicUnknown):
                for each in self.store.offsets.of(TRANSACTION_GROUP, topic):
                    if each.committed is not None:
                        found[topic, each.queue_id] = each.committed
        return found

    def save_offsets(self, offsets: QueueOffsets) -> None:
        commits = [Commit(topic, queue, offset) for (topic, queue), offset in offsets.items()]
        try:
            self.store.offsets.commit(TRANSACTION_GROUP, commits, allow_back=True)
        except StorageError as error:
            raise LogUnavailable(str(error)) from error

    def _present(self) -> int:
        try:
            return self.store.fences.get(FENCE).epoch
        except FenceUnknown:
            return 0


def message_of(store: MessageStore, record: NewRecord) -> Message:
    """The record as a store takes it."""
    separator = store.format.trailing_property_separator
    return Message(
        record.topic,
        record.queue_id,
        record.body,
        properties.encode(record.properties, trailing_separator=separator),
        parse_host(record.born_host),
        store.host,
        record.born_timestamp_ms,
        record.flag,
        record.sys_flag,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )


def stored(found: Record) -> Stored:
    """A record of the store as the coordinator reads it."""
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
    return Stored(record, *place)


def _text(host: Host) -> str:
    return (
        f"[{host.address_text}]:{host.port}" if host.is_v6 else f"{host.address_text}:{host.port}"
    )
