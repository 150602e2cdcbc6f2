"""Requests to query, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mqstore.client.models import Download, Hidden
from mqstore.client.requests import Call, call, download, given
from mqstore.wire.lags import GroupLag, GroupLags
from mqstore.wire.messages import MessageDetail, Messages
from mqstore.wire.operations.lags import LAG, LAGS
from mqstore.wire.operations.lookups import (
    MESSAGE,
    MESSAGE_AT,
    MESSAGE_BODY,
    MESSAGE_TRACE,
    MESSAGES,
    TRACES,
)
from mqstore.wire.operations.queues import OFFSET_BY_TIME, PULL, QUEUES
from mqstore.wire.operations.segments import LOG_BYTES, LOG_FILES
from mqstore.wire.queues import Pull, QueueOffset, Queues
from mqstore.wire.segments import LogFiles
from mqstore.wire.traces import MessageTrace, Traces


def message(
    message_id: str, *, topic: str | None = None, inflate: bool | None = None
) -> Call[MessageDetail]:
    """By offset message id; with a topic, by unique key. ``inflate`` a compressed body."""
    params = given(topic=topic, inflate=inflate)
    return call(MESSAGE, at={"id": message_id}, params=params)


def message_body(
    message_id: str,
    *,
    topic: str | None = None,
    inflate: bool | None = None,
    start: int = 0,
    stop: int | None = None,
) -> Call[Download]:
    """A message's body, or its bytes from ``start`` up to ``stop``; ids as for ``message``."""
    params = given(topic=topic, inflate=inflate)
    headers = _range(start, stop)
    return download(MESSAGE_BODY, at={"id": message_id}, params=params, headers=headers)


def log_files() -> Call[LogFiles]:
    """The commit log's files as query may send them: what is on disk."""
    return call(LOG_FILES)


def log_bytes(name: str, start: int, stop: int, *, tag: str | None = None) -> Call[Download]:
    """Bytes of a file of the commit log from ``start`` up to ``stop``, 16 MiB at most: what there
    is more is left out. With the ``tag`` of an earlier part: a problem, epoch-changed, where they
    do not fit together any more."""
    headers = _range(start, stop) | ({} if tag is None else {"if-match": tag})
    return download(LOG_BYTES, at={"name": name}, headers=headers)


def message_at(physical_offset: int) -> Call[MessageDetail]:
    """The message whose record begins at a physical offset."""
    params = {"physicalOffset": physical_offset}
    return call(MESSAGE_AT, params=params)


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
    """Newest first; times are store timestamps, both ends included."""
    params = given(key=key, to=to_ms, limit=limit, cursor=cursor) | given(**{"from": from_ms})
    return call(MESSAGES, at={"topic": topic}, params=params | _included(include))


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
    """All messages of a topic within store timestamps, newest first unless ``order`` is given."""
    params = given(order=order, to=to_ms, limit=limit, cursor=cursor) | given(**{"from": from_ms})
    return call(MESSAGES, at={"topic": topic}, params=params | _included(include))


def queues(topic: str) -> Call[Queues]:
    """The queues of a topic, with their first and next offsets."""
    return call(QUEUES, at={"topic": topic})


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
    """Messages of a queue from an offset, or from its first one; at its end, waits up to
    ``wait_s`` for arrivals. ``tags`` is ``A || B``, ``sql`` a SQL92 expression over
    properties; ``inflate`` compressed bodies. ``shard`` is whose queue it is; needed where there
    are several. ``group`` is the consumer group that pulls, for the metrics."""
    params = given(
        offset=offset, max=max_messages, wait=wait_s or None, tags=tags, sql=sql, inflate=inflate
    ) | given(shard=shard, group=group)
    return call(PULL, at={"topic": topic, "queue": queue_id}, params=params, wait_s=wait_s)


def offset_by_time(
    topic: str, queue_id: int, timestamp_ms: int, *, shard: int | None = None
) -> Call[QueueOffset]:
    """``shard`` as for ``pull``."""
    params = {"timestamp": timestamp_ms} | given(shard=shard)
    return call(OFFSET_BY_TIME, at={"topic": topic, "queue": queue_id}, params=params)


def trace(message_id: str, *, topic: str | None = None) -> Call[MessageTrace]:
    """A message's way through the store; ids as for ``message``."""
    return call(MESSAGE_TRACE, at={"id": message_id}, params=given(topic=topic))


def traces(
    topic: str, key: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Traces]:
    """The ways of a topic's messages with a key, newest first."""
    params = given(key=key, limit=limit, cursor=cursor)
    return call(TRACES, at={"topic": topic}, params=params)


def lags(
    *, topic: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[GroupLags]:
    """How far groups are behind, by name; ``topic`` for those of one topic."""
    params = given(topic=topic, limit=limit, cursor=cursor)
    return call(LAGS, params=params)


def lag(group: str, *, topic: str | None = None) -> Call[GroupLag]:
    """How far a group is behind, by topic and queue."""
    return call(LAG, at={"group": group}, params=given(topic=topic))


def _range(start: int, stop: int | None) -> dict[str, str]:
    if start == 0 and stop is None:
        return {}
    return {"range": f"bytes={start}-{'' if stop is None else stop - 1}"}


def _included(kinds: Sequence[Hidden]) -> dict[str, Any]:
    return {"include": ",".join(kinds)} if kinds else {}
