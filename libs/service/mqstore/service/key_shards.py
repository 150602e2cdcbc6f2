"""Which shard a unique key belongs to. Every shard computes the same from the list of shards.

A key that our client generated names its shard. Any other key chooses one by hash: what stands
before its first ``~`` is hashed, so ``KEY``, ``KEY~0`` and ``KEY~1`` belong to one shard.

When the shards of the hash change, some keys move. Messages that were stored before are known by
the shard that a key had until then, which stores nothing new under it. So for some time a request
goes to that shard first, and to the new one when the first knows none of its messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from mqstore.wire import unique_keys

SEPARATOR: Final = "~"
"""Ends the part of an application's key that chooses the shard."""
_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = (1 << 64) - 1


def shard_of(key: str, shards: Sequence[int]) -> int:
    """The shard of ``key`` among ``shards`` (ascending, one at least)."""
    named = unique_keys.shard_of(key)
    if named is not None:
        return named
    text = key.partition(SEPARATOR)[0].encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return shards[jump_hash(int.from_bytes(digest), len(shards))]


def jump_hash(value: int, buckets: int) -> int:
    """The bucket, from 0, of a 64-bit value: Lamping and Veach's consistent hash, by which one more
    bucket takes its share from the others and moves nothing else."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        value = (value * _MULTIPLIER + 1) & _MASK
        following = int((bucket + 1) * ((1 << 31) / ((value >> 33) + 1)))
    return bucket


def shards_to_visit(
    key: str, shards: Sequence[int], before: Sequence[int] | None
) -> tuple[int, ...]:
    """The key's shard; in front of it the one that it had among ``before``, when that differs."""
    found = shard_of(key, shards)
    if not before or (previous := shard_of(key, before)) == found:
        return (found,)
    return previous, found
