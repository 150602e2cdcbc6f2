"""store-writer's routes of subscriptions with filter expressions."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Final

from fastapi import Request, Response

from mqstore.service import problems
from mqstore.service.app import Api, TopicName
from mqstore.service.auth import Role
from mqstore.service.expressions import Compilations
from mqstore.service.limits import client_of
from mqstore.service.problems import responses
from mqstore.storage.tables.consumer_filters import FilterData
from mqstore.wire.examples import groups as examples
from mqstore.wire.groups import Subscription, Subscriptions, SubscriptionSpec
from mqstore.writer import control
from mqstore.writer.everywhere import gone_on_all, on_all
from mqstore.writer.group_routes import GroupName
from mqstore.writer.service import WriterService

_ALL: Final = "/v1/groups/{group}/subscriptions"
_PATH: Final = _ALL + "/{topic}"
_UNWRITTEN: Final = (problems.STORE_READ_ONLY, problems.STORE_FAILED, problems.GROUP_INVALID)


class SubscriptionRoutes:
    """Whoever may consume registers, and ends, what it wants."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._compilations = Compilations()

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        add = partial(control.add, api, tag="groups", role=Role.CONSUME)
        listed = responses(problems.GROUP_INVALID)
        add("GET", _ALL, self.subscriptions, "A group's subscriptions", 200, listed)
        unknown = (problems.SUBSCRIPTION_UNKNOWN, problems.GROUP_INVALID)
        one = control.answers(examples.SUBSCRIPTION, *unknown)
        add("GET", _PATH, self.subscription, "One subscription", 200, one)
        refused = (problems.TOPIC_UNKNOWN, problems.BAD_FILTER, *problems.WITH_BODY)
        put = control.answers(examples.SUBSCRIPTION, *refused, *_UNWRITTEN)
        add("PUT", _PATH, self.put, "Subscribe with an expression", 200, put)
        gone = responses(problems.SUBSCRIPTION_UNKNOWN, *_UNWRITTEN)
        add("DELETE", _PATH, self.remove, "End a subscription", HTTPStatus.NO_CONTENT, gone)

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
            await self._compilations.compiled(
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
