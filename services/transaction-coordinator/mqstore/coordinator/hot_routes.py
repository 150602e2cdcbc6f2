"""The routes that producers use all the time, past FastAPI: begin, commit, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from mqstore.coordinator.relay import Relay
from mqstore.service import bodies, http, idempotency
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.forwarding import ForwardedRequest
from mqstore.service.http import FutureReply, HotRequest, Prepared, Reply
from mqstore.service.transaction_parameters import (
    VALUES_MAX,
    body_of_begin,
    check_query,
    check_transaction_id,
    transaction_id,
)
from mqstore.wire import transactions as operations


class HotRoutes:
    """Used on the event loop only."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def add(self, api: Api) -> None:
        """Put the routes into the coordinator's interface."""
        begin = Hot(prepare=self._prepare_begin, any_path=True)
        decision = Hot(prepare=self._prepare_decision, any_path=True)
        Endpoint(operations.BEGIN, self._begin, begin).add(api)
        Endpoint(operations.COMMIT, self._decide, decision).add(api)
        Endpoint(operations.ROLLBACK, self._decide, decision).add(api)

    async def _begin(self, request: HotRequest) -> Reply:
        check_query(request)
        key = idempotency.read(request)
        sent = self._relay.with_client(request.scope)
        return await self._relay.begin(replace(sent, content=await body_of_begin(request)), key)

    def _prepare_begin(self, request: HotRequest) -> Prepared:
        check_query(request)
        key = idempotency.read(request)
        sent = self._relay.with_client(request.scope).without_own_id(request.scope)

        def begin(body: bytes, _: Mapping[str, str]) -> http.HotResult:
            bodies.check_values(body, VALUES_MAX)
            return _later(self._relay.begin(replace(sent, content=body), key))

        return Prepared(begin, HTTPStatus.CREATED)

    async def _decide(self, request: HotRequest) -> Reply:
        check_query(request)
        wanted = transaction_id(request)
        sent = ForwardedRequest.of(request.scope, None, await request.body())
        return await self._relay.decide(wanted, sent)

    def _prepare_decision(self, request: HotRequest) -> Prepared:
        check_query(request)
        sent = ForwardedRequest.of(request.scope, None).without_own_id(request.scope)
        before, _, after = sent.target.rpartition("/")
        action = after.rpartition(":")[2]

        def decide(body: bytes, params: Mapping[str, str]) -> http.HotResult:
            wanted = params["id"]
            check_transaction_id(wanted)
            target = f"{before}/{wanted}:{action}"
            return _later(self._relay.decide(wanted, replace(sent, target=target, content=body)))

        return Prepared(decide)


def _later(reply: Coroutine[Any, Any, Reply]) -> FutureReply:
    return FutureReply(asyncio.ensure_future(reply))
