"""The routes that producers use all the time, past FastAPI: begin, commit, roll back."""

from __future__ import annotations

from mqstore.coordinator.relay import Relay
from mqstore.service import idempotency
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.http import HotRequest, Reply
from mqstore.service.transaction_parameters import body_of_begin, check_query, transaction_id
from mqstore.wire import transactions as operations


class HotRoutes:
    """Used on the event loop only."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def add(self, api: Api) -> None:
        """Put the routes into the coordinator's interface."""
        Endpoint(operations.BEGIN, self._begin, Hot()).add(api)
        Endpoint(operations.COMMIT, self._decide, Hot()).add(api)
        Endpoint(operations.ROLLBACK, self._decide, Hot()).add(api)

    async def _begin(self, request: HotRequest) -> Reply:
        check_query(request)
        key = idempotency.read(request)
        return await self._relay.begin(request.scope, await body_of_begin(request), key)

    async def _decide(self, request: HotRequest) -> Reply:
        check_query(request)
        wanted = transaction_id(request)
        return await self._relay.decide(wanted, request.scope, await request.body())
