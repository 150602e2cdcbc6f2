"""Transactions for operators and readers: resolve by hand, list, show one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from fastapi import Path as PathParameter
from fastapi import Query, Request
from fastapi.responses import Response

from mqstore.service import logs, problems
from mqstore.service.app import Api, documented, json_response
from mqstore.service.auth import Role
from mqstore.service.forwarded import was_forwarded
from mqstore.service.problems import responses
from mqstore.service.transaction_lists import merge, query_of
from mqstore.service.transaction_models import (
    ID_EXAMPLE,
    ID_LENGTH_MAX,
    ID_TEXT,
    Resolution,
    State,
    TransactionList,
    TransactionView,
)
from mqstore.storage.lookup import key_cursor
from mqstore.storage.transactions import Decide, Verdict
from mqstore.writer.service import WriterService
from mqstore.writer.transactions.ids import shard_and_key
from mqstore.writer.transactions.views import Listing, view

log = logs.get(__name__)

LIST_MAX: Final = 1_000
CURSOR_LENGTH_MAX: Final = 4_000
_BASE: Final = "/v1/transactions"
TransactionId = Annotated[
    str,
    PathParameter(
        alias="id",
        max_length=ID_LENGTH_MAX,
        description=ID_TEXT,
        openapi_examples={"one": {"value": ID_EXAMPLE}},
    ),
]


class TransactionRoutes:
    """A transaction of another shard is that shard's answer."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        unknown = (problems.TRANSACTION_UNKNOWN,)
        decided = (*unknown, problems.TRANSACTION_DECIDED, problems.TRANSACTION_GONE)
        resolving = (
            *decided,
            *problems.WITH_BODY,
            problems.STORE_NOT_WRITABLE,
            *problems.READ_ONLY_KINDS,
            problems.STORE_FAILED,
            problems.FLUSH_TIMEOUT,
        )
        one = _BASE + "/{id}"
        listed = (problems.BAD_CURSOR,)
        view_, list_, admin, consume = TransactionView, TransactionList, Role.ADMIN, Role.CONSUME
        api.add_schemas(view_, list_)
        for method, path, endpoint, summary, role, answer, kinds in (
            ("POST", one + ":resolve", self.resolve, "Resolve by hand", admin, view_, resolving),
            ("GET", _BASE, self.transactions, "Transactions, oldest first", consume, list_, listed),
            ("GET", one, self.transaction, "A transaction's story", consume, view_, unknown),
        ):
            api.app.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                responses={
                    **documented(answer.__name__, text="Successful Response"),
                    **responses(
                        *kinds,
                        problems.OVERLOADED,
                        problems.COORDINATOR_NOT_READY,
                        *problems.OF_SHARDS,
                        *problems.GUARDED,
                    ),
                },
                tags=["transactions"],
                dependencies=[api.requires(role)],
                name=endpoint.__name__,
            )

    async def resolve(
        self, id_: TransactionId, resolution: Resolution, request: Request
    ) -> Response:
        """An operator's decision, with its reason, which is kept; also about a transaction that was
        set aside."""
        key = await self._key_of(id_, request)
        service = self._service
        service.require_transactions()
        command = Decide(key, Verdict(resolution.decision), resolution.reason, by_hand=True)
        decided = await service.transactions.turns.decide(command)
        return json_response(view(service.settings.shard, decided.story))

    async def transaction(self, id_: TransactionId, request: Request) -> Response:
        key = await self._key_of(id_, request)
        service = self._service
        story = await asyncio.to_thread(service.transactions.engine.find, key)
        return json_response(view(service.settings.shard, story))

    async def transactions(
        self,
        request: Request,
        state: Annotated[State | None, Query(description="Default: pending and set-aside.")] = None,
        group: Annotated[str | None, Query(max_length=255, description="Producer group.")] = None,
        older_than: Annotated[
            int, Query(alias="olderThan", ge=0, le=2**31, description="Seconds since it was begun.")
        ] = 0,
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
        cursor: Annotated[
            str | None,
            Query(max_length=CURSOR_LENGTH_MAX, description="`next` of the answer before."),
        ] = None,
    ) -> Response:
        """Over all shards, unless `shard` names one. Decided ones as far as remembered: the newest
        50,000 of each."""
        query = query_of(state, group)
        after = "" if cursor is None else key_cursor.decode_name(cursor, query)
        listing = Listing(state, group, older_than * 1000, after, limit + 1)
        shards = self._service.shards
        if not shards.spreads(request.scope):
            return json_response(merge({shards.own: await self._own(listing)}, limit, query))

        async def own() -> bytes:
            return msgspec.json.encode(merge({shards.own: await self._own(listing)}, limit, query))

        async with shards.everywhere(request, own) as spread:
            spread.require_answers()
            parts = {shard: _read(body) for shard, body in spread.answers.items()}
            parts |= dict.fromkeys([*spread.missing, *spread.refusals])
        return json_response(merge(parts, limit, query))

    async def _own(self, listing: Listing) -> TransactionList:
        """This shard's transactions. Raises Problem, TransactionsNotLoaded."""
        service = self._service
        engine = service.transactions.engine
        found = await asyncio.to_thread(listing.of, service.settings.shard, engine)
        return TransactionList(found, None, True, [])

    async def _key_of(self, transaction_id: str, request: Request) -> str:
        """The key of a transaction of this shard. Raises Relayed for another one's, or Problem."""
        shards, scope = self._service.shards, request.scope
        is_forwarded = was_forwarded(scope)
        other, key = shard_and_key(shards, transaction_id, is_forwarded=is_forwarded)
        if other is not None:
            await shards.relay(other, request)
        return key


def _read(body: bytes) -> TransactionList | None:
    """Another shard's part of a list; None for a part that cannot be read here."""
    try:
        return msgspec.json.decode(body, type=TransactionList)
    except msgspec.MsgspecError as error:
        log.warning("a shard's list of transactions cannot be read", error=str(error))
        return None
