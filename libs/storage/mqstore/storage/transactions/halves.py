"""The records of a transaction in both formats: half messages, op records, and committed messages.

Sources: TransactionalMessageBridge, EndTransactionProcessor and
DefaultTransactionalMessageCheckListener of 4.9.7 and 5.4.0. Where both write a property's text
before they drop the property, the property stays in the store: TRAN_MSG in committed copies, and in
4.9 also REAL_TOPIC and REAL_QID.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from mqstore.storage.layout import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    KEY_SEPARATOR,
    OP_SEPARATOR,
    OP_TAG,
    OP_TOPIC,
    PROPERTY_CHECK_IMMUNITY,
    PROPERTY_CHECK_TIMES,
    PROPERTY_CRC32,
    PROPERTY_DECIDED_AT,
    PROPERTY_DECISION,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_PREPARED_QUEUE_OFFSET,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TIMERS,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_KEY,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_SIZE,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WHY,
    TRANSACTION_MASK,
    StoreFormat,
    SysFlag,
)
from mqstore.storage.transactions.records import LogRecord, NewRecord

QUEUE: Final = 0
"""RocketMQ puts every half message, and every op record, into this queue."""
QUEUE_ID_MAX: Final = 2**31 - 1
UNKEYED: Final = "@"
"""First character of the key of a transaction whose half message has no UNIQ_KEY."""
DELAYS: Final = frozenset({PROPERTY_DELAY, *PROPERTY_TIMERS})
"""Properties by which a put delays a message. A transactional message has no delay: its producer
clears them, and a copy of a half message that had one would leave the half queue."""
NOT_COPIED: Final = DELAYS | {PROPERTY_CRC32}
"""Properties that no copy of a half message has; the checksum is of the original's bytes."""
NO_TOPIC: Final = (
    "its half message names the half topic as its own: a broker's timer delivered it there, and "
    "its real topic is lost"
)
FILLER: Final = "a power cut took the half message that stood here"
_HOST_FLAGS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6


class Verdict(StrEnum):
    """The kinds of decisions."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    SET_ASIDE = "set-aside"
    """Checked transactionCheckMax times, or older than fileReservedTime."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A decision with its time and reason; a broker's op records hold neither."""

    verdict: Verdict
    at_ms: int | None
    why: str


class Half(msgspec.Struct, frozen=True, gc=False):
    """The fields of a half message, with a digest instead of its body."""

    key: str
    """Key of its transaction: all copies and all messages of one share it."""
    uniq_key: str
    """Unique key of the message; "" without one."""
    size: int
    """Messages of the transaction."""
    group: str
    topic: str
    queue_id: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    check_times: int
    immunity_ms: int | None
    queue_offset: int
    physical_offset: int
    record_size: int
    """Bytes of the record in the log."""
    body_digest: bytes
    has_delay: bool = False
    """Whether the record has one of ``DELAYS``."""

    @property
    def is_decidable(self) -> bool:
        """Whether the real topic is known. A broker's timer that delivers a half message into the
        half topic replaces it by that one."""
        return self.topic not in (HALF_TOPIC, OP_TOPIC)


def digest_body(body: bytes) -> bytes:
    """A 16-byte digest of a body, which a begin under known unique keys compares."""
    return hashlib.blake2b(body, digest_size=16).digest()


def read_half(found: LogRecord) -> Half | None:
    """Decode a record of the half queue; None for one that no broker could commit."""
    table = found.record.properties
    topic, queue = table.get(PROPERTY_REAL_TOPIC), _number(table, PROPERTY_REAL_QUEUE_ID)
    if not topic or queue is None or queue > QUEUE_ID_MAX:
        return None
    first = _number(table, PROPERTY_PREPARED_QUEUE_OFFSET)
    uniq_key = table.get(PROPERTY_UNIQ_KEY, "")
    unkeyed = f"{UNKEYED}{found.queue_offset if first is None else first}"
    immunity = _number(table, PROPERTY_CHECK_IMMUNITY)
    return Half(
        key=table.get(PROPERTY_TRANSACTION_KEY) or uniq_key or unkeyed,
        uniq_key=uniq_key,
        size=_number(table, PROPERTY_TRANSACTION_SIZE) or 1,
        group=table.get(PROPERTY_PRODUCER_GROUP, ""),
        topic=topic,
        queue_id=queue,
        born_timestamp_ms=found.record.born_timestamp_ms,
        store_timestamp_ms=found.store_timestamp_ms,
        check_times=_number(table, PROPERTY_CHECK_TIMES) or 0,
        immunity_ms=None if immunity is None else immunity * 1000,
        queue_offset=found.queue_offset,
        physical_offset=found.physical_offset,
        record_size=found.size,
        body_digest=digest_body(found.record.body),
        has_delay=not DELAYS.isdisjoint(table),
    )


def filler_of(host: str, new_key: str, at_ms: int) -> NewRecord:
    """The filler for a half message that a power cut removed and an op record names.

    No other half message may get its queue offset: readers of the op record would take it for
    decided. The filler has a body: a broker of 5.x that checked one without a body would never
    check the half messages after it (HookUtils.checkBeforePutMessage,
    TransactionalMessageServiceImpl.check of 5.4.0).
    """
    table = {PROPERTY_UNIQ_KEY: new_key, PROPERTY_WHY: FILLER}
    return NewRecord(HALF_TOPIC, QUEUE, FILLER.encode(), table, host, at_ms)


