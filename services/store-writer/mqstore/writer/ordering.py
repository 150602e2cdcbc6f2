"""Ordering keys: the queue, and the shard, of messages that must be consumed in order.

A key's queue is that of RocketMQ's own proxy (SendMessageActivity of 5.x): Guava's
``Hashing.consistentHash``, a jump hash, of ``String.hashCode`` over the topic's write queues. The
shard is chosen by another hash, so that each shard uses all queues. Both change when the number of
queues or shards does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from mqstore.service.key_shards import jump_hash
from mqstore.storage.formats import string_hash

_MASK: Final = (1 << 64) - 1


@lru_cache(maxsize=4096)
def queue_of(key: str, queues: int) -> int:
    """Return the queue of an ordering key among ``queues`` write queues."""
    return jump_hash(string_hash(key) & _MASK, queues)
