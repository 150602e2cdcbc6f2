"""The routes that people use, and producers that poll for checks."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from fastapi import Query
from fastapi.requests import Request
from fastapi.responses import Response

from mqstore.coordinator.checks import Checks, refusal
from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.relay import Relay
from mqstore.coordinator.shards import BY, Shard, Shards
from mqstore.service import transaction_structs as structs
from mqstore.service.app import Api, json_response
from mqstore.service.endpoint import Endpoint
from mqstore.service.forwarding import ForwardedRequest
from mqstore.service.limits import client_of
from mqstore.service.transaction_lists import merge, query_of
from mqstore.service.transaction_parameters import TransactionId
from mqstore.service.transaction_structs import Transactions
from mqstore.storage.formats import decode_name_cursor
from mqstore.wire import transactions as operations
from mqstore.wire.checks import TAKE_CHECKS, CheckTaking
from mqstore.wire.transactions import Resolution

_LIST: Final = msgspec.json.Decoder(Transactions)


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
        self._polls = api.limits.polls
        Endpoint(operations.RESOLVE, self.resolve).add(api)
        Endpoint(operations.TRANSACTIONS, self.transactions).add(api)
        Endpoint(operations.TRANSACTION, self.transaction).add(api)
        Endpoint(TAKE_CHECKS, self.checks).add(api)

    async def resolve(
        self, id_: TransactionId, resolution: Resolution, request: Request
    ) -> Response:
        """Relay an operator's decision to the shard that the id names."""
        return await self._relay.pass_on(id_, request)

    async def transaction(self, id_: TransactionId, request: Request) -> Response:
        """All copies of its half messages, the checks that were sent, and its decision."""
        return await self._relay.pass_on(id_, request)

    async def transactions(
        self,
        request: Request,
        wanted: Annotated[operations.TransactionsParameters, Query()],
    ) -> Response:
        """Merge the lists of all shards."""
        query = query_of(wanted.state, wanted.group)
        if wanted.cursor is not None:
            decode_name_cursor(wanted.cursor, query)
        relayed = ForwardedRequest.of(request.scope, BY)
        replies = await asyncio.gather(*(self._listed(shard, relayed) for shard in self._shards))
        parts = {
            shard.ordinal: reply if isinstance(reply, Transactions) else None
            for shard, reply in zip(self._shards, replies, strict=True)
        }
        if any(parts.values()):
            return json_response(merge(parts, wanted.limit, query))
        raise next(each.problem for each in replies if isinstance(each, ShardUnavailable))

    async def _listed(
        self, shard: Shard, relayed: ForwardedRequest
    ) -> Transactions | ShardUnavailable:
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
            return _LIST.decode(reply.body)
        except msgspec.MsgspecError as error:
            reason = f"answered what this release does not know: {error}"
            return ShardUnavailable(shard.ordinal, reason, is_sent=False)

    async def checks(self, terms: CheckTaking, request: Request) -> Response:
        """Transactions of a group whose producer went silent. Decide each, or leave it, which means
        unknown: it comes again later. A check counts when it is answered here."""
        with self._polls.holding(client_of(request.scope)):
            found = await self._checks.take(terms)
        return json_response(structs.Checks(transactions=tuple(found)))
