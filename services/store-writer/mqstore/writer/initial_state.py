"""Initial state of a new shard: topics, groups and subscriptions copied from another shard.

The copy is made once, while the shard has no topic of its own, because later changes are sent to
every shard. A later copy would restore a topic that was deleted while this shard was unavailable.
The copy begins after all shards list this one. Before, a shard that does not list it would not send
it changes made behind the copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, TypeVar
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
    next: str | None = None


class _Group(msgspec.Struct):
    group: str
    configured: bool
    config: dict[str, Any]


class _Groups(msgspec.Struct):
    groups: list[_Group]
    next: str | None = None


class _Subscription(msgspec.Struct):
    topic: str
    expression: str


class _Subscriptions(msgspec.Struct):
    subscriptions: list[_Subscription]
    next: str | None = None


_Page = TypeVar("_Page", _Topics, _Groups, _Subscriptions)


class _Missing(Exception):
    """The shard whose state is copied does not reply."""


@dataclass(slots=True)
class _ShardState:
    """Topics, groups and subscriptions of another shard."""

    shard: int
    topics: list[_Topic]
    groups: list[tuple[_Group, list[_Subscription]]] = field(default_factory=list)


class InitialState:
    """Copies the state of another shard to this one, if this one is new.

    ``run`` is a task of the event loop, which ends after the copy.
    """

    def __init__(self, shards: Shards, store: MessageStore, token: OwnToken) -> None:
        self._shards = shards
        self._store = store
        self._token = token
        self.reason: str | None = None
        """Why this shard is not ready; None after the first attempt to copy."""

    async def run(self, on_topics: Callable[[], None]) -> None:
        """Copy the state, and retry until that succeeds. Then call ``on_topics``."""
        if self._shards.members.alone or not self._is_new():
            return
        self.reason = "topics and groups are being copied from another shard"
        await self._shards.joining.joined.wait()
        while True:
            if await self._copy():
                on_topics()
                return
            await asyncio.sleep(RETRY_S)

    async def _copy(self) -> bool:
        try:
            if self._shards.members.alone:
                return True
            if (state := await self._read()) is not None:
                await self._apply(state)
                return True
        except (StorageError, OSError, msgspec.MsgspecError) as error:
            log.warning("another shard's topics cannot be copied", error=str(error))
        finally:
            self.reason = None
        return False

    def _is_new(self) -> bool:
        return not any(self._is_client_topic(each.name) for each in self._store.topics())

    def _is_client_topic(self, topic: str) -> bool:
        try:
            topic_names.check_new_topic(topic, self._store.format)
        except StorageError:
            return False
        return True

    async def _read(self) -> _ShardState | None:
        """Return the state of the first shard that replies; None if a request to it fails."""
        replies = await self._fetch("/v1/topics")
        if not replies.answers:
            return None
        shard = min(replies.answers)
        state = _ShardState(shard, [])
        try:
            async for page in self._pages(shard, "/v1/topics", _Topics):
                state.topics += page.topics
            async for found in self._pages(shard, "/v1/groups", _Groups):
                for group in found.groups:
                    if not topic_names.is_system_group(group.group):
                        state.groups.append((group, await self._subscriptions(shard, group.group)))
        except _Missing:
            return None
        return state

    async def _subscriptions(self, shard: int, group: str) -> list[_Subscription]:
        """The subscriptions of a group; a group that was deleted meanwhile has none."""
        path = f"/v1/groups/{quote(group, safe='')}/subscriptions"
        pages = self._pages(shard, path, _Subscriptions)
        return [each async for page in pages for each in page.subscriptions]

    async def _pages(self, shard: int, path: str, kind: type[_Page]) -> AsyncIterator[_Page]:
        """Yield the pages of a list of a shard; none where it is unknown. Raises _Missing."""
        cursor: str | None = None
        while True:
            target = path if cursor is None else f"{path}?cursor={quote(cursor, safe='')}"
            replies = await self._fetch(target)
            if shard in replies.missing:
                raise _Missing
            if shard not in replies.answers:
                return
            page = msgspec.json.decode(replies.answers[shard], type=kind)
            yield page
            cursor = page.next
            if cursor is None:
                return

    async def _apply(self, state: _ShardState) -> None:
        """Apply the state: groups, then topics, whose presence marks the copy as done, then
        subscriptions, which need the topics."""
        groups, store = state.groups, self._store
        for group, _ in groups:
            if group.configured:
                change = partial(_configured, config=group.config)
                await asyncio.to_thread(store.groups.put, group.group, change)
        for topic in state.topics:
            if self._is_client_topic(topic.topic):
                await asyncio.to_thread(store.put_topic, topic.topic, topic.change)
        for group, subscriptions in groups:
            for each in subscriptions:
                put = store.subscriptions.put
                await asyncio.to_thread(put, group.group, each.topic, each.expression)
        counts = {"topics": len(state.topics), "groups": len(groups)}
        log.info("copied from another shard", shard=state.shard, **counts)

    async def _fetch(self, target: str) -> ShardReplies:
        return await self._shards.fetch_from_others(target, self._token())


def _configured(group: GroupConfig, config: Mapping[str, Any]) -> GroupConfig:
    """Return the group with another shard's settings, without those of a newer version."""
    known = {each.name for each in fields(group)}
    given = {_snake(name): value for name, value in config.items()}
    return replace(group, **{name: given[name] for name in known & given.keys()})


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
