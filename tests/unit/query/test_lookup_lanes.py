"""The lanes of look-ups by id and by time have the replies of the slow path, or none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.query.message_routes import MessageRoutes
from mqstore.query.opened_store import OpenedStore
from mqstore.query.queue_routes import QueueRoutes
from mqstore.query.service import QueryService
from mqstore.service.http import HotRequest
from mqstore.service.problems import Problem
from mqstore.service.settings import load
from mqstore.storage.codec import properties
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata.clock_steps import ClockStep
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.system.threads import production_seams
from mqstore.wire.times import EARLIEST_MS
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

COUNT = 40
START = b"HTTP/1.1 200 OK\r\n"
ENDING = b"x-request-id: 1\r\n\r\n"
BODIES = (b"text \xc3\xa9\n", b"\xff\x00", b"", b'{"a":1}')


@dataclass
class Query:
    """A query service over a store that a writer has open, not served."""

    service: QueryService
    store: MessageStore
    messages: MessageRoutes
    queues: QueueRoutes

    def _request(self, path: str, query: str, params: dict[str, str]) -> HotRequest:
        scope = {
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [],
            "client": ("127.0.0.1", 1),
        }
        return HotRequest(scope, _receive, params, self.service.front.limits)

    def by_id(self, message_id: str, query: str = "") -> bytes | None:
        """The reply of the lane to an id."""
        request = self._request(f"/v1/messages/{message_id}", query, {"id": message_id})
        lane = self.messages._message_lane(request)
        return None if lane is None else lane(message_id.encode(), START, ENDING)

    def by_time(self, at_ms: int, topic: str = "T", more: str = "") -> bytes | None:
        """The reply of the lane to a time."""
        path = f"/v1/topics/{topic}/queues/0/offset"
        request = self._request(path, f"timestamp={at_ms}{more}", {"topic": topic, "queue": "0"})
        lane = self.queues._time_lane(request)
        return None if lane is None else lane(b"%d" % at_ms, START, ENDING)

    async def general(self, target: str) -> httpx.Response:
        """The reply of the slow path."""
        transport = httpx.ASGITransport(self.service.front)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(target)

    async def require_same_message(self, message_id: str, query: str = "") -> None:
        """Require that the lane and the slow path reply alike to an id."""
        general = await self.general(f"/v1/messages/{message_id}?{query}")
        require_same(self.by_id(message_id, query), general)

    async def require_same_offset(self, at_ms: int) -> None:
        """Require that the lane and the slow path reply alike to a time."""
        general = await self.general(f"/v1/topics/T/queues/0/offset?timestamp={at_ms}")
        require_same(self.by_time(at_ms), general)

    @property
    def ids(self) -> list[str]:
        """The ids of all messages."""
        found = self.store.lookups.records("T", 0, 0, 1_000).records
        return [each.offset_message_id for each in found]

    @property
    def times(self) -> list[int]:
        """The store times of all messages."""
        found = self.store.lookups.records("T", 0, 0, 1_000).records
        return [each.store_timestamp_ms for each in found]


async def _receive() -> Any:
    raise AssertionError


def require_same(reply: bytes | None, general: httpx.Response) -> None:
    """Require equal bodies, and equal header fields besides the request's id."""
    assert reply is not None
    assert general.status_code == 200
    head, _, body = reply.removeprefix(START).partition(b"\r\n\r\n")
    assert body == general.content
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    assert fields.pop("x-request-id") == "1"
    expected = dict(general.headers)
    del expected["x-request-id"]
    assert fields == expected


def put(store: MessageStore, number: int, **changed: Any) -> None:
    given = {"KEYS": f"k{number} j", "UNIQ_KEY": f"U{number:031d}"}
    if number % 2:
        given["TAGS"] = "a"
    encoded = properties.encode(given, trailing_separator=False)
    body = BODIES[number % len(BODIES)] * (number + 1)
    made = message(store, number).replace(properties=encoded, body=body, **changed)
    put_message(store, made, Durability.SYNC if number % 3 else Durability.ASYNC)


