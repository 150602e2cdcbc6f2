"""Routes of topics: create, change, list, delete."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Body, Query, Request, Response

from mqstore.service import problems
from mqstore.service.app import Api, NewTopicName, TopicName, json_text
from mqstore.service.endpoint import Endpoint
from mqstore.service.paging import Page, begin_of, next_cursor
from mqstore.service.problems import Problem
from mqstore.storage import topic_names
from mqstore.storage.admin import TopicChange, TopicConfig
from mqstore.storage.errors import TopicUnknown
from mqstore.wire import topics as operations
from mqstore.wire.parameters import ListParameters
from mqstore.wire.topics import (
    ChangedTopic,
    Topic,
    TopicDeletion,
    Topics,
    TopicSpec,
    UnreadMessages,
)
from mqstore.writer.fan_out import apply_to_all_shards
from mqstore.writer.service import WriterService

NAMED_MAX: Final = 5
"""Number of groups that a refusal names."""
_OF_CHANGE: Final = ("hidden_queues", "hidden_messages", "unread", "dry_run")
_TOPICS: Final = "topics"
"""The list that a cursor belongs to."""


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
        topic: NewTopicName,
        request: Request,
        response: Response,
        spec: Annotated[TopicSpec | None, Body()] = None,
    ) -> ChangedTopic:
        """Creates or changes a topic, idempotently: 201 if it was created, 200 if it existed. All
        shards get the resulting configuration; `shards` names those that could not be reached.

        Consumers receive from as many queues as the topic has to read or to write. A change that
        takes queues away is refused while groups have not consumed their messages on any shard,
        without `allowUnread`. To drain queues, lower `writeQueues` first: nothing more is put into
        them, and consumers receive the rest."""
        wanted = spec or TopicSpec()

        async def plan() -> ChangedTopic:
            """Find what the change would hide on this shard."""
            return await self._plan(topic, wanted)

        async def here() -> ChangedTopic:
            """Put the topic on this shard."""
            return await self._put(topic, response, wanted)

        shards, hidden = self._service.shards, await plan()
        if wanted.dry_run or hidden.hidden_queues:
            only_plan = wanted.model_copy(update={"dry_run": True})
            hidden = await apply_to_all_shards(
                shards, request, ChangedTopic, plan, _join_changes, lambda _: only_plan
            )
        if wanted.dry_run:
            return hidden
        if not wanted.allow_unread:
            _require_read(hidden)
        allowed = {"allow_unread": wanted.allow_unread}

        def spec_of(made: Topic) -> TopicSpec:
            """Return the request for the other shards, which look at their own queues again."""
            return _spec_of(made).model_copy(update=allowed)

        made = await apply_to_all_shards(
            shards, request, ChangedTopic, here, lambda made: made[0], spec_of
        )
        of_change = {each: getattr(hidden, each) for each in _OF_CHANGE if each != "dry_run"}
        return made.model_copy(update=of_change)

    async def _plan(self, topic: str, spec: TopicSpec) -> ChangedTopic:
        store = self._service.store
        found = await asyncio.to_thread(store.plan_topic_change, topic, _change(spec))
        try:
            config = store.topic(topic)
        except TopicUnknown:
            config = TopicConfig(topic)
        unread = [UnreadMessages(group=name, messages=n) for name, n in found.unread.items()]
        if found.is_unread and not unread:
            unread = [UnreadMessages(group="", messages=found.messages)]
        return _changed(config, found.queues, found.messages, tuple(unread), True)

    async def _put(self, topic: str, response: Response, spec: TopicSpec) -> ChangedTopic:
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
        return _changed(made, 0, 0, (), False)

    async def topics(self, page: Page) -> Response:
        """All topics by name, in pages, including those with queues but no configuration, as a
        broker's recovery leaves."""
        return json_text(await asyncio.to_thread(self._encode_page, page))

    def _encode_page(self, page: ListParameters) -> str:
        found, is_more = self._service.store.topics_page(begin_of(page, _TOPICS), page.limit)
        topics = Topics(
            topics=tuple([topic_view(each) for each in found]),
            next=next_cursor([each.name for each in found], _TOPICS, is_more=is_more),
        )
        return topics.model_dump_json(by_alias=True)

    async def topic(self, topic: TopicName) -> Topic:
        """The configuration of a topic."""
        return topic_view(self._service.store.topic(topic))

    async def delete_topic(
        self,
        topic: NewTopicName,
        request: Request,
        wanted: Annotated[operations.DeletionParameters, Query()],
    ) -> TopicDeletion:
        """Deletes the queues of the topic and the offsets of groups in it. Its messages stay in the
        log until they expire, and are found by id and key. If the topic is created again, its queue
        offsets continue. The deletion applies to all shards; `shards` names those that could not be
        reached."""

        async def here() -> TopicDeletion:
            """Delete the topic on this shard."""
            return await self._delete(topic, dry_run=wanted.dry_run)

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


def _changed(
    config: TopicConfig,
    queues: int,
    messages: int,
    unread: tuple[UnreadMessages, ...],
    dry_run: bool,
) -> ChangedTopic:
    return ChangedTopic(
        **dict(topic_view(config)),
        hidden_queues=queues,
        hidden_messages=messages,
        unread=unread,
        dry_run=dry_run,
    )


def _join_changes(plans: Sequence[ChangedTopic]) -> ChangedTopic:
    """Sum what a change would hide on each shard."""
    unread: Counter[str] = Counter()
    for plan in plans:
        unread.update({each.group: each.messages for each in plan.unread})
    return plans[0].model_copy(
        update={
            "hidden_queues": sum(each.hidden_queues or 0 for each in plans),
            "hidden_messages": sum(each.hidden_messages or 0 for each in plans),
            "unread": tuple(
                UnreadMessages(group=group, messages=messages)
                for group, messages in sorted(unread.items())
            ),
        }
    )


def _require_read(plan: ChangedTopic) -> None:
    """Raise Problem (409) where groups have not consumed queues that would go."""
    if not plan.unread:
        return
    by = ", ".join(
        f"{each.group or 'any group'} ({each.messages})" for each in plan.unread[:NAMED_MAX]
    )
    more = f" and {len(plan.unread) - NAMED_MAX} more" if len(plan.unread) > NAMED_MAX else ""
    raise Problem(
        problems.QUEUES_UNREAD,
        f"{plan.hidden_messages} messages in {plan.hidden_queues} queues of {plan.topic} could be "
        f"received no more; not consumed by {by}{more}",
    )


def _spec_of(made: Topic) -> TopicSpec:
    """Return the request that makes another shard's topic equal to this one.

    A broker's topic may have values that no request may have; the other shard then rejects it.
    """
    fields = made.model_dump(exclude={"topic", "queues", "attributes", "shards", *_OF_CHANGE})
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
