"""Views of stored messages in replies of query and of store-writer."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from mqstore.service import message_structs, problems
from mqstore.service.message_bodies import BodyForm, BodyShape
from mqstore.service.problems import Problem
from mqstore.storage.formats import (
    KEY_SEPARATOR,
    TRANSACTION_MASK,
    Host,
    Record,
    SysFlag,
)
from mqstore.storage.reads import MessageForm, Unreadable

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


def message(record: Record, shard: int, form: BodyForm) -> message_structs.Message:
    """Return the view of a record."""
    view = message_structs.Message(**fields(record, shard))
    form.add_body(record, view)
    return view


def kernel_form(shard: int, form: BodyForm) -> MessageForm | None:
    """Return the kernel's form of ``message``; None for a form of bodies that it does not have."""
    if form.shape not in (BodyShape.AUTO, BodyShape.NONE) or form.inflates:
        return None
    with_bodies = form.shape is BodyShape.AUTO
    if with_bodies and form.max_bytes is not None:
        return None
    return MessageForm(shard, with_bodies=with_bodies, flag_names=_flag_names_json)


def _flag_names_json(sys_flag: int) -> bytes:
    return msgspec.json.encode(flag_names(sys_flag))


def fields(record: Record, shard: int) -> dict[str, Any]:
    """Return the fields of a record's view, by name, without its body."""
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "offset_msg_id": record.offset_message_id,
        "uniq_key": record.uniq_key,
        "tags": record.tags,
        "keys": keys(record),
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


def keys(record: Record) -> tuple[str, ...]:
    """Return the KEYS of a record."""
    return tuple([key for key in (record.keys or "").split(KEY_SEPARATOR) if key])


def unreadable(found: Unreadable) -> message_structs.UnreadableMessage:
    """Return the view of a record that cannot be read, with its problem type."""
    problem = problems.from_storage(found.error) or Problem(problems.INTERNAL, str(found.error))
    return message_structs.UnreadableMessage(
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
