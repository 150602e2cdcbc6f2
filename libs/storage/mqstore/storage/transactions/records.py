"""Records as the engine writes and reads them: the fields of a log record, without its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to append. ``born_host`` is ``address:port``; times are ms since the epoch."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    born_host: str
    born_timestamp_ms: int
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Key(msgspec.Struct, frozen=True, gc=False):
    """A key of a topic's records, as the index holds it."""

    topic: str
    key: str


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that was read, and its offsets."""

    record: NewRecord
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    size: int
    """Bytes of the record in the log."""


@dataclass(frozen=True, slots=True)
class Page:
    """Records of a queue, ascending, without damaged and expired ones."""

    records: list[LogRecord]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """Records of a topic under a key; ``complete`` when none is missing."""

    records: list[LogRecord] = field(default_factory=list)
    complete: bool = True
