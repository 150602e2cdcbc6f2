"""Requests to store-writer, as values that both clients send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from mqstore.client.checksums import crc32c
from mqstore.client.models import Health, NewMessage, keyed
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.backup_reports import (
    BACKUP_REPORT,
    PUT_BACKUP_RESULT,
    BackupReport,
    BackupResult,
)
from mqstore.wire.groups import (
    COMMIT_OFFSETS,
    DELETE_GROUP,
    GROUP,
    GROUPS,
    OFFSETS,
    PUT_GROUP,
    RESET_OFFSETS,
    SUBSCRIBE,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    UNSUBSCRIBE,
    Group,
    GroupOffsets,
    Groups,
    OffsetsReset,
    Subscription,
    Subscriptions,
)
from mqstore.wire.operation import Nothing, Target
from mqstore.wire.produce import BATCH_TYPE, PRODUCE, Durability, ProduceReply
from mqstore.wire.replication import (
    PROMOTE,
    REPLICATION,
    SWITCH_OVER,
    Replication,
    Switchover,
)
from mqstore.wire.reports import ExpiryReport
from mqstore.wire.retention import (
    ARCHIVE,
    END_ARCHIVE,
    EXPIRY_REPORT,
    PIN,
    PINS,
    PUT_ARCHIVE,
    PUT_EXPIRY_REPORT,
    PUT_PIN,
    REMOVE_PIN,
    RETENTION,
    RUN_RETENTION,
    Archive,
    Pin,
    Pins,
    Retention,
)
from mqstore.wire.settings import SETTING, SETTINGS, Setting, SettingList
from mqstore.wire.stores import (
    DELAYS,
    FLUSH,
    OPERATIONS,
    PUT_WRITES,
    QUARANTINE,
    RECOVERY,
    REMOVE_QUARANTINED,
    REPAIR,
    RUN_SCRUB,
    SCRUB,
    SEGMENTS,
    STORE,
    WRITES,
    DelayLevels,
    FlushReply,
    Operations,
    Quarantine,
    Recovery,
    RepairReport,
    Scrub,
    Segments,
    Store,
    Writes,
)
from mqstore.wire.topics import DELETE_TOPIC, PUT_TOPIC, TOPIC, TOPICS, Topic, TopicDeletion, Topics

PROMOTE_WAIT_S: Final = 60.0
"""Longest time in which a promoted store is closed and opened again."""


def produce(
    topic: str,
    messages: NewMessage | Sequence[NewMessage],
    *,
    durability: Durability | None = None,
    shard: int | None = None,
    patience_s: float = 0.0,
) -> Call[ProduceReply]:
    """Store messages: one contiguous append, all or none, to one queue; those with an
    ``ordering_key`` go to the queue of their key.

    Without ``shard``, messages with an ``ordering_key`` or a ``uniq_key`` are stored on the shard
    of the key, the others on the shard that the address leads to. If all messages have a
    ``uniq_key``, the call may be retried after a lost reply: no message is stored twice. With
    ``patience_s`` the client retries for so many seconds, and generates missing keys.
    """
    if isinstance(messages, NewMessage):
        messages = [messages]
    with_keys: Callable[[int | None], Call[ProduceReply]] | None = None
    if patience_s and not all(each.uniq_key for each in messages):
        if any(each.uniq_key or each.ordering_key for each in messages):
            # Several shards may store parts of it, so a later attempt needs the same keys.
            messages = keyed(messages, None)
        else:
            with_keys = partial(_produce_keyed, topic, messages, durability, shard, patience_s)
    body: dict[str, Any] = {"messages": [each.as_json() for each in messages]}
    if durability is not None:
        body["durability"] = durability
    return call(
        PRODUCE,
        at={"topic": topic},
        params=given(shard=shard),
        json=body,
        patience_s=patience_s,
        with_keys=with_keys,
    )


def _produce_keyed(
    topic: str,
    messages: Sequence[NewMessage],
    durability: Durability | None,
    shard: int | None,
    patience_s: float,
    named: int | None,
) -> Call[ProduceReply]:
    """Build the call with keys of the shard ``named``."""
    found = keyed(messages, named)
    return produce(topic, found, durability=durability, shard=shard, patience_s=patience_s)


def produce_batch(
    topic: str,
    batch: bytes,
    *,
    queue_id: int | None = None,
    durability: Durability | None = None,
    shard: int | None = None,
    patience_s: float = 0.0,
) -> Call[ProduceReply]:
    """Store a batch of messages in RocketMQ's encoding, with its checksum.

    With ``patience_s`` the client retries for so many seconds: give each message a UNIQ_KEY, so
    that a duplicate is found.
    """
    checksum = str(crc32c(batch))
    headers = {"content-type": BATCH_TYPE, "x-mqstore-crc32c": checksum}
    return call(
        PRODUCE,
        at={"topic": topic},
        params=given(queueId=queue_id, durability=durability, shard=shard),
        content=batch,
        headers=headers,
        patience_s=patience_s,
    )


def create_topic(topic: str, *, queues: int = 4, perm: int = 6) -> Call[Topic]:
    """Create a topic, or change its queues."""
    body = document(PUT_TOPIC, queues=queues, perm=perm)
    return call(PUT_TOPIC, at={"topic": topic}, json=body)


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
    """Create a topic, or change the given settings of one.

    ``queues`` sets the queues to read and to write; ``perm`` is 2 (write), 4 (read) or 6 (both).
    """
    fields = document(
        PUT_TOPIC,
        queues=queues,
        read_queues=read_queues,
        write_queues=write_queues,
        perm=perm,
        order=order,
        filter_type=filter_type,
        attributes=attributes,
    )
    return call(PUT_TOPIC, at={"topic": topic}, json=fields)


def delete_topic(topic: str, *, dry_run: bool = False) -> Call[TopicDeletion]:
    """Delete a topic with its queues; its messages stay in the log until they expire."""
    params = {"dryRun": dry_run}
    return call(DELETE_TOPIC, at={"topic": topic}, params=params)


def groups() -> Call[Groups]:
    """List the consumer groups that were created or have offsets."""
    return call(GROUPS)


def group(name: str) -> Call[Group]:
    """Return a consumer group: its settings, and the topics in which it has offsets."""
    return call(GROUP, at={"group": name})


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
    """Create a group, or change the given settings of one (RocketMQ's SubscriptionGroupConfig).

    ``consume_message_orderly`` and ``consume_timeout_minutes`` need a store of format 5.x.
    """
    fields = document(
        PUT_GROUP,
        consume_enable=consume_enable,
        consume_from_min_enable=consume_from_min_enable,
        consume_broadcast_enable=consume_broadcast_enable,
        consume_message_orderly=consume_message_orderly,
        retry_queues=retry_queues,
        retry_times_max=retry_times_max,
        broker_id=broker_id,
        which_broker_when_consume_slowly=which_broker_when_consume_slowly,
        notify_consumer_ids_changed_enable=notify_consumer_ids_changed_enable,
        consume_timeout_minutes=consume_timeout_minutes,
        attributes=attributes,
    )
    return call(PUT_GROUP, at={"group": name}, json=fields)


def delete_group(name: str, *, clean_offset: bool = False) -> Call[Nothing]:
    """Delete a group's settings and, with ``clean_offset``, its offsets."""
    params = {"cleanOffset": clean_offset}
    return call(DELETE_GROUP, at={"group": name}, params=params)


def offsets(group: str, *, topic: str | None = None) -> Call[GroupOffsets]:
    """Return the committed offsets of a group, by topic and queue."""
    return call(OFFSETS, at={"group": group}, params=given(topic=topic))


def commit(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    allow_back: bool = False,
    epochs: Mapping[int, int] | None = None,
    shard: int | None = None,
) -> Call[GroupOffsets]:
    """Commit a group's offsets: for each queue the next message to consume. All or none.

    ``epochs`` has the epoch of each queue in an ordered group. ``shard`` is the shard of the
    queues; it is required where there are several.
    """
    held = epochs or {}
    new = [
        {"topic": topic, "queueId": queue, "offset": n} | given(epoch=held.get(queue))
        for queue, n in offsets.items()
    ]
    body = document(COMMIT_OFFSETS, offsets=new, allow_back=allow_back)
    params = given(shard=shard)
    return call(COMMIT_OFFSETS, at={"group": group}, params=params, json=body)


def reset_offsets(
    group: str,
    topic: str,
    to: str,
    *,
    timestamp: int | None = None,
    source: str | None = None,
    queue_ids: Sequence[int] | None = None,
    dry_run: bool = False,
) -> Call[OffsetsReset]:
    """Reset a group's offsets to ``earliest``, ``latest``, the first message at or after a
    ``timestamp`` (milliseconds since the epoch), or those of the ``group`` ``source``."""
    body = document(
        RESET_OFFSETS,
        topic=topic,
        to=to,
        timestamp=timestamp,
        source=source,
        queue_ids=queue_ids and list(queue_ids),
        dry_run=dry_run,
    )
    return call(RESET_OFFSETS, at={"group": group}, json=body)


def subscriptions(group: str) -> Call[Subscriptions]:
    """List a group's subscriptions with an expression."""
    return call(SUBSCRIPTIONS, at={"group": group})


def subscribe(group: str, topic: str, expression: str) -> Call[Subscription]:
    """Register which messages of a topic a group wants, as an SQL92 expression."""
    body = document(SUBSCRIBE, expression=expression)
    return call(SUBSCRIBE, at={"group": group, "topic": topic}, json=body)


def subscription(group: str, topic: str) -> Call[Subscription]:
    """Return a group's subscription to a topic."""
    return call(SUBSCRIPTION, at={"group": group, "topic": topic})


def unsubscribe(group: str, topic: str) -> Call[Nothing]:
    """End a subscription."""
    return call(UNSUBSCRIBE, at={"group": group, "topic": topic})


def topic(name: str) -> Call[Topic]:
    """Return the settings of a topic."""
    return call(TOPIC, at={"topic": name})


def topics() -> Call[Topics]:
    """List all topics, by name."""
    return call(TOPICS)


def store() -> Call[Store]:
    """Return the state of the store that store-writer has open: identity, offsets, sizes."""
    return call(STORE)


def recovery() -> Call[Recovery]:
    """Return what recovery found and did when the store was opened."""
    return call(RECOVERY)


def delays() -> Call[DelayLevels]:
    """Count the delayed messages, by level."""
    return call(DELAYS)


def segments() -> Call[Segments]:
    """List the segments of the log, oldest first."""
    return call(SEGMENTS)


def retention(*, limit: int | None = None) -> Call[Retention]:
    """Return when and why each of the oldest ``limit`` segments will be deleted."""
    return call(RETENTION, params=given(limit=limit))


def scrub() -> Call[Scrub]:
    """Return the damage that scrubs found, and the progress of the pass over the checksums."""
    return call(SCRUB)


def run_scrub() -> Call[Scrub]:
    """Begin a pass over all checksums."""
    return call(RUN_SCRUB)


def repair_log(*, dry_run: bool = False) -> Call[RepairReport]:
    """Read the whole log, and repair its damaged records. ``dry_run`` changes nothing."""
    return call(REPAIR, params=given(dryRun=dry_run or None))


def quarantine() -> Call[Quarantine]:
    """List the quarantine: bytes that recoveries and repairs set aside."""
    return call(QUARANTINE)


def remove_quarantined(name: str) -> Call[Nothing]:
    """Remove an entry of the quarantine, for good."""
    return call(REMOVE_QUARANTINED, at={"name": name})


def operations() -> Call[Operations]:
    """List the long operations that run, and the last finished one of each name, newest first."""
    return call(OPERATIONS)


def run_retention() -> Call[Retention]:
    """Delete expired segments now, at any hour; returns the plan."""
    return call(RUN_RETENTION)


def pins() -> Call[Pins]:
    """List the pins: leases that keep a range of the log from deletion."""
    return call(PINS)


def pin(name: str) -> Call[Pin]:
    """Return a pin."""
    return call(PIN, at={"name": name})


def archive() -> Call[Archive]:
    """Return the offset up to which the log is archived."""
    return call(ARCHIVE)


def put_archive(offset: int, place: str) -> Call[Archive]:
    """Report that the log is archived below ``offset``: retention keeps the rest (role system)."""
    body = document(PUT_ARCHIVE, offset=offset, place=place)
    return call(PUT_ARCHIVE, json=body)


def end_archive() -> Call[Nothing]:
    """End the archive: retention no longer waits for it."""
    return call(END_ARCHIVE)


def expiry_report() -> Call[ExpiryReport]:
    """Return the last expiry report."""
    return call(EXPIRY_REPORT)


def put_expiry_report(summary: Mapping[str, Any]) -> Call[ExpiryReport]:
    """Store the summary of an expiry report; for the job that makes it (role system)."""
    return call(PUT_EXPIRY_REPORT, json=dict(summary))


def backup_report() -> Call[BackupReport]:
    """Return the last results of backups."""
    return call(BACKUP_REPORT)


def put_backup_result(result: BackupResult) -> Call[BackupReport]:
    """Store the result of a backup; for the command that made it (role system)."""
    return call(PUT_BACKUP_RESULT, json=result.model_dump(by_alias=True))


def flush() -> Call[FlushReply]:
    """Sync everything to disk."""
    return call(FLUSH)


def writes() -> Call[Writes]:
    """Return whether messages are accepted."""
    return call(WRITES)


def put_writes(*, paused: bool, reason: str = "") -> Call[Writes]:
    """Pause writes, with a reason for the clients, or resume them."""
    body = document(PUT_WRITES, paused=paused, reason=reason)
    return call(PUT_WRITES, json=body)


def replication() -> Call[Replication]:
    """Return the role of a store, and how far a follower is behind its leader."""
    return call(REPLICATION)


def promote() -> Call[Replication]:
    """Let a follower take messages: it stops following, with what it has received."""
    return call(PROMOTE, wait_s=PROMOTE_WAIT_S)


def switch_over(to: str | None = None) -> Call[Switchover]:
    """Hand the lead of a shard over to ``to``, or to the follower that has most."""
    body = document(SWITCH_OVER, to=to)
    return call(SWITCH_OVER, json=body, wait_s=PROMOTE_WAIT_S)


def settings(target: Target = Target.WRITER) -> Call[SettingList]:
    """Return the settings of a service, with their values and sources."""
    return replace(call(SETTINGS), target=target)


def setting(
    name: str, value: str | None = None, *, target: Target = Target.WRITER
) -> Call[Setting]:
    """Return a setting of a service: its value, or with ``value`` how it would have that one, read
    as at a start. The service refuses a value that the setting cannot have."""
    found = call(SETTING, at={"name": name}, params=given(value=value))
    return replace(found, target=target)


def put_pin(
    name: str, from_offset: int, to_offset: int | None = None, *, lease_s: int = 300, why: str = ""
) -> Call[Pin]:
    """Pin a range of the log for ``lease_s`` seconds; put it again to renew the lease."""
    body = document(
        PUT_PIN,
        from_offset=from_offset,
        to_offset=to_offset,
        lease_seconds=lease_s,
        why=why,
    )
    return call(PUT_PIN, at={"name": name}, json=body)


def remove_pin(name: str) -> Call[Nothing]:
    """Remove a pin."""
    return call(REMOVE_PIN, at={"name": name})


def health(target: Target, probe: str = "ready") -> Call[Health]:
    """Return the health of a service by a probe (live, ready, serving or startup).

    The status 503 is a reply here, not an error.
    """
    return Call(target, "GET", f"/healthz/{probe}", Health, errors_are_answers=True)
