"""A shard that is new gets the topics, groups and subscriptions that the others have.

Whatever changes them later tells every shard, so this is done once, as long as it has no topic of
its own: one that was deleted while a shard was away would come back otherwise. And not before all
know of this one: it would not be told what one that does not changes behind the copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from mqstore.service import logs
from mqstore.service.auth import OwnToken
from mqstore.service.shards import ShardReplies, Shards
from mqstore.storage import MessageStore, topic_names
from mqstore.storage.admin import GroupConfig, TopicChange
from mqstore.storage.errors import StorageError

log = logs.get(__name__)

RETRY_S: Final = 1.0


class _Topic(msgspec.Struct, rename="camel"):
    topic: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str
    attributes: dict[str, str]

    @property
    def change(self) -> TopicChange:
        return TopicChange(
            self.read_queues,
            self.write_queues,
            self.perm,
            self.order,
            self.filter_type,
            self.attributes or None,
        )


class _Topics(msgspec.Struct):
    topics: list[_Topic]


class _Group(msgspec.Struct):
    group: str
    configured: bool
    config: dict[str, Any]


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _Subscription(msgspec.Struct):
    topic: str
    expression: str


class _Subscriptions(msgspec.Struct):
    subscriptions: list[_Subscription]


_NO_SUBSCRIPTIONS: Final = b'{"subscriptions":[]}'


@dataclass(slots=True)
class _There:
    """What another shard has."""

    shard: int
    topics: list[_Topic]
    groups: list[tuple[_Group, list[_Subscription]]] = field(default_factory=list)


class Newcomer:
    """``run`` is a task of the event loop, and ends by itself."""

    def __init__(self, shards: Shards, store: MessageStore, token: OwnToken) -> None:
        self._shards = shards
        self._store = store
        self._token = token
        self.reason: str | None = None
        """Why this shard is not ready, until it was tried once."""

    async def run(self, on_topics: Callable[[], None]) -> None:
        """``on_topics`` is told when there are new ones."""
        if self._shards.members.alone or not self._is_new():
            return
        self.reason = "topics and groups of the other shards are copied first"
        await self._shards.joining.joined.wait()
        while True:
            if await self._is_copied():
                on_topics()
                return
            await asyncio.sleep(RETRY_S)

    async def _is_copied(self) -> bool:
        try:
            if self._shards.members.alone:
                return True
            if (there := await self._read()) is not None:
                await self._put(there)
                return True
        except (StorageError, OSError, msgspec.MsgspecError) as error:
            log.warning("another shard's topics cannot be copied", error=str(error))
        finally:
            self.reason = None
        return False

    def _is_new(self) -> bool:
        return not any(self._is_a_clients(each.name) for each in self._store.topics())

    def _is_a_clients(self, topic: str) -> bool:
        try:
            topic_names.check_new_topic(topic, self._store.format)
        except StorageError:
            return False
        return True

    async def _read(self) -> _There | None:
        """All of the first shard that tells its topics; None where one does not tell all."""
        told = await self._told("/v1/topics")
        if not told.answers:
            return None
        shard = min(told.answers)
        there = _There(shard, msgspec.json.decode(told.answers[shard], type=_Topics).topics)
        told = await self._told("/v1/groups")
        if shard in told.missing:
            return None
        for group in msgspec.json.decode(told.answers[shard], type=_Groups).groups:
            if topic_names.is_system_group(group.group):
                continue
            told = await self._told(f"/v1/groups/{quote(group.group, safe='')}/subscriptions")
            if shard in told.missing:
                return None
            found = told.answers.get(shard, _NO_SUBSCRIPTIONS)  # or it has been deleted meanwhile
            subscriptions = msgspec.json.decode(found, type=_Subscriptions).subscriptions
            there.groups.append((group, subscriptions))
        return there

    async def _put(self, there: _There) -> None:
        """The topics after the groups: they say that it was done. Subscriptions need them."""
        groups, store = there.groups, self._store
        for group, _ in groups:
            if group.configured:
                change = partial(_configured, config=group.config)
                await asyncio.to_thread(store.groups.put, group.group, change)
        for topic in there.topics:
            if self._is_a_clients(topic.topic):
                await asyncio.to_thread(store.put_topic, topic.topic, topic.change)
        for group, subscriptions in groups:
            for each in subscriptions:
                put = store.subscriptions.put
                await asyncio.to_thread(put, group.group, each.topic, each.expression)
        counts = {"topics": len(there.topics), "groups": len(groups)}
        log.info("copied from another shard", shard=there.shard, **counts)

    async def _told(self, target: str) -> ShardReplies:
        return await self._shards.fetch_from_others(target, self._token())


def _configured(group: GroupConfig, config: Mapping[str, Any]) -> GroupConfig:
    """What is not known here is of a newer version, and left out."""
    known = {each.name for each in fields(group)}
    given = {_snake(name): value for name, value in config.items()}
    return replace(group, **{name: given[name] for name in known & given.keys()})


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
