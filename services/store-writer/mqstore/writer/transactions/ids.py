"""Transaction ids: ``SHARD-KEY``, the shard's number and the unique key of the first message."""

from __future__ import annotations

from mqstore.service import problems
from mqstore.service.membership import ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.shards import Shards


def shard_and_key(
    shards: Shards, transaction_id: str, *, is_forwarded: bool
) -> tuple[ShardEntry | None, str]:
    """The other shard that an id names (None: this one), and the transaction's key.

    Raises Problem: 404 for an id of no shard, or 503 while lists may differ, 421 where the request
    was forwarded before.
    """
    text, _, key = transaction_id.partition("-")
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None
    if number == shards.own and key:
        return None, key
    entry = None if number is None else shards.members.entries.get(number)
    if entry is None or not key:
        if number is not None and key:
            shards.require_lists(number)
        known = ", ".join(map(str, shards.members.numbers))
        raise Problem(
            problems.TRANSACTION_UNKNOWN, f"{transaction_id!r} is no transaction of shards {known}"
        )
    if is_forwarded:
        raise shards.misdirected(entry)
    return entry, key
