"""Unique keys that the client generates: each contains the number of its message's shard."""

from __future__ import annotations

import secrets
from typing import Final

GENERATED_PREFIX: Final = "006D7143"
"""First characters of a generated key; a RocketMQ client's keys have its address there, and
0.109.113.67 is no host's."""
_RANDOM_BYTES: Final = 8
_LENGTH: Final = 32
_DIGITS: Final = frozenset("0123456789ABCDEF")


def generate(shard: int | None) -> str:
    """Generate a key of 32 upper-case hex digits: prefix, number of the shard, 64 random bits.

    Without a shard all of it is random, and services choose the shard by a hash.
    """
    if shard is None:
        return secrets.token_hex(_LENGTH // 2).upper()
    return f"{GENERATED_PREFIX}{shard:08X}{secrets.token_hex(_RANDOM_BYTES).upper()}"


def shard_of(key: str) -> int | None:
    """Return the shard that a generated key names; None for any other key."""
    if not key.startswith(GENERATED_PREFIX) or len(key) != _LENGTH or not _DIGITS.issuperset(key):
        return None
    return int(key[len(GENERATED_PREFIX) : _LENGTH // 2], 16)
