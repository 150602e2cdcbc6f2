"""What the query service answers, as msgspec structs, and how records become them."""

from __future__ import annotations

import base64
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import TRANSACTION_MASK, SysFlag
from mqstore.storage.lookups import KeyAnswer, Pull, QueueRange, Unreadable

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

Milliseconds = Annotated[int, Meta(description="Milliseconds since the epoch.")]


class MessageView(msgspec.Struct, rename="camel", gc=False):
    """One message as stored."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: Annotated[int, Meta(description="Bytes of its record.")]
    offset_msg_id: str
    uniq_key: str | None
    tags: str | None
    keys: list[str]
    properties: Annotated[
        dict[str, str], Meta(description="All of them, RocketMQ's own names included.")
    ]
    flag: int
    sys_flag: int
    sys_flag_names: list[str]
    born_timestamp: Milliseconds
    born_host: Annotated[str, Meta(description="address:port")]
    store_timestamp: Milliseconds
    store_host: Annotated[str, Meta(description="address:port")]
    reconsume_times: int
    prepared_transaction_offset: int
    shard: int
    body: Annotated[
        str | UnsetType,
        Meta(description="The body as stored, when it is valid UTF-8 (else bodyBase64)."),
    ] = UNSET
    body_base64: Annotated[
        str | UnsetType, Meta(description="The body as stored; compressed where sysFlag says so.")
    ] = UNSET


class UnreadableView(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """A message that is there, and is damaged."""

    physical_offset: int
    type: str
    detail: str
    queue_offset: int | None = None


class PullView(msgspec.Struct, rename="camel", gc=False):
    """Messages of one queue, ascending."""

    messages: list[MessageView]
    unreadable: list[UnreadableView]
    next: Annotated[int, Meta(description="The queue offset to go on with.")]
    min_offset: int
    max_offset: int
    status: Annotated[str, Meta(description="RocketMQ's GetMessageStatus.")]
    shard: int


class ScannedView(
    msgspec.Struct,
    rename={"from_ms": "from", "to_ms": "to"}
    | {"min_offset": "minOffset", "max_offset": "maxOffset"},
    gc=False,
):
    """What a key query looked at."""

    from_ms: Milliseconds
    to_ms: Milliseconds
    candidates: Annotated[int, Meta(description="Index entries whose records were read.")]
    min_offset: int
    max_offset: Annotated[int, Meta(description="Everything below was looked for.")]


class KeyView(msgspec.Struct, rename="camel", gc=False):
    """Messages under a key, newest first."""

    messages: list[MessageView]
    unreadable: list[UnreadableView]
    next: Annotated[str | None, Meta(description="The cursor to go on with.")]
    complete: Annotated[
        bool, Meta(description="No message is missing: no cursor, and the whole range was scanned.")
    ]
    scanned: ScannedView


class QueueView(msgspec.Struct, rename="camel", gc=False):
    """Bounds of one queue: the first offset that is there, and the next to be written."""

    queue_id: int
    min_offset: int
    max_offset: int
    shard: int


class QueuesView(msgspec.Struct, rename="camel", gc=False):
    topic: str
    queues: list[QueueView]


class OffsetView(msgspec.Struct, rename="camel", gc=False):
    """The first queue offset stored at or after a time; maxOffset when there is none."""

    topic: str
    queue_id: int
    timestamp: Milliseconds
    offset: int
    min_offset: int
    max_offset: int
    shard: int


SCHEMAS: Final = (MessageView, PullView, KeyView, QueuesView, OffsetView)


def message(record: Record, shard: int) -> MessageView:
    """A record as the interface shows it."""
    properties = record.properties or {}
    view = MessageView(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        size=record.size,
        offset_msg_id=record.offset_message_id,
        uniq_key=record.uniq_key,
        tags=record.tags,
        keys=[key for key in (record.keys or "").split(" ") if key],
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        sys_flag_names=flag_names(record.sys_flag),
        born_timestamp=record.born_timestamp_ms,
        born_host=host_text(record.born_host),
        store_timestamp=record.store_timestamp_ms,
        store_host=host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        shard=shard,
    )
    try:
        view.body = record.body.decode()
    except UnicodeDecodeError:
        view.body_base64 = base64.b64encode(record.body).decode()
    return view


def pull(found: Pull, shard: int) -> PullView:
    return PullView(
        [message(each, shard) for each in found.records],
        [unreadable(each) for each in found.unreadable],
        found.next_offset,
        found.min_offset,
        found.max_offset,
        found.status.value,
        shard,
    )


def by_key(found: KeyAnswer, shard: int) -> KeyView:
    scanned = found.scanned
    return KeyView(
        [message(each, shard) for each in found.records],
        [unreadable(each) for each in found.unreadable],
        found.cursor,
        found.complete,
        ScannedView(
            scanned.from_ms,
            scanned.to_ms,
            scanned.candidates,
            scanned.min_offset,
            scanned.max_offset,
        ),
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
