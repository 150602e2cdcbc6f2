"""Lists of transactions over several shards: order, cursors, and how parts are merged."""

from __future__ import annotations

from collections.abc import Mapping

from mqstore.service.transaction_structs import Transaction, Transactions
from mqstore.storage.formats import encode_name_cursor
from mqstore.wire.transactions import TransactionState


def query_of(state: TransactionState | None, group: str | None) -> str:
    """Return the text of a query that a cursor is bound to: other queries reject the cursor."""
    return f"transactions {state} {group!r}"


def place_of(shown: Transaction) -> str:
    """Return a transaction's place in a list over all shards: by age, then shard, then key."""
    shard, _, key = shown.transaction_id.partition("-")
    return place_at(shown.born_timestamp, int(shard), key)


def place_at(born_ms: int, shard: int, key: str) -> str:
    """Return a place as text that sorts in the order of the list."""
    return f"{born_ms:015d}.{shard:05d}.{key}"


def merge(parts: Mapping[int, Transactions | None], limit: int, query: str) -> Transactions:
    """Merge the shards' lists into one of at most ``limit``; None is a shard without a reply.

    Each part must have up to ``limit`` transactions.
    """
    answered = [part for part in parts.values() if part is not None]
    missing = sorted(shard for shard, part in parts.items() if part is None)
    found = sorted((each for part in answered for each in part.transactions), key=place_of)
    shown = found[:limit]
    goes_on = len(found) > limit or any(part.next is not None for part in answered)
    cursor = encode_name_cursor(place_of(shown[-1]), query) if goes_on and shown else None
    return Transactions(
        transactions=tuple(shown), next=cursor, complete=not missing, missing=tuple(missing)
    )
