"""The messages that both sides store and read; `peer/Workload.java` makes the same."""

from __future__ import annotations

import time
from typing import Final

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message

TOPIC: Final = "bench"
QUEUES: Final = 4
BODY_SIZE: Final = 1024
RARE_TAG: Final = "rare"
RARE_EACH: Final = 100
"""One message in so many has it, where a store was filled to be read."""
HOST: Final = Host.parse("127.0.0.1", 10911)


def make_body(size: int) -> bytes:
    return bytes(i & 0xFF for i in range(size))


def unique_key(number: int) -> str:
    return f"{number:032X}"


def encoded_properties(first: int, count: int, *, with_rare: bool = False) -> list[bytes]:
    """A unique key, one of KEYS and a tag each, encoded as a store gets them from a producer."""
    return [
        f"UNIQ_KEY\x01{unique_key(n)}\x02KEYS\x01order-{n}\x02TAGS\x01{tag}".encode()
        for n in range(first, first + count)
        for tag in (RARE_TAG if with_rare and n % RARE_EACH == 0 else "paid",)
    ]


def make_message(queue_id: int, body: bytes, properties: bytes) -> Message:
    born_ms = time.time_ns() // 1_000_000
    return Message(TOPIC, queue_id, body, properties, HOST, HOST, born_ms)
