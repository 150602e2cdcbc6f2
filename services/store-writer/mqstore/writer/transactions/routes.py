"""Transactions for operators and readers: resolve by hand, list, show one."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from fastapi import Query, Request
from fastapi.responses import Response

from mqstore.service import logs
from mqstore.service.app import Api, json_response
from mqstore.service.endpoint import Endpoint
from mqstore.service.forwarding import was_forwarded
from mqstore.service.transaction_lists import merge, query_of
from mqstore.service.transaction_parameters import TransactionId
from mqstore.service.transaction_structs import Transactions
from mqstore.storage.formats import decode_name_cursor
from mqstore.storage.transactions import Decide, Verdict
from mqstore.wire import transactions as operations
from mqstore.wire.transactions import Resolution
from mqstore.writer.service import WriterService
from mqstore.writer.transactions.ids import shard_and_key
from mqstore.writer.transactions.views import Listing, view

log = logs.get(__name__)


class TransactionRoutes:
    """A transaction of another shard is that shard's answer."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.RESOLVE, self.resolve).add(api)
        Endpoint(operations.TRANSACTIONS, self.transactions).add(api)
        Endpoint(operations.TRANSACTION, self.transaction).add(api)

    async def resolve(
        self, id_: TransactionId, resolution: Resolution, request: Request
    ) -> Response:
        """Take an operator's decision on the shard that the id names."""
        key = await self._key_of(id_, request)
        service = self._service
        service.require_transactions()
        command = Decide(key, Verdict(resolution.decision), resolution.reason, by_hand=True)
        decided = await service.transactions.turns.decide(command)
        return json_response(view(service.settings.shard, decided.snapshot))

    async def transaction(self, id_: TransactionId, request: Request) -> Response:
        """All copies of its half messages, the checks that were sent, and its decision."""
        key = await self._key_of(id_, request)
        service = self._service
        snapshot = await asyncio.to_thread(service.transactions.engine.find, key)
        return json_response(view(service.settings.shard, snapshot))

    async def transactions(
        self,
        request: Request,
        wanted: Annotated[operations.TransactionsParameters, Query()],
    ) -> Response:
        """Merge the lists of all shards."""
        query, limit = query_of(wanted.state, wanted.group), wanted.limit
        after = "" if wanted.cursor is None else decode_name_cursor(wanted.cursor, query)
        older_than_ms = wanted.older_than * 1000
        listing = Listing(wanted.state, wanted.group, older_than_ms, after, limit + 1)
        shards = self._service.shards
        if not shards.fans_out(request.scope):
            return json_response(merge({shards.own: await self._own(listing)}, limit, query))

        async def own() -> bytes:
            """This shard's part of the list, in JSON."""
            return msgspec.json.encode(merge({shards.own: await self._own(listing)}, limit, query))

        async with shards.fan_out(request, own) as spread:
            spread.require_reply()
            parts = {shard: _read(body) for shard, body in spread.answers.items()}
            parts |= dict.fromkeys([*spread.missing, *spread.refusals])
        return json_response(merge(parts, limit, query))

    async def _own(self, listing: Listing) -> Transactions:
        """This shard's transactions. Raises Problem, TransactionsNotLoaded."""
        service = self._service
        engine = service.transactions.engine
        found = await asyncio.to_thread(listing.of, service.settings.shard, engine)
        return Transactions(transactions=tuple(found), next=None, complete=True, missing=())

    async def _key_of(self, transaction_id: str, request: Request) -> str:
        """The key of a transaction of this shard.

        Raises RelayedResponse for a transaction of another shard, or Problem."""
        shards, scope = self._service.shards, request.scope
        is_forwarded = was_forwarded(scope)
        other, key = shard_and_key(shards, transaction_id, is_forwarded=is_forwarded)
        if other is not None:
            await shards.relay(other, request)
        return key


def _read(body: bytes) -> Transactions | None:
    """Another shard's part of a list; None for a part that cannot be read here."""
    try:
        return msgspec.json.decode(body, type=Transactions)
    except msgspec.MsgspecError as error:
        log.warning("a shard's list of transactions cannot be read", error=str(error))
        return None
