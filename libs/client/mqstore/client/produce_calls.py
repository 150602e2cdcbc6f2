"""Requests that store messages, as values that both clients send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mqstore.client import contract
from mqstore.client.checksums import crc32c
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call, given
from mqstore.wire import unique_keys

if TYPE_CHECKING:
    from mqstore.client.new_message import NewMessage
    from mqstore.wire.produce import Durability, ProduceReply


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
    if not isinstance(messages, Sequence):
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
        contract.produce.PRODUCE,
        at={"topic": topic},
        params=given(shard=shard),
        json=body,
        patience_s=patience_s,
        with_keys=with_keys,
        stored_on=_shard_of,
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
    headers = {"content-type": contract.produce.BATCH_TYPE, "x-mqstore-crc32c": checksum}
    return call(
        contract.produce.PRODUCE,
        at={"topic": topic},
        params=given(queueId=queue_id, durability=durability, shard=shard),
        content=batch,
        headers=headers,
        patience_s=patience_s,
        stored_on=_shard_of,
    )


def keyed(messages: Sequence[NewMessage], named: int | None) -> list[NewMessage]:
    """Return messages with a generated unique key, of a shard or none, where they have none."""
    return [
        each if each.uniq_key else each.model_copy(update={"uniq_key": unique_keys.generate(named)})
        for each in messages
    ]


def _shard_of(reply: ProduceReply) -> int | None:
    return reply.messages[-1].shard if reply.messages else None


class ProduceCalls:
    """Methods of both clients."""

    produce = sends(produce)
    produce_batch = sends(produce_batch)