def is_filler(found: LogRecord) -> bool:
    """Whether a record is a filler."""
    return found.record.properties.get(PROPERTY_WHY) == FILLER


def half_of(message: NewRecord, group: str, store_format: StoreFormat) -> NewRecord:
    """The half message of a message with a UNIQ_KEY."""
    changes = {
        PROPERTY_TRANSACTION_PREPARED: "true",
        PROPERTY_PRODUCER_GROUP: group,
        PROPERTY_REAL_TOPIC: message.topic,
        PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
    }
    if store_format is StoreFormat.V5_X:
        changes[PROPERTY_TRANSACTION_ID] = message.properties[PROPERTY_UNIQ_KEY]
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=QUEUE,
        properties={**message.properties, **changes},
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
    )


def parts_of(key: str, size: int) -> dict[str, str]:
    """Further properties of the messages of one transaction, when there are several."""
    if size == 1:
        return {}
    return {PROPERTY_TRANSACTION_KEY: key, PROPERTY_TRANSACTION_SIZE: str(size)}


def committed_of(half: LogRecord, place: Half, store_format: StoreFormat) -> NewRecord:
    """The real message: flagged as committed, and with the offset of its half message.

    ``place`` is the newest copy of the half, ``half`` any record that has its content.
    """
    dropped = NOT_COPIED
    if store_format is StoreFormat.V5_X:
        dropped |= {PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID}
    record = half.record
    return replace(
        record,
        topic=place.topic,
        queue_id=place.queue_id,
        properties=_without(record.properties, dropped),
        sys_flag=(record.sys_flag & ~_HOST_FLAGS) | SysFlag.TRANSACTION_COMMIT,
        prepared_transaction_offset=place.physical_offset,
    )


def checked_copy_of(half: LogRecord, place: Half, check_times: int) -> NewRecord:
    """A further copy of the half message, after ``check_times`` checks."""
    changes = {PROPERTY_CHECK_TIMES: str(check_times)}
    if place.key.startswith(UNKEYED):
        changes[PROPERTY_PREPARED_QUEUE_OFFSET] = place.key.removeprefix(UNKEYED)
    record = half.record
    return replace(
        record,
        properties={**_without(record.properties, NOT_COPIED), **changes},
        sys_flag=record.sys_flag & ~_HOST_FLAGS,
    )


def set_aside_of(half: LogRecord) -> NewRecord:
    """The copy in TRANS_CHECK_MAX_TIME_TOPIC, for operators."""
    record = half.record
    return replace(
        record,
        topic=CHECK_MAX_TIME_TOPIC,
        queue_id=QUEUE,
        properties=_without(record.properties, NOT_COPIED),
        sys_flag=record.sys_flag & ~_HOST_FLAGS,
    )


def ops_of(
    offsets: Sequence[int],
    key: str,
    decision: Decision,
    host: str,
    new_key: str,
    store_format: StoreFormat,
) -> list[NewRecord]:
    """Op records for half messages at these queue offsets: one each in 4.9, one for all in 5.x.

    Ours also have the transaction among their keys, and the decision with its time and reason.
    """
    at_ms = decision.at_ms or 0
    table = {PROPERTY_UNIQ_KEY: new_key, PROPERTY_TAGS: OP_TAG}
    if key and KEY_SEPARATOR not in key:
        table[PROPERTY_KEYS] = key
    table |= {PROPERTY_DECISION: decision.verdict.value, PROPERTY_DECIDED_AT: str(at_ms)}
    if decision.why:
        table[PROPERTY_WHY] = decision.why
    if store_format is StoreFormat.V5_X:
        bodies = ["".join(f"{offset}{OP_SEPARATOR}" for offset in offsets)]
    else:
        bodies = [str(offset) for offset in offsets]
    return [NewRecord(OP_TOPIC, QUEUE, body.encode(), table, host, at_ms) for body in bodies]


def read_op(found: LogRecord) -> list[int]:
    """Queue offsets of the half messages that an op record resolves, in either version's form."""
    tags = found.record.properties.get(PROPERTY_TAGS)
    return offsets_in(found.record.body) if tags == OP_TAG else []


def offsets_in(body: bytes) -> list[int]:
    """The numbers in an op record's body; other text is ignored."""
    text = body.decode("ascii", "replace")
    return [int(part) for part in text.split(OP_SEPARATOR) if _is_number(part)]


def read_decision(found: LogRecord) -> Decision | None:
    """The decision in an op record of ours; None for a broker's."""
    table = found.record.properties
    try:
        verdict = Verdict(table.get(PROPERTY_DECISION, ""))
    except ValueError:
        return None
    return Decision(verdict, _number(table, PROPERTY_DECIDED_AT), table.get(PROPERTY_WHY, ""))


def _without(table: Mapping[str, str], names: Set[str]) -> dict[str, str]:
    return {name: value for name, value in table.items() if name not in names}


def _number(table: Mapping[str, str], name: str) -> int | None:
    text = table.get(name, "")
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
