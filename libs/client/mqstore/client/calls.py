"""Every request of the REST API as a value: where it goes, and what its answer becomes.

Both clients send these; nothing here does input or output.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from crc32c import crc32c
from pydantic import BaseModel

from mqstore.client import unique_keys
from mqstore.client.models import (
    Download,
    ExpiryReport,
    Health,
    Hidden,
    NewMessage,
    Nothing,
    Recovery,
    RepairReport,
    Retention,
    Scrub,
)
from mqstore.wire.groups import (
    Group,
    GroupOffsets,
    Groups,
    OffsetsReset,
    Subscription,
    Subscriptions,
)
from mqstore.wire.lags import GroupLag, GroupLags
from mqstore.wire.messages import MessageDetail, Messages
from mqstore.wire.produce import Durability, Produced
from mqstore.wire.queues import Pull, QueueOffset, Queues
from mqstore.wire.retention import Archive, Pin, Pins
from mqstore.wire.segments import LogFiles
from mqstore.wire.stores import DelayLevels, Flushed, Segments, Store, Writes
from mqstore.wire.topics import Topic, TopicDeletion, Topics
from mqstore.wire.traces import MessageTrace, Traces

Answer = TypeVar("Answer", bound=BaseModel)

_ARCHIVE: Final = "/v1/store/archive"
_EXPIRY_REPORT: Final = "/v1/reports/expiry"
ROCKETMQ_BATCH: Final = "application/x-rocketmq-batch"


class Target(Enum):
    """Which service a call goes to."""

    WRITER = "writer"
    QUERY = "query"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request. ``wait_s`` is how long the service may take on purpose."""

    target: Target
    method: str
    path: str
    answer: type[Answer]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    errors_are_answers: bool = False
    patience_s: float = 0.0
    """How long it is sent again by itself."""
    with_keys: Callable[[int | None], Call[Answer]] | None = None
    """Makes the call with newly generated unique keys that name a shard; None: it needs none."""


def produce(
    topic: str,
    messages: NewMessage | Sequence[NewMessage],
    *,
    durability: Durability | None = None,
    shard: int | None = None,
    patience_s: float = 0.0,
) -> Call[Produced]:
    """Store a message or several: these are one contiguous append to one queue, all or none.
    Without a ``shard`` those with a ``uniq_key`` land on the one that the key names, all others on
    the one that is reached.

    A request may be sent again when no answer came where all messages have a ``uniq_key``: nothing
    is stored twice. With ``patience_s`` the client does so by itself, and generates the keys that
    are missing.
    """
    if isinstance(messages, NewMessage):
        messages = [messages]
    sent = messages
    with_keys: Callable[[int | None], Call[Produced]] | None = None
    if patience_s and not all(each.uniq_key for each in sent):

        def with_keys(named: int | None) -> Call[Produced]:
            keyed = [
                each
                if each.uniq_key
                else each.model_copy(update={"uniq_key": unique_keys.generate(named)})
                for each in sent
            ]
            return replace(
                produce(topic, keyed, durability=durability, shard=shard), patience_s=patience_s
            )

    body: dict[str, Any] = {"messages": [each.as_json() for each in messages]}
    if durability is not None:
        body["durability"] = durability
    path, params = f"{_topic(topic)}/messages", given(shard=shard)
    return Call(
        Target.WRITER,
        "POST",
        path,
        Produced,
        params=params,
        json=body,
        patience_s=patience_s,
        with_keys=with_keys,
    )


def _with_key(message: NewMessage, shard: int | None) -> NewMessage:
    return message.model_copy(update={"uniq_key": unique_keys.generate(shard)})


