"""Conversion of the store's results into replies of the query service."""

from __future__ import annotations

from typing import Any, Final, Literal

from mqstore.query import replies, store_cursor
from mqstore.query.bodies import BodyForm
from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage.formats import (
    KEY_SEPARATOR,
    TRANSACTION_MASK,
    ExtUnit,
    Host,
    Record,
    SysFlag,
    segment_name,
)
from mqstore.storage.reads import Entry, KeyAnswer, Pull, QueueRange, RecordPlace, Unreadable

_TRANSACTION_NAMES: Final = {
    0x4: "TRANSACTION_PREPARED",
    0x8: "TRANSACTION_COMMIT",
    0xC: "TRANSACTION_ROLLBACK",
}
_FLAG_NAMES: Final = {
    flag.value: flag.name
    for flag in (
        SysFlag.COMPRESSED,
        SysFlag.MULTI_TAGS,
        SysFlag.BORN_HOST_V6,
        SysFlag.STORE_HOST_V6,
        SysFlag.INNER_BATCH,
        SysFlag.NEED_UNWRAP_INNER_BATCH,
    )
}
_COMPRESSION_NAMES: Final = {
    0x100: "COMPRESSION_LZ4",
    0x200: "COMPRESSION_ZSTD",
    0x300: "COMPRESSION_ZLIB",
}


def message(record: Record, shard: int, form: BodyForm) -> replies.Message:
    """Return the view of a record."""
    view = replies.Message(**_fields(record, shard))
    form.add_body(record, view)
    return view


def message_detail(
    record: Record, shard: int, form: BodyForm, place: RecordPlace
) -> replies.MessageDetail:
    """Return the view of a record with its place in the store and its checksums."""
    view = replies.MessageDetail(
        **_fields(record, shard),
        segment=segment_name(place.segment),
        segment_position=place.position,
        queue_entry=queue_entry(record, place.entry, place.unit),
        checksum=replies.Checksum(
            body_crc=record.body_crc, blocks=place.cover.value, covered_bytes=place.covered
        ),
    )
    form.add_body(record, view)
    return view


def header(record: Record) -> replies.DamagedHeader:
    """Return the fields that are readable in the header of a damaged record."""
    return replies.DamagedHeader(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        size=record.size,
        store_timestamp=record.store_timestamp_ms,
        born_timestamp=record.born_timestamp_ms,
        uniq_key=record.uniq_key,
        keys=_keys(record),
        tags=record.tags,
    )


def _fields(record: Record, shard: int) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "offset_msg_id": record.offset_message_id,
        "uniq_key": record.uniq_key,
        "tags": record.tags,
        "keys": _keys(record),
        "properties": record.properties or {},
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "sys_flag_names": flag_names(record.sys_flag),
        "born_timestamp": record.born_timestamp_ms,
        "born_host": host_text(record.born_host),
        "store_timestamp": record.store_timestamp_ms,
        "store_host": host_text(record.store_host),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "shard": shard,
        "body_size": len(record.body),
        "checked_by": checked_by(record),
    }


def checked_by(record: Record) -> Literal["record"] | None:
    """Return `record` if only the record's own checks vouch for it, else None."""
    return "record" if record.is_self_checked else None


def _keys(record: Record) -> tuple[str, ...]:
    return tuple([key for key in (record.keys or "").split(KEY_SEPARATOR) if key])


def queue_entry(
    record: Record, entry: Entry | None, unit: ExtUnit | None
) -> replies.QueueEntry | None:
    """Return the view of the queue entry at the record's queue offset, None without one."""
    if entry is None:
        return None
    names_it = (entry.physical_offset, entry.size) == (record.physical_offset, record.size)
    shown = unit and replies.Unit(
        tags_code=unit.tags_code,
        store_timestamp=unit.store_timestamp_ms,
        bitmap=unit.bitmap.hex(),
    )
    return replies.QueueEntry(
        physical_offset=entry.physical_offset,
        size=entry.size,
        tags_code=entry.tags_code,
        names_it=names_it,
        unit=shown,
    )


def pull(found: Pull, shard: int, form: BodyForm) -> replies.Pull:
    """Return the view of a pull."""
    return replies.Pull(
        messages=tuple([message(each, shard, form) for each in found.records]),
        unreadable=tuple([unreadable(each) for each in found.unreadable]),
        next=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        status=found.status.value,
        shard=shard,
    )


def messages(found: KeyAnswer, shard: int, form: BodyForm, store_id: str) -> replies.Messages:
    """Return the view of a page of messages, with a cursor that names its store."""
    scanned, cursor = found.scanned, found.cursor
    return replies.Messages(
        messages=tuple([message(each, shard, form) for each in found.records]),
        unreadable=tuple([unreadable(each) for each in found.unreadable]),
        next=None if cursor is None else store_cursor.add_store_id(cursor, store_id),
        complete=found.complete,
        scanned=replies.ScannedRange(
            from_ms=scanned.from_ms,
            to_ms=scanned.to_ms,
            candidates=scanned.candidates,
            min_offset=scanned.min_offset,
            max_offset=scanned.max_offset,
        ),
        store_id=store_id,
    )


def queue(found: QueueRange, shard: int) -> replies.Queue:
    """Return the view of a queue's bounds."""
    return replies.Queue(
        queue_id=found.queue_id,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        shard=shard,
    )


def unreadable(found: Unreadable) -> replies.UnreadableMessage:
    """Return the view of a record that cannot be read, with its problem type."""
    problem = problems.from_storage(found.error) or Problem(problems.INTERNAL, str(found.error))
    return replies.UnreadableMessage(
        physical_offset=found.physical_offset,
        type=problem.kind.urn,
        detail=problem.detail,
        queue_offset=found.queue_offset,
    )


def flag_names(sys_flag: int) -> tuple[str, ...]:
    """Return the names of the bits in a SYSFLAG, one name for the transaction type."""
    names = [name for bit, name in _FLAG_NAMES.items() if sys_flag & bit and name]
    transaction = _TRANSACTION_NAMES.get(sys_flag & TRANSACTION_MASK)
    compression = _COMPRESSION_NAMES.get(sys_flag & SysFlag.COMPRESSION_TYPE_MASK.value)
    return (*names, *(name for name in (transaction, compression) if name))


def host_text(host: Host) -> str:
    """Return ``address:port``, with an IPv6 address in brackets."""
    if host.is_v6:
        return f"[{host.address_text}]:{host.port}"
    return f"{host.address_text}:{host.port}"
