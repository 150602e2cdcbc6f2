"""Which shards a request under unique keys visits, also while its keys move to another shard."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from mqstore.service.forwarding import ForwardedRequest
from mqstore.service.http import Reply
from mqstore.service.key_shards import shard_of
from mqstore.service.problems import SHARD_UNREACHABLE, STORE_NOT_READY, WRONG_SHARD, Problem
from mqstore.service.settings import load
from mqstore.service.shards import ShardHealth, Shards
from mqstore.storage import MessageStore
from mqstore.storage.admin import FormerOwners, KeyOwners
from mqstore.writer.key_ownership import MOVING_WINDOWS, KeyOwnership
from mqstore.writer.key_routing import KeyRouting, Parts, divide_json, join
from tests.services.shard_processes import entry_at

WINDOW_MS = 1_000
CHANGED_AT_MS = 50_000
PATH = "/v1/topics/t/messages"
STORED = Reply(b'{"messages":[{"shard":0}]}', 201)
MISDIRECTED = Reply(b"{}", 421)
Others = dict[int, Reply | Problem]


def running(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def knows(is_known: bool, *_: list[int]) -> bool:
    return is_known


class _File:
    current: KeyOwners


class _Store:
    def __init__(self) -> None:
        self.key_owners = _File()


class Cluster:
    """Shard ``own`` of three; ``others`` are the replies of the other two."""

    def __init__(self, path: Path, own: int, before: list[int]) -> None:
        path.write_text(json.dumps({"shards": [entry_at(each, "http://h") for each in range(3)]}))
        self.shards = Shards(load(shards_file=path, shard=own), lambda entry: entry.writer_url)
        self.now_s = CHANGED_AT_MS / 1000
        store = _Store()
        self.file = store.key_owners
        ownership = KeyOwnership(self.shards, lambda: True, lambda: self.now_s)
        ownership.serve(cast(MessageStore, store))
        former = tuple(
            FormerOwners(shards=(*each,), ended_ms=CHANGED_AT_MS) for each in [before] if each
        )
        self.file.current = KeyOwners(version=1, shards=(0, 1, 2), former=former)
        self.routing = KeyRouting(self.shards, ownership)
        self.others: Others = {}
        self.visited: list[int] = []
        self.shards.reply = self._reply  # type: ignore[method-assign]

    async def _reply(self, entry: Any, forwarded: ForwardedRequest) -> Reply:
        self.visited.append(entry.shard)
        found = self.others[entry.shard]
        if isinstance(found, Problem):
            raise found
        return found

    async def produce(self, key: str, *, is_known: bool = False) -> Reply:
        ((visits, _),) = self.routing.parts([key], WINDOW_MS).items()
        forwarded = ForwardedRequest("POST", PATH, {}, b"{}")
        return await self.routing.visit(visits, forwarded, partial(knows, is_known), self._store)

    async def _store(self) -> Reply:
        self.visited.append(self.shards.own)
        return STORED


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[..., Cluster]:
    return lambda own=0, before=(0, 1): Cluster(tmp_path / "shards.json", own, list(before))


MOVED = next(
    key
    for key in (f"k{number}" for number in range(100))
    if (shard_of(key, [0, 1]), shard_of(key, [0, 1, 2])) == (0, 2)
)
"""Its shard was 0 and becomes 2."""
STAYED = next(
    key for key in (f"k{number}" for number in range(100)) if shard_of(key, [0, 1, 2]) == 1
)


@running
async def test_the_former_shard_is_visited_first(cluster: Callable[..., Cluster]) -> None:
    relay = cluster(own=1)
    relay.others = {0: MISDIRECTED, 2: STORED}
    assert await relay.produce(MOVED) is STORED
    assert relay.visited == [0, 2]
    relay.visited.clear()
    relay.others = {0: STORED}  # knows it
    assert await relay.produce(MOVED) is STORED
    assert relay.visited == [0]


@running
async def test_the_former_shard_keeps_what_it_knows(cluster: Callable[..., Cluster]) -> None:
    former = cluster(own=0)
    former.others = {2: STORED}
    await former.produce(MOVED, is_known=True)
    await former.produce(MOVED, is_known=False)
    assert former.visited == [0, 2]


@running
async def test_the_new_shard_stores_what_the_former_does_not_know(
    cluster: Callable[..., Cluster],
) -> None:
    new = cluster(own=2)
    new.others = {0: MISDIRECTED}
    assert await new.produce(MOVED) is STORED
    assert new.visited == [0, 2]


@running
async def test_while_the_former_shard_does_not_reply_nothing_is_stored(
    cluster: Callable[..., Cluster],
) -> None:
    new = cluster(own=2)
    new.others = {0: Problem(SHARD_UNREACHABLE, "down")}
    with pytest.raises(Problem) as refused:
        await new.produce(MOVED)
    assert (refused.value.kind, refused.value.extra["writable"]["shard"]) == (SHARD_UNREACHABLE, 2)
    assert new.visited == [0]


@running
async def test_after_two_windows_only_the_new_shard_is_visited(
    cluster: Callable[..., Cluster],
) -> None:
    relay = cluster(own=1)
    relay.others = {2: STORED}
    relay.now_s += MOVING_WINDOWS * WINDOW_MS / 1000
    assert await relay.produce(MOVED) is STORED
    assert relay.visited == [2]


@running
async def test_a_forwarded_request_is_stored_where_its_keys_belong(
    cluster: Callable[..., Cluster],
) -> None:
    for own, is_known, is_stored in (
        *((0, True, True), (0, False, False), (1, True, False), (2, False, True)),
    ):
        routing = cluster(own=own).routing
        parts = routing.parts([MOVED], WINDOW_MS)
        if is_stored:
            await routing.require_own(parts, partial(knows, is_known))
            continue
        with pytest.raises(Problem) as refused:
            await routing.require_own(parts, partial(knows, is_known))
        assert (refused.value.kind, refused.value.extra["shard"]) == (WRONG_SHARD, 2)


def test_a_request_is_divided_by_where_its_keys_belong(cluster: Callable[..., Cluster]) -> None:
    routing = cluster(own=1).routing
    assert routing.parts([None, STAYED, MOVED, None], WINDOW_MS) == {(1,): [0, 1, 3], (0, 2): [2]}
    assert routing.parts([None], WINDOW_MS) == {}
    assert routing.are_own({}) and routing.are_own(routing.parts([STAYED], WINDOW_MS))
    assert not routing.are_own(routing.parts([STAYED, MOVED], WINDOW_MS))


GENERATED = "006D714300000009" + "0" * 16
"""A generated key of shard 9, which is not in the list."""


@running
async def test_a_key_that_names_a_removed_shard_belongs_to_another_one(
    cluster: Callable[..., Cluster],
) -> None:
    first = cluster(before=())
    ((visits, _),) = first.routing.parts([GENERATED], WINDOW_MS).items()
    assert visits == (shard_of(GENERATED, [0, 1, 2], lambda _: False),)
    first.file.current = KeyOwners(version=2, shards=(0, 1), released={2: 0})
    released = "006D714300000002" + "0" * 16
    ((visits, _),) = first.routing.parts([released], WINDOW_MS).items()
    assert visits == (shard_of(released, [0, 1], lambda _: False),)


@running
async def test_a_key_of_an_unknown_shard_waits_while_the_lists_may_differ(
    cluster: Callable[..., Cluster],
) -> None:
    other = cluster(own=1, before=())
    for health in (None, ShardHealth(shards=frozenset({0, 1, 2, 9}))):
        other.shards.first_health = health
        with pytest.raises(Problem) as refused:
            other.routing.parts([GENERATED], WINDOW_MS)
        assert refused.value.kind is SHARD_UNREACHABLE and refused.value.extra["sent"] is False
    other.shards.first_health = ShardHealth(shards=frozenset({0, 1, 2}))
    assert other.routing.parts([GENERATED], WINDOW_MS)


def choices(key: str) -> tuple[int, int]:
    return shard_of(key, [0, 1, 7]), shard_of(key, [0, 1])


@running
async def test_a_removed_former_owner_is_left_out(cluster: Callable[..., Cluster]) -> None:
    relay = cluster(own=0)
    former = (FormerOwners(shards=(0, 1, 7), ended_ms=CHANGED_AT_MS),)
    relay.file.current = KeyOwners(version=2, shards=(0, 1), former=former)
    key = next(key for key in map(str, range(100)) if choices(key) == (7, 1))
    relay.others = {1: STORED}
    assert await relay.produce(key) is STORED
    assert relay.visited == [1]


@running
async def test_shards_that_do_not_agree_yet_refuse_for_a_moment(
    cluster: Callable[..., Cluster],
) -> None:
    relay = cluster(own=1, before=())
    relay.others = {2: MISDIRECTED}
    with pytest.raises(Problem) as refused:
        await relay.produce(MOVED)
    assert (refused.value.kind, refused.value.extra["sent"]) == (SHARD_UNREACHABLE, False)


def test_keys_wait_for_the_first_list_of_owners(cluster: Callable[..., Cluster]) -> None:
    found = cluster(own=1)
    found.file.current = None  # type: ignore[assignment]
    assert found.routing.parts([None], WINDOW_MS) == {}
    with pytest.raises(Problem) as refused:
        found.routing.parts(["k"], WINDOW_MS)
    assert refused.value.kind is STORE_NOT_READY


def test_a_part_has_the_request_with_some_messages_under_their_keys() -> None:
    body = b'{"durability":"sync","messages":[{"body":"a"},{"body":"b","flag":1},{"body":"c"}]}'
    assert json.loads(divide_json(body, [1, 2], [None, "k~1", None])) == {
        "durability": "sync",
        "messages": [{"body": "b", "flag": 1, "uniqKey": "k~1"}, {"body": "c"}],
    }


def test_replies_are_joined_in_the_order_of_the_request() -> None:
    parts: Parts = {(0,): [0, 2], (1,): [1]}
    first, second = Reply(b'{"messages":[1,3]}', 201), Reply(b'{"messages":[2]}', 201)
    assert join(parts, [first, second]) == Reply(b'{"messages":[1,2,3]}', 201)
    assert join(parts, [first, MISDIRECTED]) is MISDIRECTED
