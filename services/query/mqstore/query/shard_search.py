"""Searches for messages over several shards, in pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastapi import Request

from mqstore.query import merging, store_cursor
from mqstore.query.merging import Paging
from mqstore.query.service import QueryService
from mqstore.service import shard_cursor
from mqstore.storage.formats import encode_cursor
from mqstore.storage.reads import KeyQuery, TopicQuery

FindHere = Callable[[str | None], bytes]
"""Encodes a page of this shard's messages from a cursor on; called in the pool."""


def paging(
    scope: str, query: KeyQuery | TopicQuery, limit: int, max_bytes: int, *, newest_first: bool
) -> Paging:
    """Return how pages of several shards are merged. ``scope`` binds a cursor to its query."""
    return Paging(
        query.from_ms,
        query.to_ms,
        newest_first,
        limit,
        max_bytes,
        cursor_at=lambda place, store_id: store_cursor.add_store_id(
            encode_cursor(place, scope), store_id
        ),
        cursor_of=lambda positions: shard_cursor.encode(positions, scope),
    )


async def find(
    service: QueryService,
    request: Request,
    here: FindHere,
    paging: Paging,
    scope: str,
    cursor: str | None,
) -> bytes:
    """Encode a page of the messages of all shards."""
    begun = shard_cursor.decode(cursor, scope)
    cursors = {shard: position.cursor for shard, position in begun.items()}
    async with service.shards.fan_out(
        request,
        partial(service.run, lambda: here(cursors.get(service.shards.own))),
        changed=lambda shard: {"cursor": cursors.get(shard)},
        skip={shard for shard, position in begun.items() if position.is_finished},
    ) as spread:
        return await service.run_admitted(lambda: merging.messages(spread, begun, paging))
