"""Puts that block until a durability, as tests use them; the engine itself appends, then waits."""

from __future__ import annotations

from collections.abc import Sequence

from mqstore.storage._kernel import Placement
from mqstore.storage.codec.record import Message
from mqstore.storage.message_store import Durability, MessageStore
from tests.unit.storage.sends import sends_of


def put_message(
    store: MessageStore, message: Message, durability: Durability | None = None
) -> Placement:
    """Append one message and wait; default durability follows flushDiskType."""
    placement = store.append(message)
    store.wait(placement.end, durability)
    return placement


def put_batch(
    store: MessageStore, messages: Sequence[Message], durability: Durability | None = None
) -> list[Placement]:
    """As ``put_message`` for messages of one topic and queue, by RocketMQ's rules of a batch."""
    placements, _ = store.append(messages, as_batch=True)
    store.wait(placements[-1].end, durability)
    return placements


def put_encoded(
    store: MessageStore, data: bytes, template: Message, durability: Durability | None = None
) -> list[Placement]:
    """As ``put_batch`` for a batch in RocketMQ's encoding (``codec.batch``); duplicates are
    stored."""
    sends = sends_of(store, template.topic)
    batch = sends.read_batch(data, template.born_host, template.queue_id)
    placements = store._parts.appends.put(batch)
    store.wait(placements[-1].end, durability)
    return placements
