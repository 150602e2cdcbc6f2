"""The lane of a pull has the replies of the slow path, and counts what it sends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqstore.query.opened_store import OpenedStore
from mqstore.query.pull_route import PullRoute
from mqstore.query.service import QueryService
from mqstore.query.writer_state import STALL_S
from mqstore.service.http import HotRequest, Lane, Reply
from mqstore.service.problems import Problem
from mqstore.service.settings import load
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

COUNT = 60
START = b"HTTP/1.1 200 OK\r\n"
RECORDS = "application/x-rocketmq-records"
JSON = "application/json"


@dataclass
class Query:
    """A query service over a store of COUNT messages of one queue, not served."""

    service: QueryService
    route: PullRoute
    store: MessageStore
    """The store, as its writer has it."""

    def request(self, query: str, accept: str = RECORDS, topic: str = "T") -> HotRequest:
        """A pull of a client."""
        scope = {
            "method": "GET",
            "path": f"/v1/topics/{topic}/queues/0/messages",
            "query_string": query.encode(),
            "headers": [(b"accept", accept.encode())],
            "client": ("127.0.0.1", 1),
        }
        params = {"topic": topic, "queue": "0"}
        return HotRequest(scope, _receive, params, self.service.front.limits)

    def lane(self, query: str, accept: str = RECORDS, topic: str = "T") -> Lane | None:
        """The lane that the request's head has."""
        return self.route._prepare(self.request(query, accept, topic)).lane

    async def general(self, query: str, accept: str = RECORDS) -> Reply:
        """The reply of the slow path."""
        request = self.request(query, accept)
        return await self.route._serve(request, self.route._parse(request))

    @property
    def sent(self) -> list[int]:
        """Messages and bytes that were counted."""
        return list(self.service.traffic.of("T", "g"))


async def _receive() -> Any:
    raise AssertionError


@contextmanager
def _store(root: Path) -> Iterator[MessageStore]:
    with open_store(root) as store:
        for number in range(COUNT):
            put_message(store, message(store, number), Durability.SYNC)
        yield store


def run(root: Path, scenario: Callable[[Query], Awaitable[None]], **settings: Any) -> None:
    async def whole(store: MessageStore) -> None:
        service = QueryService(load(store=root, **settings))
        route = PullRoute(service)
        route.add(service.api)
        service._store = OpenedStore.open(root, production_seams(), lambda _: None)
        try:
            await scenario(Query(service, route, store))
        finally:
            service._store.reader.close()

    with _store(root) as store:
        asyncio.run(whole(store))


def bytes_of(reply: Reply, ending: bytes) -> bytes:
    """The bytes of a reply, with ``ending`` in place of its request id."""
    fields = [b"%b: %b\r\n" % each for each in reply.head("")[:-1]]
    return START + b"".join(fields) + ending + reply.body


@pytest.mark.parametrize("accept", [RECORDS, JSON])
def test_the_lane_has_the_replies_of_the_general_way(tmp_path: Path, accept: str) -> None:
    async def scenario(query: Query) -> None:
        for form in (
            "max=1",
            "max=20",
            "group=g",
            "max=5&body=none",
            "max=9&body=json&bodyMax=3",
            "wait=0",
        ):
            lane = query.lane(f"{form}&offset=0", accept)
            assert lane is not None
            for offset in (0, 3, 21, COUNT - 3, COUNT):
                general = await query.general(f"{form}&offset={offset}", accept)
                ending = b"x-request-id: 1\r\n\r\n"
                assert lane(b"%d" % offset, START, ending) == bytes_of(general, ending), (
                    form,
                    offset,
                )
            assert lane(b"%d" % (COUNT + 1), START, b"") is None

    run(tmp_path / "store", scenario)


def test_messages_of_a_lane_are_counted_once(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        lane = query.lane("max=4&group=g&offset=0")
        assert lane is not None
        assert lane(b"0", START, b"") is None, "the queue was not read before"
        assert query.sent == [0, 0]
        reply = await query.general("max=4&group=g&offset=0")
        assert query.sent == [4, len(reply.body)]
        assert lane(b"0", START, b"") is not None
        assert query.sent == [8, 2 * len(reply.body)]

    run(tmp_path / "store", scenario)


def test_a_pull_that_waits_takes_its_lane_where_there_are_messages(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        await query.general("offset=0")
        lane = query.lane("wait=5&offset=0")
        assert lane is not None
        assert lane(b"1", START, b"") is not None
        assert lane(b"%d" % COUNT, START, b"") is None

    run(tmp_path / "store", scenario)


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("tags=a", RECORDS),
        ("sql=a IS NULL".replace(" ", "+"), RECORDS),
        ("max=257", RECORDS),
        ("inflate=true", JSON),
    ],
)
def test_what_is_not_plain_has_no_lane(tmp_path: Path, query: str, accept: str) -> None:
    async def scenario(served: Query) -> None:
        assert served.lane(f"{query}&offset=0", accept) is None

    run(tmp_path / "store", scenario)


def test_a_returned_topic_has_no_lane_where_subscriptions_filter_it(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        assert query.lane("offset=0", topic="%RETRY%g") is None
        assert query.lane("offset=0") is not None

    run(tmp_path / "store", scenario, filter_support_retry=True)


def test_a_lane_does_not_serve_a_store_that_was_replaced(tmp_path: Path) -> None:
    async def scenario(query: Query) -> None:
        await query.general("offset=0")
        lane = query.lane("offset=0")
        assert lane is not None
        assert lane(b"0", START, b"") is not None
        service, root = query.service, tmp_path / "store"
        opened = service._store
        (root / "commitlog").rename(root / "moved")
        assert opened is not None
        assert opened.why_replaced is not None
        with pytest.raises(Exception, match="replaced"):
            lane(b"0", START, b"")
        (root / "moved").rename(root / "commitlog")
        if service._opening is not None:
            service._opening.cancel()
        service._store = opened

    run(tmp_path / "store", scenario)


def test_polls_of_a_replica_end_when_its_writer_stands_still(tmp_path: Path) -> None:
    """Another replica leads then, and has the messages that they wait for."""

    async def scenario(query: Query) -> None:
        service, beat = query.service, query.store.state.beat
        query.store.offsets.commit("g", [Commit("T", 0, 0)])
        query.store.offsets.save()
        await query.general("offset=0")
        lane = query.lane("wait=30&offset=0")
        assert lane is not None
        beat(elected=True)
        service._observe_writer(0.0)
        poll = asyncio.ensure_future(query.general(f"wait=30&offset={COUNT}"))
        while not len(service.arrivals):  # noqa: ASYNC110 (a watch has no event)
            await asyncio.sleep(0)
        for second in range(int(STALL_S) + 1):
            service._observe_writer(float(second))
        with pytest.raises(Problem, match="has not responded"):
            await poll
        with pytest.raises(Problem, match="has not responded"):
            lane(b"0", START, b"")
        lags, _ = service.lag_metrics.current()
        assert [each.messages for each in lags] == [COUNT], "a scrape is no read of messages"
        beat(elected=True)
        service._observe_writer(STALL_S + 1)
        assert lane(b"0", START, b"") is not None
        assert (await query.general("offset=0")).body

    run(tmp_path / "store", scenario)
