"""Groups' committed offsets as store-writer has them in memory.

``consumerOffset.json`` is up to flushConsumerOffsetInterval behind, and waits for the log's sync. A
commit that was answered counts at once in the lags of groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec
from starlette.types import Scope

from mqstore.query.local_writer import LocalWriter
from mqstore.service.forwarding import select_request_headers
from mqstore.storage.admin import Commit

T = TypeVar("T")

ByQueue = Mapping[str, Mapping[int, int]]
"""The next message to consume, by topic@group and queue id."""


class _Offset(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: int
    committed: int | None


class _Offsets(msgspec.Struct):
    offsets: list[_Offset]


class _AllOffsets(msgspec.Struct):
    offsets: dict[str, dict[int, int]]


class CommittedOffsets:
    """Requested with the client's own token. None where no store-writer of this store replies in
    time: then the saved file is the best there is. Used on the event loop only."""

    def __init__(self, writer: LocalWriter) -> None:
        self._writer = writer

    async def of(self, group: str, scope: Scope) -> Sequence[Commit] | None:
        """The offsets of one group; empty for a group without any."""
        path = f"/v1/groups/{quote(group, safe='')}/offsets"
        reply = await self._writer.request("GET", path, select_request_headers(scope))
        if reply is None:
            return None
        if reply.status_code == HTTPStatus.NOT_FOUND:
            return ()
        found = _decode(reply, _Offsets)
        if found is None:
            return None
        return [
            Commit(each.topic, each.queue_id, each.committed)
            for each in found.offsets
            if each.committed is not None
        ]

    async def all(self, scope: Scope) -> ByQueue | None:
        """The offsets of all groups."""
        reply = await self._writer.request(
            "GET", "/v1/internal/offsets", select_request_headers(scope)
        )
        found = None if reply is None else await asyncio.to_thread(_decode, reply, _AllOffsets)
        return None if found is None else found.offsets


def _decode(reply: httpx.Response, kind: type[T]) -> T | None:
    if reply.status_code != HTTPStatus.OK:
        return None
    try:
        return msgspec.json.decode(reply.content, type=kind)
    except msgspec.MsgspecError:
        return None