def list_shards(path: Path, own: str, owner: int) -> Path:
    """Write a list of two shards, of which ``owner`` has the host ``own``."""
    entries = [
        {
            "shard": shard,
            "storeHost": own if shard == owner else "10.9.9.9:10911",
            "writerUrl": f"http://shard-{shard}:8081",
            "queryUrl": f"http://shard-{shard}:8082",
        }
        for shard in (0, 1)
    ]
    path.write_text(json.dumps({"shards": entries}))
    return path


def run(root: Path, scenario: Callable[[Query], Awaitable[None]], owner: int | None = None) -> None:
    """Run a scenario; with an ``owner`` of the store's host there are two shards."""

    async def whole() -> None:
        own, path = f"{store.host.address_text}:{store.host.port}", root.parent / "shards.json"
        shards = None if owner is None else list_shards(path, own, owner)
        service = QueryService(load(store=root, shards_file=shards))
        routes = MessageRoutes(service), QueueRoutes(service)
        for each in routes:
            each.add(service.api)
        service._store = OpenedStore.open(root, production_seams(), lambda _: None)
        try:
            await scenario(Query(service, store, *routes))
        finally:
            service._store.reader.close()

    with open_store(root) as store:
        for number in range(COUNT):
            put(store, number)
        asyncio.run(whole())


