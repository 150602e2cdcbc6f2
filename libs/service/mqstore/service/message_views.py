"""Views of stored messages in replies of query and of store-writer."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from pydantic import BaseModel

from mqstore.service import message_structs, problems
from mqstore.service.message_bodies import BodyForm
from mqstore.service.problems import Problem
from mqstore.service.structs import part_of
from mqstore.storage.formats import (
    KEY_SEPARATOR,
    TRANSACTION_MASK,
    Host,
    Record,
    SysFlag,
)
from mqstore.storage.reads import MessageForm, Unreadable, messages_json
from mqstore.wire.messages import BodyShape, Message

Model = TypeVar("Model", bound=BaseModel)


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


def message_form(shard: int, form: BodyForm) -> MessageForm:
    """Return the form in which the kernel encodes messages of a shard."""
    bodies: bool | None = None
    if form.shape is BodyShape.NONE:
        bodies = False
    elif form.shape is BodyShape.AUTO and form.max_bytes is None and not form.inflates:
        bodies = True
    return MessageForm(
        shard,
        Record,
        bodies=bodies,
        flag_names=_flag_names_json,
        host_text=host_text,
        encode_rest=form.encode,
    )


def message(record: Record, form: MessageForm) -> msgspec.Raw:
    """Encode a record as a message of the contract."""
    return msgspec.Raw(messages_json(form, [record]))


def extended(record: Record, form: MessageForm, more: object) -> bytes:
    """Encode a record as a message with the fields of ``more`` behind its own."""
    return messages_json(form, [record])[:-1] + b"," + msgspec.json.encode(more)[1:]


def fields_beside_message(struct: type[Model]) -> type[Model]:
    """Derive a struct with the fields of another one that a message does not have."""
    return part_of(struct, lambda each: each.name not in Message.model_fields)


def _flag_names_json(sys_flag: int) -> bytes:
    return msgspec.json.encode(flag_names(sys_flag))


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
