"""Requests to query, as values that both clients send."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.models import Download, Hidden
from mqstore.client.requests import Call, call, document, download, given

if TYPE_CHECKING:
    from mqstore.wire.access import Access
    from mqstore.wire.messages import MessageDetail, Messages, MessagesById
    from mqstore.wire.queues import Pull, QueueName, QueueOffset, QueueOffsets, Queues
    from mqstore.wire.segments import LogFiles, StoreState


def access() -> Call[Access]:
    """Return the roles of the token, and the roles whose operations they allow."""
    return call(contract.access.ACCESS)


def message(
    message_id: str, *, topic: str | None = None, inflate: bool | None = None
) -> Call[MessageDetail]:
    """Return a message by its offset message id or, with a topic, by its unique key.

    ``inflate`` returns a compressed body inflated.
    """
    params = given(topic=topic, inflate=inflate)
    return call(contract.messages.MESSAGE, at={"id": message_id}, params=params)


def messages_by_id(
    ids: Iterable[str],
    *,
    topic: str | None = None,
    body: Literal["auto", "text", "json", "base64", "none"] | None = None,
    inflate: bool | None = None,
) -> Call[MessagesById]:
    """Return many messages by their ids, which are as for ``message``; at most 1,000.

    Each id has a result, in their order: its message, or the problem. ``remaining`` has the ids
    that a full reply left out: repeat the call with them. ``body`` is how bodies are shown.
    """
    content = document(contract.messages.MESSAGES_BY_ID, ids=list(ids), topic=topic)
    return call(
        contract.messages.MESSAGES_BY_ID, params=given(body=body, inflate=inflate), json=content
    )


def message_body(
    message_id: str,
    *,
    topic: str | None = None,
    inflate: bool | None = None,
    start: int = 0,
    stop: int | None = None,
) -> Call[Download]:
    """Download a message's body, or its bytes from ``start`` to ``stop``.

    Ids are as for ``message``.
    """
    params = given(topic=topic, inflate=inflate)
    headers = _range(start, stop)
    return download(
        contract.messages.MESSAGE_BODY, at={"id": message_id}, params=params, headers=headers
    )


def store_state() -> Call[StoreState]:
    """Return the state of the store that query reads: its bounds, and whether its writer lives."""
    return call(contract.segments.STORE_STATE)


def log_files() -> Call[LogFiles]:
    """List the commit log's files with the bytes that query may send: those on disk."""
    return call(contract.segments.LOG_FILES)


def log_bytes(name: str, start: int, stop: int, *, tag: str | None = None) -> Call[Download]:
    """Download bytes of a file of the commit log from ``start`` to ``stop``, 16 MiB at most.

    With the ``tag`` of an earlier part, raises the problem epoch-changed if the log was changed
    between the two.
    """
    headers = _range(start, stop) | ({} if tag is None else {"if-match": tag})
    return download(contract.segments.LOG_BYTES, at={"name": name}, headers=headers)


def message_at(physical_offset: int) -> Call[MessageDetail]:
    """Return the message whose record begins at a physical offset."""
    params = {"physical_offset": physical_offset}
    return call(contract.messages.MESSAGE_AT, params=params)


def messages_by_key(
    topic: str,
    key: str,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    include: Sequence[Hidden] = (),
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Messages]:
    """Find the messages of a topic with a key, newest first.

    The times are store timestamps in milliseconds, both included.
    """
    params = given(key=key, from_=from_ms, to=to_ms, limit=limit, cursor=cursor)
    return call(contract.messages.MESSAGES, at={"topic": topic}, params=params | _included(include))


def messages_by_time(
    topic: str,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    order: Literal["newest", "oldest"] | None = None,
    include: Sequence[Hidden] = (),
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Messages]:
    """List the messages of a topic in a range of store timestamps (ms), by default newest first."""
    params = given(order=order, from_=from_ms, to=to_ms, limit=limit, cursor=cursor)
    return call(contract.messages.MESSAGES, at={"topic": topic}, params=params | _included(include))


def queues(topic: str) -> Call[Queues]:
    """List the queues of a topic, with their first and next offsets."""
    return call(contract.queues.QUEUES, at={"topic": topic})


def pull(
    topic: str,
    queue_id: int,
    offset: int | None = None,
    *,
    max_messages: int | None = None,
    wait_s: float = 0.0,
    tags: str | None = None,
    sql: str | None = None,
    inflate: bool | None = None,
    shard: int | None = None,
    group: str | None = None,
) -> Call[Pull]:
    """Pull messages of a queue from an offset, by default from the first one.

    At the end of the queue it waits up to ``wait_s`` seconds for arrivals. ``tags`` is ``A || B``,
    ``sql`` an SQL92 expression over properties. ``inflate`` returns compressed bodies inflated.
    ``shard`` is the shard of the queue; it is required where there are several. ``group`` is the
    consumer group, for the metrics.
    """
    params = given(
        offset=offset, max=max_messages, wait=wait_s or None, tags=tags, sql=sql, inflate=inflate
    ) | given(shard=shard, group=group)
    return call(
        contract.queues.PULL, at={"topic": topic, "queue": queue_id}, params=params, wait_s=wait_s
    )


def offset_by_time(
    topic: str, queue_id: int, timestamp_ms: int, *, shard: int | None = None
) -> Call[QueueOffset]:
    """Return the offset of the first message of a queue stored at ``timestamp_ms`` or later.

    ``shard`` is as for ``pull``.
    """
    params = {"timestamp": timestamp_ms} | given(shard=shard)
    return call(
        contract.queues.OFFSET_BY_TIME, at={"topic": topic, "queue": queue_id}, params=params
    )


def offsets_by_time(
    timestamp_ms: int,
    *,
    topics: str | Iterable[str] = (),
    queues: Iterable[QueueName] = (),
) -> Call[QueueOffsets]:
    """Return the offset by time of many queues, as ``offset_by_time``: of all queues of topics, and
    of single queues. Each queue has a result: its offset, or the problem."""
    names = [topics] if isinstance(topics, str) else list(topics)
    chosen = [each.model_dump(by_alias=True, exclude_none=True) for each in queues]
    content = document(
        contract.queues.OFFSETS_BY_TIME,
        timestamp=timestamp_ms,
        topics=names or None,
        queues=chosen or None,
    )
    return call(contract.queues.OFFSETS_BY_TIME, json=content)


def _range(start: int, stop: int | None) -> dict[str, str]:
    if start == 0 and stop is None:
        return {}
    return {"range": f"bytes={start}-{'' if stop is None else stop - 1}"}


def _included(kinds: Sequence[Hidden]) -> dict[str, Any]:
    return {"include": ",".join(kinds)} if kinds else {}


class LookupCalls:
    """Methods of both clients."""

    access = sends(access)
    message = sends(message)
    messages_by_id = sends(messages_by_id)
    message_at = sends(message_at)
    message_body = sends(message_body)
    store_state = sends(store_state)
    log_files = sends(log_files)
    log_bytes = sends(log_bytes)
    messages_by_key = sends(messages_by_key)
    messages_by_time = sends(messages_by_time)
    queues = sends(queues)
    pull = sends(pull)
    offset_by_time = sends(offset_by_time)
    offsets_by_time = sends(offsets_by_time)
