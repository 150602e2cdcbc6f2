"""Requests about consumer groups, as values that both clients send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.operation import Nothing

if TYPE_CHECKING:
    from mqstore.wire.groups import (
        Group,
        GroupOffsets,
        Groups,
        OffsetsReset,
        Subscription,
        Subscriptions,
    )


def groups(*, limit: int | None = None, cursor: str | None = None) -> Call[Groups]:
    """List the consumer groups that were created or have offsets, by name, up to 1,000 at once;
    ``mqstore.client.every_page`` lists all."""
    return call(contract.groups.GROUPS, params=given(limit=limit, cursor=cursor))


def group(name: str) -> Call[Group]:
    """Return a consumer group: its settings, and the topics in which it has offsets."""
    return call(contract.groups.GROUP, at={"group": name})


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
        contract.groups.PUT_GROUP,
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
    return call(contract.groups.PUT_GROUP, at={"group": name}, json=fields)


def delete_group(name: str, *, clean_offset: bool = False) -> Call[Nothing]:
    """Delete a group's settings and, with ``clean_offset``, its offsets."""
    params = {"cleanOffset": clean_offset}
    return call(contract.groups.DELETE_GROUP, at={"group": name}, params=params)


def offsets(
    group: str, *, topic: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[GroupOffsets]:
    """Return a page of the committed offsets of a group, by topic and queue: ``every_page`` has
    all."""
    params = given(topic=topic, limit=limit, cursor=cursor)
    return call(contract.groups.OFFSETS, at={"group": group}, params=params)


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
    body = document(contract.groups.COMMIT_OFFSETS, offsets=new, allow_back=allow_back)
    params = given(shard=shard)
    return call(contract.groups.COMMIT_OFFSETS, at={"group": group}, params=params, json=body)


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
        contract.groups.RESET_OFFSETS,
        topic=topic,
        to=to,
        timestamp=timestamp,
        source=source,
        queue_ids=queue_ids and list(queue_ids),
        dry_run=dry_run,
    )
    return call(contract.groups.RESET_OFFSETS, at={"group": group}, json=body)


def subscriptions(
    group: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Subscriptions]:
    """List a group's subscriptions with an expression, by topic, up to 1,000 at once."""
    params = given(limit=limit, cursor=cursor)
    return call(contract.groups.SUBSCRIPTIONS, at={"group": group}, params=params)


def subscribe(group: str, topic: str, expression: str) -> Call[Subscription]:
    """Register which messages of a topic a group wants, as an SQL92 expression."""
    body = document(contract.groups.SUBSCRIBE, expression=expression)
    return call(contract.groups.SUBSCRIBE, at={"group": group, "topic": topic}, json=body)


def subscription(group: str, topic: str) -> Call[Subscription]:
    """Return a group's subscription to a topic."""
    return call(contract.groups.SUBSCRIPTION, at={"group": group, "topic": topic})


def unsubscribe(group: str, topic: str) -> Call[Nothing]:
    """End a subscription."""
    return call(contract.groups.UNSUBSCRIBE, at={"group": group, "topic": topic})


class GroupCalls:
    """Methods of both clients."""

    groups = sends(groups)
    group = sends(group)
    put_group = sends(put_group)
    delete_group = sends(delete_group)
    offsets = sends(offsets)
    commit = sends(commit)
    reset_offsets = sends(reset_offsets)
    subscriptions = sends(subscriptions)
    subscribe = sends(subscribe)
    subscription = sends(subscription)
    unsubscribe = sends(unsubscribe)
