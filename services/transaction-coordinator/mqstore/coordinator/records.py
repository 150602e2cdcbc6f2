"""Records as the coordinator writes and reads them: a log's fields, without its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec


class NewRecord(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={
        "queue_id": "queueId",
        "body": "bodyBase64",
        "born_host": "bornHost",
        "born_timestamp_ms": "bornTimestamp",
        "sys_flag": "sysFlag",
        "reconsume_times": "reconsumeTimes",
        "prepared_transaction_offset": "preparedTransactionOffset",
    },
):
    """A record to append. ``born_host`` is ``address:port``; times are ms since the epoch.

    As JSON it is what store-writer's internal append reads.
    """

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
    """A key of a topic's records, as the index has it."""

    topic: str
    key: str


class Append(msgspec.Struct, frozen=True, gc=False):
    """Records to append contiguously, all or none, if no record has any of the ``absent`` keys."""

    records: Sequence[NewRecord]
    absent: Sequence[Key] = ()


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A record that was read, and where it stands."""

    record: NewRecord
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where an appended record stands."""

    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Page:
    """Records of a queue, ascending. Those that are damaged or expired are left out."""

    records: list[Stored]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Keyed:
    """Records of a topic under a key; ``complete`` when none is missing."""

    records: list[Stored] = field(default_factory=list)
    complete: bool = True
