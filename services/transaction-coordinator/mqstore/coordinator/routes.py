"""The routes that people use, and producers that poll for checks."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from fastapi import Path as PathParameter
from fastapi import Query
from fastapi.requests import Request
from fastapi.responses import Response

from mqstore.coordinator.checks import Checks, refusal
from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.relay import Relay
from mqstore.coordinator.shards import BY, Shard, Shards
from mqstore.service import problems
from mqstore.service.app import Api, documented, json_response
from mqstore.service.auth import Role
from mqstore.service.forwarded import Asking
from mqstore.service.problems import responses
from mqstore.service.transaction_lists import merge, query_of
from mqstore.service.transaction_models import (
    ID_EXAMPLE,
    ID_LENGTH_MAX,
    ID_TEXT,
    CheckTaking,
    Resolution,
    State,
    Taken,
    TransactionList,
    TransactionView,
)
from mqstore.storage.lookup import key_cursor

LIST_MAX: Final = 1_000
CURSOR_LENGTH_MAX: Final = 4_000
_BASE: Final = "/v1/transactions"
_LIST: Final = msgspec.json.Decoder(TransactionList)
TransactionId = Annotated[
    str,
    PathParameter(
        alias="id",
        max_length=ID_LENGTH_MAX,
        description=ID_TEXT,
        openapi_examples={"one": {"value": ID_EXAMPLE}},
    ),
]


class Routes:
    """Used on the event loop only."""

    def __init__(self, shards: Shards, relay: Relay, checks: Checks, list_timeout_s: float) -> None:
        """``list_timeout_s``: a shard without an answer by then is missing in a list."""
        self._shards = shards
        self._relay = relay
        self._checks = checks
        self._list_timeout_s = list_timeout_s

    def add(self, api: Api) -> None:
        """Put the routes into the coordinator's interface."""
        unknown = (problems.TRANSACTION_UNKNOWN,)
        decided = (*unknown, problems.TRANSACTION_DECIDED, problems.TRANSACTION_GONE)
        one = _BASE + "/{id}"
        listed = (problems.BAD_CURSOR,)
        produce, admin = Role.PRODUCE, Role.ADMIN
        view_, list_, consume = TransactionView, TransactionList, Role.CONSUME
        api.add_schemas(view_, list_, Taken)
        for method, path, endpoint, summary, role, answer, kinds in (
            ("POST", one + ":resolve", self.resolve, "Resolve one by hand", admin, view_, decided),
            ("GET", _BASE, self.transactions, "Transactions, oldest first", consume, list_, listed),
            ("GET", one, self.transaction, "One transaction's story", consume, view_, unknown),
            ("POST", "/v1/checks", self.checks, "Take checks of a group", produce, Taken, ()),
        ):
            with_body = problems.WITH_BODY if method == "POST" else ()
            api.app.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                responses={
                    **documented(answer.__name__, text="Successful Response"),
                    **responses(
                        *kinds,
                        *with_body,
                        problems.OVERLOADED,
                        problems.COORDINATOR_NOT_READY,
                        problems.STORE_NOT_WRITABLE,
                        *problems.GUARDED,
                    ),
                },
                tags=["checks" if path == "/v1/checks" else "transactions"],
                dependencies=[api.requires(role)],
                name=endpoint.__name__,
            )

    async def resolve(
        self, id_: TransactionId, resolution: Resolution, request: Request
    ) -> Response:
        """A person's decision, with its reason, which is kept; also of one that was set aside."""
        return await self._relay.pass_on(id_, request)

    async def transaction(self, id_: TransactionId, request: Request) -> Response:
        return await self._relay.pass_on(id_, request)

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
        """Over all shards. Decided ones as far as remembered: the newest 50,000 of each."""
        query = query_of(state, group)
        if cursor is not None:
            key_cursor.decode_name(cursor, query)
        relayed = Asking.of(request.scope, BY)
        replies = await asyncio.gather(*(self._listed(shard, relayed) for shard in self._shards))
        parts = {
            shard.ordinal: reply if isinstance(reply, TransactionList) else None
            for shard, reply in zip(self._shards, replies, strict=True)
        }
        if any(parts.values()):
            return json_response(merge(parts, limit, query))
        raise next(each.problem for each in replies if isinstance(each, ShardUnavailable))

    async def _listed(self, shard: Shard, relayed: Asking) -> TransactionList | ShardUnavailable:
        """A shard's part of a list, or why it has none."""
        try:
            async with asyncio.timeout(self._list_timeout_s):
                reply = await shard.send(relayed)
        except TimeoutError:
            reason = f"did not answer within {self._list_timeout_s:g} s"
            return ShardUnavailable(shard.ordinal, reason, is_sent=False)
        except ShardUnavailable as error:
            return error
        if not reply.is_success:
            return refusal(shard, reply)
        try:
            return _LIST.decode(reply.content)
        except msgspec.MsgspecError as error:
            reason = f"answered what this release does not know: {error}"
            return ShardUnavailable(shard.ordinal, reason, is_sent=False)

    async def checks(self, wanted: CheckTaking) -> Response:
        """Transactions of a group whose producer went silent. Decide each, or leave it, which means
        unknown: it comes again later. A check counts when it is answered here."""
        return json_response(Taken(await self._checks.take(wanted)))
