"""store-writer's routes of subscriptions with filter expressions."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import Request, Response

from mqstore.service import problems
from mqstore.service.app import Api, GroupName, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.service.expressions import Compilations
from mqstore.service.limits import client_of
from mqstore.storage.admin import FilterData
from mqstore.wire.groups import Subscription, Subscriptions, SubscriptionSpec
from mqstore.wire.operations import groups as operations
from mqstore.writer.everywhere import gone_on_all, on_all
from mqstore.writer.service import WriterService

_ALL: Final = "/v1/groups/{group}/subscriptions"
_PATH: Final = _ALL + "/{topic}"
_UNWRITTEN: Final = (problems.STORE_READ_ONLY, problems.STORE_FAILED, problems.GROUP_INVALID)


class SubscriptionRoutes:
    """A consumer registers which messages it wants, and ends that."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._compilations = Compilations()

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.SUBSCRIPTIONS, self.subscriptions).add(api)
        Endpoint(operations.SUBSCRIPTION, self.subscription).add(api)
        Endpoint(operations.SUBSCRIBE, self.put).add(api)
        Endpoint(operations.UNSUBSCRIBE, self.remove).add(api)

    async def subscriptions(self, group: GroupName) -> Subscriptions:
        """Those with an expression; one by tags needs no registration."""
        found = self._service.store.subscriptions.of(group)
        return Subscriptions(subscriptions=tuple([_view(each) for each in found]))

    async def subscription(self, group: GroupName, topic: TopicName) -> Subscription:
        return _view(self._service.store.subscriptions.get(group, topic))

    async def put(
        self, group: GroupName, topic: TopicName, spec: SubscriptionSpec, request: Request
    ) -> Subscription:
        """The expression is RocketMQ's SQL92: AND, OR, NOT, comparisons, BETWEEN, IN, IS NULL, in
        format 5.x CONTAINS, STARTSWITH, ENDSWITH; what is missing is unknown. 400 `bad-filter`
        points at the column. Registered again with the same expression it keeps its birth. Of
        several shards all are told."""

        async def here() -> Subscription:
            store_format = self._service.store.format
            await self._compilations.compile(
                spec.expression, store_format, client_of(request.scope)
            )
            put = self._service.store.subscriptions.put
            return _view(await asyncio.to_thread(put, group, topic, spec.expression))

        shards = self._service.shards
        return await on_all(shards, request, Subscription, here, lambda made: made[0])

    async def remove(self, group: GroupName, topic: TopicName, request: Request) -> Response:
        """It is remembered for filterDataCleanTimeSpan. Of several shards all are told; 200 where
        one could not be, which `shards` names."""

        async def here() -> None:
            await asyncio.to_thread(self._service.store.subscriptions.remove, group, topic)

        return await gone_on_all(self._service.shards, request, here)


def _view(data: FilterData) -> Subscription:
    return Subscription(
        group=data.group,
        topic=data.topic,
        expression=data.expression,
        type=data.expression_type,
        version=data.client_version,
        born_ms=data.born_ms,
    )