def produce_batch(
    topic: str,
    batch: bytes,
    *,
    queue_id: int | None = None,
    durability: Durability | None = None,
    shard: int | None = None,
    patience_s: float = 0.0,
) -> Call[Produced]:
    """Store a batch as RocketMQ's clients encode it; its checksum goes along. With ``patience_s``
    it is sent again by itself: give every message a UNIQ_KEY, by which a duplicate is known."""
    checksum = str(crc32c(batch))
    headers = {"content-type": ROCKETMQ_BATCH, "x-mqstore-crc32c": checksum}
    return Call(
        Target.WRITER,
        "POST",
        f"{_topic(topic)}/messages",
        Produced,
        params=given(queueId=queue_id, durability=durability, shard=shard),
        content=batch,
        headers=headers,
        patience_s=patience_s,
    )


def create_topic(topic: str, *, queues: int = 4, perm: int = 6) -> Call[Topic]:
    """Create a topic, or change its queues."""
    body = {"queues": queues, "perm": perm}
    return Call(Target.WRITER, "PUT", _topic(topic), Topic, json=body)


def change_topic(
    topic: str,
    *,
    queues: int | None = None,
    read_queues: int | None = None,
    write_queues: int | None = None,
    perm: Literal[2, 4, 6] | None = None,
    order: bool | None = None,
    filter_type: Literal["SINGLE_TAG", "MULTI_TAG"] | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Call[Topic]:
    """Create a topic, or change the fields of it that are given. ``queues``: to read and to write;
    ``perm``: 2 write, 4 read, 6 both."""
    fields = given(
        queues=queues,
        readQueues=read_queues,
        writeQueues=write_queues,
        perm=perm,
        order=order,
        filterType=filter_type,
        attributes=attributes,
    )
    return Call(Target.WRITER, "PUT", _topic(topic), Topic, json=fields)


def delete_topic(topic: str, *, dry_run: bool = False) -> Call[TopicDeletion]:
    """Delete a topic with its queues; its messages stay in the log until they expire."""
    params = {"dryRun": dry_run}
    return Call(Target.WRITER, "DELETE", _topic(topic), TopicDeletion, params=params)


def groups() -> Call[Groups]:
    """Consumer groups that were created, or have offsets."""
    return Call(Target.WRITER, "GET", "/v1/groups", Groups)


def group(name: str) -> Call[Group]:
    """A consumer group: its settings, and the topics that it has offsets of."""
    return Call(Target.WRITER, "GET", _group(name), Group)


def put_group(
    name: str,
    *,
    consume_enable: bool | None = None,
    consume_from_min_enable: bool | None = None,
    consume_broadcast_enable: bool | None = None,
    consume_message_orderly: bool | None = None,
    retry_queues: int | None = None,
    retry_times_max: int | None = None,
    broker_id: int | None = None,
    which_broker_when_consume_slowly: int | None = None,
    notify_consumer_ids_changed_enable: bool | None = None,
    consume_timeout_minutes: int | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Call[Group]:
    """Create a group, or change the fields of it that are given: RocketMQ's
    SubscriptionGroupConfig. ``consume_message_orderly`` and ``consume_timeout_minutes`` are of 5.x.
    """
    fields = given(
        consumeEnable=consume_enable,
        consumeFromMinEnable=consume_from_min_enable,
        consumeBroadcastEnable=consume_broadcast_enable,
        consumeMessageOrderly=consume_message_orderly,
        retryQueues=retry_queues,
        retryTimesMax=retry_times_max,
        brokerId=broker_id,
        whichBrokerWhenConsumeSlowly=which_broker_when_consume_slowly,
        notifyConsumerIdsChangedEnable=notify_consumer_ids_changed_enable,
        consumeTimeoutMinutes=consume_timeout_minutes,
        attributes=attributes,
    )
    return Call(Target.WRITER, "PUT", _group(name), Group, json=fields)


def delete_group(name: str, *, clean_offset: bool = False) -> Call[Nothing]:
    """Forget a group's config and, if asked to, what it has consumed."""
    params = {"cleanOffset": clean_offset}
    return Call(Target.WRITER, "DELETE", _group(name), Nothing, params=params)


def offsets(group: str, *, topic: str | None = None) -> Call[GroupOffsets]:
    """Where a group stands, by topic and queue."""
    path = _group(group) + "/offsets"
    return Call(Target.WRITER, "GET", path, GroupOffsets, params=given(topic=topic))


def commit(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    allow_back: bool = False,
    shard: int | None = None,
) -> Call[GroupOffsets]:
    """Say which message of each queue is to be consumed next: all of it is taken, or none.
    ``shard`` is whose queues these are; needed where there are several."""
    new = [{"topic": topic, "queueId": queue, "offset": n} for queue, n in offsets.items()]
    body = {"offsets": new, "allowBack": allow_back}
    path, params = _group(group) + "/offsets", given(shard=shard)
    return Call(Target.WRITER, "PUT", path, GroupOffsets, params=params, json=body)


def reset_offsets(
    group: str,
    topic: str,
    to: str,
    *,
    timestamp: int | None = None,
    queue_ids: Sequence[int] | None = None,
    dry_run: bool = False,
) -> Call[OffsetsReset]:
    """To ``earliest``, ``latest``, or the first message at or after a ``timestamp``."""
    body = {"topic": topic, "to": to, "dryRun": dry_run}
    body |= given(timestamp=timestamp, queueIds=queue_ids and list(queue_ids))
    return Call(Target.WRITER, "POST", _group(group) + "/offsets:reset", OffsetsReset, json=body)


def subscriptions(group: str) -> Call[Subscriptions]:
    """A group's subscriptions with an expression."""
    return Call(Target.WRITER, "GET", _group(group) + "/subscriptions", Subscriptions)


def subscribe(group: str, topic: str, expression: str) -> Call[Subscription]:
    """Register which messages of a topic a group wants, as an SQL92 expression."""
    body = {"expression": expression}
    return Call(Target.WRITER, "PUT", _subscription(group, topic), Subscription, json=body)


def subscription(group: str, topic: str) -> Call[Subscription]:
    """A group's subscription to a topic."""
    return Call(Target.WRITER, "GET", _subscription(group, topic), Subscription)


def unsubscribe(group: str, topic: str) -> Call[Nothing]:
    """End a subscription."""
    return Call(Target.WRITER, "DELETE", _subscription(group, topic), Nothing)


def topic(name: str) -> Call[Topic]:
    """A topic's settings."""
    return Call(Target.WRITER, "GET", _topic(name), Topic)


def topics() -> Call[Topics]:
    """All topics, by name."""
    return Call(Target.WRITER, "GET", "/v1/topics", Topics)


def store() -> Call[Store]:
    """The store that store-writer has open: identity, offsets, sizes, state."""
    return Call(Target.WRITER, "GET", "/v1/store", Store)


def recovery() -> Call[Recovery]:
    """What recovery found and did when the store was opened."""
    return Call(Target.WRITER, "GET", "/v1/store/recovery", Recovery)


def delays() -> Call[DelayLevels]:
    """Delayed messages, by level."""
    return Call(Target.WRITER, "GET", "/v1/store/delays", DelayLevels)


def segments() -> Call[Segments]:
    """The segments of the log, oldest first."""
    return Call(Target.WRITER, "GET", "/v1/segments", Segments)


def retention(*, limit: int | None = None) -> Call[Retention]:
    """What would be deleted now, when and why; of the oldest ``limit`` segments."""
    return Call(Target.WRITER, "GET", "/v1/store/retention", Retention, params=given(limit=limit))


def scrub() -> Call[Scrub]:
    """What the disk has changed, and how far the look at it is."""
    return Call(Target.WRITER, "GET", "/v1/store/scrub", Scrub)


def run_scrub() -> Call[Scrub]:
    """Have a pass over all checksums begin."""
    return Call(Target.WRITER, "POST", "/v1/store/scrub:run", Scrub)


def repair_log(*, dry_run: bool = False) -> Call[RepairReport]:
    """Read the whole log, and repair what is damaged in it."""
    path = "/v1/store/scrub:repair"
    return Call(Target.WRITER, "POST", path, RepairReport, params=given(dryRun=dry_run or None))


def run_retention() -> Call[Retention]:
    """Let what has expired go now, whatever the hour; the plan of it."""
    return Call(Target.WRITER, "POST", "/v1/store/retention:run", Retention)


def pins() -> Call[Pins]:
    """Leases that keep a range of the log."""
    return Call(Target.WRITER, "GET", "/v1/store/pins", Pins)


def archive() -> Call[Archive]:
    """Up to where the log is archived."""
    return Call(Target.WRITER, "GET", _ARCHIVE, Archive)


def put_archive(offset: int, place: str) -> Call[Archive]:
    """Everything below is archived, and what lies behind is to be kept (role system)."""
    body = {"offset": offset, "place": place}
    return Call(Target.WRITER, "PUT", _ARCHIVE, Archive, json=body)


def end_archive() -> Call[Nothing]:
    """Let retention wait for no archive."""
    return Call(Target.WRITER, "DELETE", _ARCHIVE, Nothing)


def expiry_report() -> Call[ExpiryReport]:
    """What the last expiry report said."""
    return Call(Target.WRITER, "GET", _EXPIRY_REPORT, ExpiryReport)


def put_expiry_report(summary: Mapping[str, Any]) -> Call[ExpiryReport]:
    """Hand in what an expiry report says; for its job (role system)."""
    return Call(Target.WRITER, "PUT", _EXPIRY_REPORT, ExpiryReport, json=dict(summary))


def flush() -> Call[Flushed]:
    """Bring everything to disk."""
    return Call(Target.WRITER, "POST", "/v1/store:flush", Flushed)


def writes() -> Call[Writes]:
    """Whether messages are taken."""
    return Call(Target.WRITER, "GET", "/v1/store/writes", Writes)


def put_writes(*, paused: bool, reason: str = "") -> Call[Writes]:
    """Pause writes, telling clients why, or let them go on."""
    body = {"paused": paused, "reason": reason}
    return Call(Target.WRITER, "PUT", "/v1/store/writes", Writes, json=body)


def put_pin(
    name: str, from_offset: int, to_offset: int | None = None, *, lease_s: int = 300, why: str = ""
) -> Call[Pin]:
    """Keep a range of the log for so many seconds; put again before they are over to go on."""
    body = {"fromOffset": from_offset, "toOffset": to_offset, "leaseSeconds": lease_s, "why": why}
    return Call(Target.WRITER, "PUT", _pin(name), Pin, json=body)


def remove_pin(name: str) -> Call[Nothing]:
    """End a lease."""
    return Call(Target.WRITER, "DELETE", _pin(name), Nothing)


def message(
    message_id: str, *, topic: str | None = None, inflate: bool | None = None
) -> Call[MessageDetail]:
    """By offset message id; with a topic, by unique key. ``inflate`` a compressed body."""
    path = f"/v1/messages/{quote(message_id, safe='')}"
    params = given(topic=topic, inflate=inflate)
    return Call(Target.QUERY, "GET", path, MessageDetail, params=params)


def message_body(
    message_id: str,
    *,
    topic: str | None = None,
    inflate: bool | None = None,
    start: int = 0,
    stop: int | None = None,
) -> Call[Download]:
    """A message's body, or its bytes from ``start`` up to ``stop``; ids as for ``message``."""
    path = f"/v1/messages/{quote(message_id, safe='')}/body"
    params = given(topic=topic, inflate=inflate)
    headers = _range(start, stop)
    return Call(Target.QUERY, "GET", path, Download, params=params, headers=headers)


def log_files() -> Call[LogFiles]:
    """The commit log's files as query may send them: what is on disk."""
    return Call(Target.QUERY, "GET", "/v1/segments", LogFiles)


def log_bytes(name: str, start: int, stop: int, *, tag: str | None = None) -> Call[Download]:
    """Bytes of a file of the commit log from ``start`` up to ``stop``, 16 MiB at most: what there
    is more is left out. With the ``tag`` of an earlier part: a problem, epoch-changed, where they
    do not fit together any more."""
    headers = _range(start, stop) | ({} if tag is None else {"if-match": tag})
    path = f"/v1/segments/{quote(name, safe='')}"
    return Call(Target.QUERY, "GET", path, Download, headers=headers)


def message_at(physical_offset: int) -> Call[MessageDetail]:
    """The message whose record begins at a physical offset."""
    params = {"physicalOffset": physical_offset}
    return Call(Target.QUERY, "GET", "/v1/messages", MessageDetail, params=params)


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
    path = f"{_topic(topic)}/messages"
    return Call(Target.QUERY, "GET", path, Messages, params=params | _included(include))


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
    """All messages of a topic within store timestamps, newest first unless told otherwise."""
    params = given(order=order, to=to_ms, limit=limit, cursor=cursor) | given(**{"from": from_ms})
    path = f"{_topic(topic)}/messages"
    return Call(Target.QUERY, "GET", path, Messages, params=params | _included(include))


def queues(topic: str) -> Call[Queues]:
    """The queues of a topic, with their first and next offsets."""
    return Call(Target.QUERY, "GET", f"{_topic(topic)}/queues", Queues)


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
    path = f"{_topic(topic)}/queues/{queue_id}/messages"
    return Call(Target.QUERY, "GET", path, Pull, params=params, wait_s=wait_s)


def offset_by_time(
    topic: str, queue_id: int, timestamp_ms: int, *, shard: int | None = None
) -> Call[QueueOffset]:
    """``shard`` as for ``pull``."""
    path = f"{_topic(topic)}/queues/{queue_id}/offset"
    params = {"timestamp": timestamp_ms} | given(shard=shard)
    return Call(Target.QUERY, "GET", path, QueueOffset, params=params)


def trace(message_id: str, *, topic: str | None = None) -> Call[MessageTrace]:
    """A message's way through the store; ids as for ``message``."""
    path = f"/v1/messages/{quote(message_id, safe='')}/trace"
    return Call(Target.QUERY, "GET", path, MessageTrace, params=given(topic=topic))


def traces(
    topic: str, key: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Traces]:
    """The ways of a topic's messages with a key, newest first."""
    params = given(key=key, limit=limit, cursor=cursor)
    return Call(Target.QUERY, "GET", f"{_topic(topic)}/traces", Traces, params=params)


def lags(
    *, topic: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[GroupLags]:
    """How far groups are behind, by name; ``topic`` for those of one topic."""
    params = given(topic=topic, limit=limit, cursor=cursor)
    return Call(Target.QUERY, "GET", "/v1/lag", GroupLags, params=params)


def lag(group: str, *, topic: str | None = None) -> Call[GroupLag]:
    """How far a group is behind, by topic and queue."""
    path = _group(group) + "/lag"
    return Call(Target.QUERY, "GET", path, GroupLag, params=given(topic=topic))


def health(target: Target, probe: str = "ready") -> Call[Health]:
    """live, ready or startup; a 503 is an answer here, not an error."""
    return Call(target, "GET", f"/healthz/{probe}", Health, errors_are_answers=True)


def _group(name: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}"


def _subscription(group: str, topic: str) -> str:
    return f"{_group(group)}/subscriptions/{quote(topic, safe='')}"


def _pin(name: str) -> str:
    return f"/v1/store/pins/{quote(name, safe='')}"


def _topic(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def _range(start: int, stop: int | None) -> dict[str, str]:
    if start == 0 and stop is None:
        return {}
    return {"range": f"bytes={start}-{'' if stop is None else stop - 1}"}


def _included(kinds: Sequence[Hidden]) -> dict[str, Any]:
    return {"include": ",".join(kinds)} if kinds else {}


def given(**params: Any) -> dict[str, Any]:
    """Without those that are None."""
    return {name: value for name, value in params.items() if value is not None}
