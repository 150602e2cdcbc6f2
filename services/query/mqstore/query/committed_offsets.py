"""Committed offsets of consumer groups, and states of their messages, as store-writer holds them
in memory.

``consumerOffset.json`` lags by up to flushConsumerOffsetInterval, and is saved only after the log's
sync. Offsets from memory make an acknowledged commit count at once in the lags of groups.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec
from starlette.types import Scope

from mqstore.query.local_writer import LocalWriter
from mqstore.service import logs
from mqstore.service.auth import OwnToken
from mqstore.service.forwarding import select_request_headers
from mqstore.storage.admin import Commit

T = TypeVar("T")

ByQueue = Mapping[str, Mapping[int, int]]
"""Offset of the next message to consume, by ``topic@group`` and queue id."""


class _Offset(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: int
    committed: int | None


class _Offsets(msgspec.Struct):
    offsets: list[_Offset]
    next: str | None = None


class _AllOffsets(msgspec.Struct):
    offsets: dict[str, dict[int, int]]
    next: str | None = None


class _Pending(msgspec.Struct, rename="camel"):
    topic: str
    group: str
    queue_id: int
    leased: int
    done: int


class ConsumerStates(msgspec.Struct):
    """The states of messages of shared groups, as store-writer has them in memory."""

    pending: list[_Pending]
    delayed: dict[str, int] | None
    next: str | None = None


P = TypeVar("P", _AllOffsets, ConsumerStates)


class CommittedOffsets:
    """Reads offsets and states from store-writer. Used on the event loop only.

    It sends the client's token for one group, else the ``token`` of query. A method returns None if
    no store-writer of this store replies in time; the caller then uses the saved file.
    """

    def __init__(self, writer: LocalWriter, token: OwnToken) -> None:
        self._writer = writer
        self._token = token

    async def read_group(self, group: str, scope: Scope) -> Sequence[Commit] | None:
        """Return the offsets of one group, none for a group without offsets."""
        path = f"/v1/groups/{quote(group, safe='')}/offsets"
        headers = select_request_headers(scope)
        found: list[Commit] = []
        cursor: str | None = None
        while True:
            reply = await self._writer.request("GET", _with_cursor(path, cursor), headers)
            if reply is not None and reply.status_code == HTTPStatus.NOT_FOUND:
                return found
            page = None if reply is None else _decode(reply, _Offsets)
            if page is None:
                return None
            found += [
                Commit(each.topic, each.queue_id, each.committed)
                for each in page.offsets
                if each.committed is not None
            ]
            if (cursor := page.next) is None:
                return found

    async def read_all(self) -> ByQueue | None:
        """Return the offsets of all groups."""
        pages = await self._pages("/v1/internal/offsets", _AllOffsets)
        if pages is None:
            return None
        return {key: offsets for page in pages for key, offsets in page.offsets.items()}

    async def read_states(self, group: str | None) -> ConsumerStates | None:
        """Return the states of one group, or of all."""
        chosen = "" if group is None else f"?group={quote(group, safe='')}"
        pages = await self._pages(f"/v1/internal/consumer-states{chosen}", ConsumerStates)
        if pages is None:
            return None
        delayed = [each.delayed for each in pages if each.delayed is not None]
        is_counted = len(delayed) == len(pages)
        return ConsumerStates(
            pending=[each for page in pages for each in page.pending],
            delayed=dict(ChainMap(*delayed)) if is_counted else None,
        )

    async def _pages(self, path: str, kind: type[P]) -> list[P] | None:
        """Return the pages of a list that only services may see."""
        pages: list[P] = []
        cursor: str | None = None
        while True:
            reply = await self._request(_with_cursor(path, cursor))
            page = None if reply is None else await asyncio.to_thread(_decode, reply, kind)
            if page is None:
                return None
            pages.append(page)
            if (cursor := page.next) is None:
                return pages

    async def _request(self, path: str) -> httpx.Response | None:
        """Request what only services may see, with the token of query."""
        token = self._token()
        headers = {"x-request-id": logs.request_id.get()}
        headers |= {} if token is None else {"authorization": f"Bearer {token}"}
        return await self._writer.request("GET", path, headers)


def _with_cursor(path: str, cursor: str | None) -> str:
    if cursor is None:
        return path
    return f"{path}{'&' if '?' in path else '?'}cursor={quote(cursor, safe='')}"


def _decode(reply: httpx.Response, kind: type[T]) -> T | None:
    if reply.status_code != HTTPStatus.OK:
        return None
    try:
        return msgspec.json.decode(reply.content, type=kind)
    except msgspec.MsgspecError:
        return None
