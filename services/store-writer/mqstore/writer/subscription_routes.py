"""Routes of subscriptions with filter expressions."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import Request, Response

from mqstore.service.app import Api, GroupName, TopicName, json_text
from mqstore.service.endpoint import Endpoint
from mqstore.service.expressions import Compilations
from mqstore.service.limits import client_of
from mqstore.service.paging import Page, begin_of, next_cursor
from mqstore.storage.admin import FilterData
from mqstore.wire import groups as operations
from mqstore.wire.groups import Subscription, Subscriptions, SubscriptionSpec
from mqstore.wire.parameters import ListParameters
from mqstore.writer.fan_out import apply_to_all_shards, delete_on_all_shards
from mqstore.writer.service import WriterService

_ALL: Final = "/v1/groups/{group}/subscriptions"


class SubscriptionRoutes:
    """Serves subscriptions: consumers register and remove filter expressions."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._compilations = Compilations()

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.SUBSCRIPTIONS, self.subscriptions).add(api)
        Endpoint(operations.SUBSCRIPTION, self.subscription).add(api)
        Endpoint(operations.SUBSCRIBE, self.put).add(api)
        Endpoint(operations.UNSUBSCRIBE, self.remove).add(api)

    async def subscriptions(self, group: GroupName, page: Page) -> Response:
        """Subscriptions of the group with an expression, by topic, in pages. One by tags needs no
        registration."""
        return json_text(await asyncio.to_thread(self._encode_page, group, page))

    def _encode_page(self, group: str, page: ListParameters) -> str:
        scope = f"subscriptions of {group}"
        after = begin_of(page, scope)
        found = [each for each in self._service.store.subscriptions.of(group) if each.topic > after]
        topics = [each.topic for each in found[: page.limit]]
        subscriptions = Subscriptions(
            subscriptions=tuple([_view(each) for each in found[: page.limit]]),
            next=next_cursor(topics, scope, is_more=len(found) > page.limit),
        )
        return subscriptions.model_dump_json(by_alias=True)

    async def subscription(self, group: GroupName, topic: TopicName) -> Subscription:
        """The subscription of a group to a topic."""
        return _view(self._service.store.subscriptions.get(group, topic))

    async def put(
        self, group: GroupName, topic: TopicName, spec: SubscriptionSpec, request: Request
    ) -> Subscription:
        """Registers a filter expression on all shards. It is RocketMQ's SQL92: AND, OR, NOT,
        comparisons, BETWEEN, IN, IS NULL, in format 5.x CONTAINS, STARTSWITH, ENDSWITH; a missing
        property is unknown. 400 `bad-filter` points at the column. A repeated registration of the
        same expression keeps its birth."""

        async def here() -> Subscription:
            """Register the subscription on this shard."""
            store_format = self._service.store.format
            await self._compilations.compile(
                spec.expression, store_format, client_of(request.scope)
            )
            put = self._service.store.subscriptions.put
            return _view(await asyncio.to_thread(put, group, topic, spec.expression))

        shards = self._service.shards
        return await apply_to_all_shards(shards, request, Subscription, here, lambda made: made[0])

    async def remove(self, group: GroupName, topic: TopicName, request: Request) -> Response:
        """Removes a subscription from all shards; 200 with `shards` if one of them could not be
        reached. The store keeps the expression for filterDataCleanTimeSpan."""

        async def here() -> None:
            """Remove the subscription from this shard."""
            await asyncio.to_thread(self._service.store.subscriptions.remove, group, topic)

        return await delete_on_all_shards(self._service.shards, request, here)


def _view(data: FilterData) -> Subscription:
    return Subscription(
        group=data.group,
        topic=data.topic,
        expression=data.expression,
        type=data.expression_type,
        version=data.client_version,
        born_ms=data.born_ms,
    )
