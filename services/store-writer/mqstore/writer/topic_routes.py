"""Routes of topics: create, change, list, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Query, Request, Response

from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.storage import topic_names
from mqstore.storage.admin import TopicChange, TopicConfig
from mqstore.storage.errors import TopicUnknown
from mqstore.wire import topics as operations
from mqstore.wire.topics import Topic, TopicDeletion, Topics, TopicSpec
from mqstore.writer.fan_out import apply_to_all_shards
from mqstore.writer.service import WriterService

DryRun = Annotated[
    bool, Query(alias="dryRun", description="Only return what would be deleted; change nothing.")
]


class TopicRoutes:
    """Serves topics. ``on_change`` is called after each change of topics."""

    def __init__(self, service: WriterService, on_change: Callable[[], None]) -> None:
        self._service = service
        self._on_change = on_change

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
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
        """Creates or changes a topic, idempotently: 201 if it was created, 200 if it existed. All
        shards get the resulting configuration; `shards` names those that could not be reached."""

        async def here() -> Topic:
            """Put the topic on this shard."""
            return await self._put(topic, response, spec or TopicSpec())

        shards = self._service.shards
        return await apply_to_all_shards(
            shards, request, Topic, here, lambda made: made[0], _spec_of
        )

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
        """All topics, including those with queues but no configuration, as a broker's recovery
        leaves."""
        topics = self._service.store.topics()
        return Topics(topics=tuple([topic_view(each) for each in topics]))

    async def topic(self, topic: TopicName) -> Topic:
        """The configuration of a topic."""
        return topic_view(self._service.store.topic(topic))

    async def delete_topic(
        self, topic: TopicName, request: Request, dry_run: DryRun = False
    ) -> TopicDeletion:
        """Deletes the queues of the topic and the offsets of groups in it. Its messages stay in the
        log until they expire, and are found by id and key. If the topic is created again, its queue
        offsets continue. The deletion applies to all shards; `shards` names those that could not be
        reached."""

        async def here() -> TopicDeletion:
            """Delete the topic on this shard."""
            return await self._delete(topic, dry_run=dry_run)

        return await apply_to_all_shards(
            self._service.shards, request, TopicDeletion, here, _join_deletions
        )

    async def _delete(self, topic: str, *, dry_run: bool) -> TopicDeletion:
        store = self._service.store
        act = store.plan_topic_deletion if dry_run else store.delete_topic
        deleted = await asyncio.to_thread(act, topic)
        self._on_change()
        if not dry_run:
            self._service.events.publish("topic", topic=topic, isDeleted=True)
        return TopicDeletion(
            topic=topic,
            queues=deleted.queues,
            messages=deleted.messages,
            groups=tuple(deleted.groups),
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
    """Return the request that makes another shard's topic equal to this one.

    A broker's topic may have values that no request may have; the other shard then rejects it.
    """
    fields = made.model_dump(exclude={"topic", "queues", "attributes", "shards"})
    return TopicSpec.model_construct(**fields, attributes=made.attributes or None)


def _join_deletions(deleted: Sequence[TopicDeletion]) -> TopicDeletion:
    return TopicDeletion(
        topic=deleted[0].topic,
        queues=sum(each.queues for each in deleted),
        messages=sum(each.messages for each in deleted),
        groups=tuple(sorted({group for each in deleted for group in each.groups})),
        dry_run=deleted[0].dry_run,
    )


def topic_view(config: TopicConfig) -> Topic:
    """Return the view of a topic."""
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
