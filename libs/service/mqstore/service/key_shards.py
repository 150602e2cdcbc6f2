"""The shard of a unique key. Every shard computes the same one from the list of shards.

A key that mqstore's client generated contains the number of its shard. Any other key chooses a
shard by a hash of its part before the first ``~``, so that ``KEY``, ``KEY~0`` and ``KEY~1`` belong
to one shard.

An ordering key chooses a shard by a hash of all of it. It takes precedence over the unique key of
its message, whose duplicates are then found on the shard of the ordering key.

When the shards of the hash change, some keys move. Only a key's former shards can find duplicates
of messages that they stored before. So for some time a request goes to the former shards first,
which store no new message under the key, and then to the new shard unless one of them has the
messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mqstore.wire import unique_keys

SEPARATOR: Final = "~"
"""End of the part of a key that is hashed."""
_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = (1 << 64) - 1


def shard_of(
    key: str, shards: Sequence[int], exists: Callable[[int], bool] = lambda shard: True
) -> int:
    """Return the shard of ``key`` among ``shards`` (ascending, one at least).

    A key that names a shard that does not exist has a hash as any other.
    """
    named = unique_keys.shard_of(key)
    if named is not None and exists(named):
        return named
    return _shard_of_hash(key.partition(SEPARATOR)[0], shards)


def shard_of_ordering_key(key: str, shards: Sequence[int]) -> int:
    """Return the shard of an ordering key among ``shards``, by a hash of the whole key."""
    return _shard_of_hash(key, shards)


def _shard_of_hash(text: str, shards: Sequence[int]) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return shards[jump_hash(int.from_bytes(digest), len(shards))]


def jump_hash(value: int, buckets: int) -> int:
    """Return the bucket, from 0, of a 64-bit value, by Lamping and Veach's jump consistent hash.

    An additional bucket takes its share from the others; no other value changes its bucket.
    """
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        value = (value * _MULTIPLIER + 1) & _MASK
        following = int((bucket + 1) * ((1 << 31) / ((value >> 33) + 1)))
    return bucket


def shards_to_visit(
    key: str,
    shards: Sequence[int],
    former: Iterable[Sequence[int]],
    choose: Callable[[str, Sequence[int]], int] = shard_of,
) -> tuple[int, ...]:
    """Return the key's shard, preceded by its shards among ``former`` that are other ones."""
    found = choose(key, shards)
    previous = dict.fromkeys(choose(key, each) for each in former)
    return *(each for each in previous if each != found), found
