"""A begin as the kernel reads it, and as the general decoder does."""

from __future__ import annotations

from typing import Final

import msgspec

from mqstore.service.transaction_structs import TransactionSpec
from mqstore.storage.admin import TopicConfig
from mqstore.storage.formats import decode_properties
from mqstore.storage.host import production_seams
from mqstore.storage.puts import QueueTurns, UniqueKeys
from mqstore.storage.transactions import BeginRequest, begin_reader
from mqstore.writer import produce
from mqstore.writer.transactions.requests import BeginRequests

KEYS: Final = UniqueKeys(production_seams())
QUEUES: Final = 1 << 31


def read(text: bytes) -> BeginRequest | None:
    """The kernel's reading of a request."""
    KEYS.next()  # of this month
    return begin_reader(KEYS).read(text, produce.now_ms())


def require_same(text: bytes, request: BeginRequest) -> None:
    """Assert that the general decoder makes the same of a request that the kernel read."""
    spec = msgspec.json.decode(text, type=TransactionSpec)
    (message,) = spec.messages
    assert (message.uniq_key is not None) is request.has_key, text
    assert request.queue_id == (-1 if message.queue_id is None else message.queue_id), text
    message.uniq_key = request.key
    topic = TopicConfig(spec.topic, QUEUES, QUEUES)
    begin = BeginRequests(KEYS, QueueTurns()).read(spec, topic, "127.0.0.1:1")
    (record,) = begin.messages
    assert (begin.group, record.topic, begin.key) == (request.group, request.topic, request.key)
    assert (record.body, record.flag) == (request.body, request.flag), text
    properties = decode_properties(request.properties)
    assert list(record.properties.items()) == list(properties.items()), text
