"""store-writer's routes of topics: create, change, list, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Query, Request, Response

from mqstore.service import problems
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.storage import topic_names
from mqstore.storage.admin import TopicChange, TopicConfig
from mqstore.storage.errors import TopicUnknown
from mqstore.wire.operations import topics as operations
from mqstore.wire.topics import Topic, TopicDeletion, Topics, TopicSpec
from mqstore.writer.everywhere import on_all
from mqstore.writer.service import WriterService

_PATH = "/v1/topics/{topic}"
_CHANGES = (problems.TOPIC_INVALID, problems.STORE_READ_ONLY, problems.STORE_FAILED)

DryRun = Annotated[
    bool, Query(alias="dryRun", description="Only show what would go; nothing is done.")
]


class TopicRoutes:
    """``on_change`` is told after each change of topics."""

    def __init__(self, service: WriterService, on_change: Callable[[], None]) -> None:
        self._service = service
        self._on_change = on_change

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.PUT_TOPIC, self.put_topic).add(api)
        Endpoint(operations.TOPICS, self.topics).add(api)
        Endpoint(operations.TOPIC, self.topic).add(api)
        Endpoint(operations.DELETE_TOPIC, self.delete_topic).add(api)

    async def put_topic(
        self,
        topic: TopicName,
        request: Request,
        response: Response,
        spec: Annotated[TopicSpec | None, Body()] = None,
    ) -> Topic:
        """Idempotent: 201 when it was created, 200 when it was there already. Of several shards all
        are told how it is here then; `shards` names those that could not be."""

        async def here() -> Topic:
            return await self._put(topic, response, spec or TopicSpec())

        shards = self._service.shards
        return await on_all(shards, request, Topic, here, lambda made: made[0], _spec_of)

    async def _put(self, topic: str, response: Response, spec: TopicSpec) -> Topic:
        store = self._service.store
        topic_names.check_new_topic(topic, store.format)
        change = _change(spec)
        try:
            store.topic(topic)
        except TopicUnknown:
            response.status_code = HTTPStatus.CREATED
        made = await asyncio.to_thread(store.put_topic, topic, change)
        self._on_change()
        self._service.events.publish("topic", topic=topic, isDeleted=False)
        return topic_view(made)

    async def topics(self) -> Topics:
        """Also those that have queues and no configuration, as from a broker's recovery."""
        topics = self._service.store.topics()
        return Topics(topics=tuple([topic_view(each) for each in topics]))

    async def topic(self, topic: TopicName) -> Topic:
        return topic_view(self._service.store.topic(topic))

    async def delete_topic(
        self, topic: TopicName, request: Request, dry_run: DryRun = False
    ) -> TopicDeletion:
        """Its queues go, and what groups have consumed of it; its messages stay in the log until
        they expire, and are found by id and key. Made anew it goes on with its queue offsets. Of
        several shards it goes on all; `shards` names those that could not be told."""

        async def here() -> TopicDeletion:
            return await self._delete(topic, dry_run=dry_run)

        return await on_all(self._service.shards, request, TopicDeletion, here, _summed)

    async def _delete(self, topic: str, *, dry_run: bool) -> TopicDeletion:
        store = self._service.store
        act = store.plan_topic_deletion if dry_run else store.delete_topic
        gone = await asyncio.to_thread(act, topic)
        self._on_change()
        if not dry_run:
            self._service.events.publish("topic", topic=topic, isDeleted=True)
        return TopicDeletion(
            topic=topic,
            queues=gone.queues,
            messages=gone.messages,
            groups=tuple(gone.groups),
            dry_run=dry_run,
        )


def _change(spec: TopicSpec) -> TopicChange:
    return TopicChange(
        spec.read_queues or spec.queues,
        spec.write_queues or spec.queues,
        spec.perm,
        spec.order,
        spec.filter_type,
        spec.attributes,
    )


def _spec_of(made: Topic) -> TopicSpec:
    """What another shard is asked, so that a topic it lacks, or has otherwise, becomes this one.
    A broker's topic may be what no client can ask for: then the other one says so."""
    fields = made.model_dump(exclude={"topic", "queues", "attributes", "shards"})
    return TopicSpec.model_construct(**fields, attributes=made.attributes or None)


def _summed(gone: Sequence[TopicDeletion]) -> TopicDeletion:
    return TopicDeletion(
        topic=gone[0].topic,
        queues=sum(each.queues for each in gone),
        messages=sum(each.messages for each in gone),
        groups=tuple(sorted({group for each in gone for group in each.groups})),
        dry_run=gone[0].dry_run,
    )


def topic_view(config: TopicConfig) -> Topic:
    return Topic(
        topic=config.name,
        queues=config.write_queues,
        read_queues=config.read_queues,
        write_queues=config.write_queues,
        perm=config.perm,
        order=config.order,
        filter_type=config.filter_type,
        attributes=dict(config.attributes),
    )
