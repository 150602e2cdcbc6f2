"""How what the store found becomes what the query service answers."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType

from mqstore.query import store_cursor
from mqstore.query.bodies import BodyForm
from mqstore.query.models import (
    ChecksumView,
    HeaderView,
    MessageDetailView,
    MessagesView,
    MessageView,
    PullView,
    QueueEntryView,
    QueueView,
    ScannedView,
    UnitView,
    UnreadableView,
)
from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import KEY_SEPARATOR, TRANSACTION_MASK, SysFlag
from mqstore.storage.lookup.answers import KeyAnswer, Pull, QueueRange, Unreadable
from mqstore.storage.lookup.record_place import RecordPlace
from mqstore.storage.lookup.views import Entry
from mqstore.storage.paths import segment_name

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


def message(record: Record, shard: int, form: BodyForm) -> MessageView:
    """A record as the interface shows it."""
    view = MessageView(**_fields(record, shard))
    form.show(record, view)
    return view


def message_detail(
    record: Record, shard: int, form: BodyForm, place: RecordPlace
) -> MessageDetailView:
    """A record with all that is known of it."""
    view = MessageDetailView(
        **_fields(record, shard),
        segment=segment_name(place.segment),
        segment_position=place.position,
        queue_entry=queue_entry(record, place.entry, place.unit),
        checksum=ChecksumView(record.body_crc, place.cover.value, place.covered),
    )
    form.show(record, view)
    return view


def header(record: Record) -> HeaderView:
    return HeaderView(
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.size,
        record.store_timestamp_ms,
        record.born_timestamp_ms,
        record.uniq_key,
        _keys(record),
        record.tags,
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
        "checked_by": checked_by(record),
    }


def checked_by(record: Record) -> Literal["record"] | UnsetType:
    return "record" if record.is_self_checked else UNSET


def _keys(record: Record) -> list[str]:
    return [key for key in (record.keys or "").split(KEY_SEPARATOR) if key]


def queue_entry(record: Record, entry: Entry | None, unit: ExtUnit | None) -> QueueEntryView | None:
    """What stands in a record's place in its queue."""
    if entry is None:
        return None
    names_it = (entry.physical_offset, entry.size) == (record.physical_offset, record.size)
    shown = unit and UnitView(unit.tags_code, unit.store_timestamp_ms, unit.bitmap.hex())
    return QueueEntryView(entry.physical_offset, entry.size, entry.tags_code, names_it, shown)


def pull(found: Pull, shard: int, form: BodyForm) -> PullView:
    return PullView(
        [message(each, shard, form) for each in found.records],
        [unreadable(each) for each in found.unreadable],
        found.next_offset,
        found.min_offset,
        found.max_offset,
        found.status.value,
        shard,
    )


def messages(found: KeyAnswer, shard: int, form: BodyForm, store_id: str) -> MessagesView:
    scanned, cursor = found.scanned, found.cursor
    return MessagesView(
        [message(each, shard, form) for each in found.records],
        [unreadable(each) for each in found.unreadable],
        None if cursor is None else store_cursor.mark(cursor, store_id),
        found.complete,
        ScannedView(
            scanned.from_ms,
            scanned.to_ms,
            scanned.candidates,
            scanned.min_offset,
            scanned.max_offset,
        ),
        store_id,
    )


def queue(found: QueueRange, shard: int) -> QueueView:
    return QueueView(found.queue_id, found.min_offset, found.max_offset, shard)


def unreadable(found: Unreadable) -> UnreadableView:
    problem = problems.from_storage(found.error) or Problem(problems.INTERNAL, str(found.error))
    return UnreadableView(
        found.physical_offset, problem.kind.urn, problem.detail, found.queue_offset
    )


def flag_names(sys_flag: int) -> list[str]:
    """The bits of a SYSFLAG by name, the transaction type as one."""
    names = [name for bit, name in _FLAG_NAMES.items() if sys_flag & bit and name]
    transaction = _TRANSACTION_NAMES.get(sys_flag & TRANSACTION_MASK)
    compression = _COMPRESSION_NAMES.get(sys_flag & SysFlag.COMPRESSION_TYPE_MASK.value)
    return names + [name for name in (transaction, compression) if name]


def host_text(host: Host) -> str:
    if host.is_v6:
        return f"[{host.address_text}]:{host.port}"
    return f"{host.address_text}:{host.port}"
