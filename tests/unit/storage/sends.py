"""Requests to a store as tests send them, and RocketMQ's batch encoding in plain Python."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

from mqstore.storage._kernel import QueueTurns, Sends, ValueCounts
from mqstore.storage.codec.record import Message
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.host import production_seams
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.topic_names import property_rules
from mqstore.writer.ordering import queue_of
from mqstore.writer.sends import CLIENT_PROPERTIES, Checks

QUEUES = 16
COUNT_MAX = 200


def quote(text: str) -> bytes:
    return json.dumps(text).encode()


def sends_of(store: MessageStore, topic: str = "T", queues: int = QUEUES) -> Sends:
    """Build what store-writer reads and puts requests to a topic with."""
    return Sends(
        store.log.end,
        topic,
        checks=Checks(store, topic, COUNT_MAX),
        keys=UniqueKeys(production_seams()),
        rules=property_rules((), store.format),
        encoded_rules=property_rules(CLIENT_PROPERTIES, store.format),
        trailing_separator=store.format is StoreFormat.V5_X,
        count_max=COUNT_MAX,
        queues=queues,
        turns=QueueTurns(),
        queue_of=queue_of,
        store_host=store.host,
        dedup=store.dedup,
        shard=0,
        quote=quote,
        traffic=[0, 0],
        put_s=ValueCounts((1.0,)),
        record_size=ValueCounts((1.0,)),
    )


def items_of(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each message of an unbroken batch."""
    at = 0
    while at < len(data):
        total, _, _, flag, size = struct.unpack_from(">iiiii", data, at)
        (own,) = struct.unpack_from(">h", data, at + 20 + size)
        assert total == 22 + size + own
        yield flag, data[at + 20 : at + 20 + size], data[at + 22 + size : at + total]
        at += total


def decode_batch(data: bytes, template: Message) -> list[Message]:
    """The messages of an unbroken batch, whose other fields are the template's."""
    return [
        template.replace(flag=flag, body=body, properties=own) for flag, body, own in items_of(data)
    ]
