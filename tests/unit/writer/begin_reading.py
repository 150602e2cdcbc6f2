"""A begin as the kernel reads it, and as the general decoder does."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from mqstore.service.transaction_structs import TransactionSpec
from mqstore.storage.admin import TopicConfig
from mqstore.storage.formats import decode_properties
from mqstore.storage.host import production_seams
from mqstore.storage.puts import QueueTurns, UniqueKeys
from mqstore.storage.transactions import BeginRequest, begin_reader
from mqstore.writer.transactions.requests import BeginRequests

KEYS: Final = UniqueKeys(production_seams())
QUEUES: Final = 1 << 31
NOW_MS: Final = time.time_ns() // 1_000_000


def read(text: bytes) -> BeginRequest | None:
    """The kernel's encoding of a request; None also for one that is refused before."""
    KEYS.next()  # of this month
    try:
        spec = msgspec.json.decode(text, type=TransactionSpec)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if len(spec.messages) > 1 or spec.check_immunity_seconds is not None:
        return None
    (message,) = spec.messages
    return begin_reader(KEYS).read(spec.producer_group, spec.topic, message, NOW_MS)


def require_same(text: bytes, request: BeginRequest) -> None:
    """Assert that the general decoder makes the same of a request that the kernel read."""
    spec = msgspec.json.decode(text, type=TransactionSpec)
    (message,) = spec.messages
    assert (message.uniq_key is not None) is request.has_key, text
    assert request.queue_id == (-1 if message.queue_id is None else message.queue_id), text
    message.uniq_key = request.key
    topic = TopicConfig(spec.topic, QUEUES, QUEUES)
    spec.producer_group = "g"  # which is checked apart
    begin = BeginRequests(KEYS, QueueTurns()).read(spec, topic, "127.0.0.1:1")
    (record,) = begin.messages
    assert (record.topic, begin.key) == (request.topic, request.key)
    assert (record.body, record.flag) == (request.body, request.flag), text
    properties = decode_properties(request.properties)
    assert list(record.properties.items()) == list(properties.items()), text