def test_a_message_is_shown_alike_in_all_forms(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        ids = query.ids
        assert query.by_id(ids[0]) is None, "its queue was not opened before"
        await query.general(f"/v1/messages/{ids[0]}")
        for message_id in [*ids, ids[3].lower()]:
            for form in ("", "body=auto", "body=none", "body=json", "body=base64"):
                await query.require_same_message(message_id, form)

    run(tmp_path / "store", scenario)


def test_a_message_that_has_just_arrived_is_shown_alike(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        await query.general(f"/v1/messages/{query.ids[0]}")
        for number in range(COUNT, COUNT + 8):
            put(query.store, number)
            await query.require_same_message(query.ids[-1])

    run(tmp_path / "store", scenario)


def test_only_their_own_paths_have_lanes(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        hot_route = query.service.front.hot_route
        for path in (f"/v1/messages/{query.ids[0]}", "/v1/topics/T/queues/0/offset"):
            found = hot_route("GET", path)
            assert found is not None
            assert found[0].handler is None
            assert hot_route("GET", f"{path}/{query.ids[0]}") is None
        assert hot_route("GET", f"/v1/messages/a/{query.ids[0]}") is None

    run(tmp_path / "store", scenario)


@pytest.mark.parametrize("form", ["bodyMax=3", "inflate=true", "topic=T", "x=1"])
def test_other_forms_have_no_lane(tmp_path: Path, form: str) -> None:
    async def scenario(query: Query) -> None:
        await query.general(f"/v1/messages/{query.ids[0]}")
        assert query.by_id(query.ids[0]) is not None
        assert query.by_id(query.ids[0], form) is None

    run(tmp_path / "store", scenario)


def test_ids_without_a_message_are_left_to_the_general_way(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        known = query.ids[1]
        await query.general(f"/v1/messages/{known}")
        host, offset = known[:16], int(known[16:], 16)
        for other in (
            f"{host}{offset + 1:016X}",
            f"{host}{1 << 40:016X}",
            f"{host}{(1 << 64) - 1:016X}",
            f"{int(host, 16) ^ 1:016X}{offset:016X}",
            f"{host}{host[:24]}{offset:016X}",
            "x" * 32,
        ):
            assert query.by_id(other) is None
            assert (await query.general(f"/v1/messages/{other}")).status_code in (400, 404)

    run(tmp_path / "store", scenario)


def test_compressed_messages_are_shown_alike_and_those_of_another_queue_take_the_general_way(
    tmp_path: Path,
) -> None:
    async def scenario(query: Query) -> None:
        put(query.store, COUNT, sys_flag=1)
        compressed = query.ids[-1]
        put_message(query.store, message(query.store, 0, topic="Other"), Durability.SYNC)
        other = query.store.lookups.records("Other", 0, 0, 1).records[0].offset_message_id
        await query.general(f"/v1/messages/{query.ids[0]}")
        await query.require_same_message(compressed)
        assert query.by_id(other) is None
        await query.general(f"/v1/messages/{other}")
        await query.require_same_message(other)

    run(tmp_path / "store", scenario)


@pytest.mark.parametrize("at", [12, 40, 100], ids=["queue", "time", "body"])
def test_damage_is_reported_by_the_general_way(tmp_path: Path, at: int) -> None:
    async def scenario(query: Query) -> None:
        ids = query.ids
        assert query.service.reader.queues.get("T", 0) is not None
        offset = int(ids[20][16:], 16)
        path = StorePaths(tmp_path / "store").commit_log / segment_name(0)
        with path.open("r+b") as file:
            file.seek(offset + at)
            (byte,) = file.read(1)
            file.seek(offset + at)
            file.write(bytes([byte ^ 1]))
        for number, each in enumerate(ids):
            reply = query.by_id(each)
            if number == 20:
                assert reply is None
            if reply is not None:
                require_same(reply, await query.general(f"/v1/messages/{each}"))
        general = await query.general(f"/v1/messages/{ids[20]}")
        assert general.json()["type"].startswith("urn:mqstore:problem:")

    run(tmp_path / "store", scenario)


def test_the_offset_of_a_time_is_found_alike(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        times = query.times
        assert query.by_time(times[0]) is None, "its queue was not read before"
        await query.general(f"/v1/topics/T/queues/0/offset?timestamp={times[0]}")
        for at_ms in sorted({*times, *(each + 1 for each in times), 0, EARLIEST_MS, 10**17}):
            await query.require_same_offset(at_ms)
        put(query.store, COUNT)
        await query.require_same_offset(query.times[-1])

    run(tmp_path / "store", scenario)


def test_other_times_and_queues_are_left_to_the_general_way(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        at_ms = query.times[3]
        await query.general(f"/v1/topics/T/queues/0/offset?timestamp={at_ms}")
        assert query.by_time(at_ms) is not None
        assert query.by_time(at_ms, more="&shard=0") is not None
        for more in ("&x=1", "&offset=1"):
            assert query.by_time(at_ms, more=more) is None
        assert query.by_time(at_ms, topic="Other") is None
        assert query.by_time(EARLIEST_MS - 1) is None

    run(tmp_path / "store", scenario)


def test_a_log_whose_times_go_back_is_searched_by_the_general_way(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        store, at_ms = query.store, query.times[3]
        await query.general(f"/v1/topics/T/queues/0/offset?timestamp={at_ms}")
        assert query.by_time(at_ms) is not None
        end = store.state.max_offset
        step = ClockStep(offset=end, step_ms=-90_000, clock_ms=1, newest_ms=1, is_measured=True)
        store.clock.steps.change("boot", 0, step, bounds=(0, end))
        assert query.by_time(at_ms) is not None, "no message was stored after the step"
        put(store, COUNT)
        assert query.by_time(at_ms) is None

    run(tmp_path / "store", scenario)


@pytest.mark.parametrize("owner", [0, 1])
def test_requests_for_another_shard_are_left_to_the_general_way(tmp_path: Path, owner: int) -> None:
    """``owner`` is the shard whose host is in the ids."""

    async def scenario(query: Query) -> None:
        message_id, at_ms = query.ids[0], query.times[0]
        await query.general(f"/v1/messages/{message_id}?shard=0")
        await query.general(f"/v1/topics/T/queues/0/offset?shard=0&timestamp={at_ms}")
        assert (query.by_id(message_id) is not None) == (owner == 0)
        assert query.by_time(at_ms, more="&shard=0") is not None
        with pytest.raises(Problem, match="name it"):
            query.by_time(at_ms)
        assert query.by_time(at_ms, more="&shard=1") is None

    run(tmp_path / "store", scenario, owner)
