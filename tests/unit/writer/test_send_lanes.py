"""A send lane stores and replies what the general way does, or leaves the request to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqstore.service.http import DeferredReply, HotRequest, Reply, await_reply
from mqstore.service.key_shards import shard_of_ordering_key
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings
from mqstore.storage import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import Host
from mqstore.storage.puts import StoredSend
from mqstore.writer.produce_route import ProduceRoute
from mqstore.writer.service import WriterService
from tests.long_runs import examples
from tests.unit.writer.json_requests import requests
from tests.unit.writer.test_key_routing import Cluster

TOPIC: Final = "orders"
"""A topic of one queue, so that messages without a queue have one place."""
SPREAD: Final = "spread"
QUEUES: Final = 3
ORDERING_KEYS: Final = ["order-1", "order-2", "a b", "k" * 255]
HEADERS: Final = [(b"content-type", b"application/json"), (b"host", b"localhost")]
BATCH_HEADERS: Final = [(b"content-type", b"application/x-rocketmq-batch")]
BATCH_PROPERTIES: Final = (
    *(b"", b"KEYS\x01a b", b"TAGS\x01t\x02", b"a\x01b\x02", b"WAIT\x01true\x02"),
    *("a\x01é".encode(), b"DELAY\x013", b"no separator", b"PGROUP\x01g"),
    *(b"__SHARDINGKEY\x01order-1", b"__SHARDINGKEY\x01a\x02TAGS\x01t", b"__SHARDINGKEY\x01"),
)
CONFIG: Final = StoreConfig(
    mapped_file_size_commit_log=4 << 20,
    message_delay_level="1h 1h 1h 1h 1h 1h 1h 1h 1h",  # none is delivered while a test runs
)
GENERATED_KEY: Final = re.compile("006D7173[0-9A-F]{24}")
OF_ONE_STORE: Final = frozenset({"offsetMsgId", "storeTimestamp"})


class Writer:
    """One store-writer of this process, and the replies of its produce route."""

    def __init__(self, runner: asyncio.Runner, root: Path) -> None:
        self._runner = runner
        self.service = runner.run(self._start(root))
        self.producer = ProduceRoute(self.service)
        self.lanes_used = 0

    async def _start(self, root: Path) -> WriterService:
        service = WriterService(Settings(store=root, store_config=CONFIG))
        service.address = "127.0.0.1:0"
        await service.start()
        await asyncio.to_thread(service.store.create_topic, TOPIC, queues=1)
        await asyncio.to_thread(service.store.create_topic, SPREAD, queues=QUEUES)
        assert service.store.dedup is not None
        await asyncio.to_thread(service.store.dedup.prepare)  # until then no lane is made
        return service

    def stop(self) -> None:
        self._runner.run(self.service.stop())

    def send(self, body: bytes, topic: str = TOPIC, query: bytes | None = None) -> tuple[int, Any]:
        """Status and JSON of the reply on the fast path, else of the general way.

        With a ``query`` the body is in RocketMQ's batch encoding.
        """
        return self._runner.run(self._send(body, topic, query))

    def send_generally(
        self, body: bytes, topic: str = TOPIC, query: bytes | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of the reply of the general way."""
        return self._runner.run(self._general(body, topic, query))

    async def _send(self, body: bytes, topic: str, query: bytes | None) -> tuple[int, Any]:
        params = {"topic": topic}
        try:
            found = self.producer._prepare(self._request(b"", topic, query)).begin(body, params)
        except (Problem, StorageError):
            found = None
        if found is None:
            return await self._general(body, topic, query)
        self.lanes_used += 1
        if isinstance(found, DeferredReply):
            try:
                found = await await_reply(found)
            except Problem as problem:
                return problem.kind.status, problem.detail
        return (201, json.loads(found)) if isinstance(found, bytes) else _decoded(found)

    async def _general(self, body: bytes, topic: str, query: bytes | None) -> tuple[int, Any]:
        try:
            return _decoded(await self.producer._handle(self._request(body, topic, query)))
        except Problem as problem:
            return problem.kind.status, problem.detail
        except StorageError as error:
            return 0, str(error)

    def _request(self, body: bytes, topic: str, query: bytes | None) -> HotRequest:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        headers = HEADERS if query is None else BATCH_HEADERS
        scope = {"method": "POST", "path": "/", "query_string": query or b"", "headers": headers}
        return HotRequest(scope, receive, {"topic": topic}, self.service.front.limits)

    def records(self, start: int) -> list[tuple[Any, ...]]:
        """Content of the records from a physical offset on, without times and generated keys."""
        found = []
        while start < self.service.store.log.max_offset:
            record = self.service.store.log.record_at(start)
            properties = dict(record.properties or {})
            if properties.get("UNIQ_KEY", "").startswith("006D7173"):
                del properties["UNIQ_KEY"]
            place = record.queue_id, record.queue_offset, record.size
            flags = record.flag, record.sys_flag
            found.append((record.body, properties, *place, *flags, record.born_host.address))
            start += record.size
        return found


def _decoded(reply: Reply) -> tuple[int, Any]:
    return reply.status, json.loads(reply.body)


def comparable(reply: tuple[int, Any]) -> tuple[int, Any]:
    """A reply without what differs between two stores."""
    status, content = reply
    if status != 201:
        return status, GENERATED_KEY.sub("KEY", content)
    return status, [
        {name: value for name, value in each.items() if name not in OF_ONE_STORE}
        | {"uniqKey": GENERATED_KEY.sub("KEY", each["uniqKey"])}
        for each in content["messages"]
    ]


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Writer, Writer]]:
    root = tmp_path_factory.mktemp("lanes")
    with asyncio.Runner() as runner:
        both = tuple(Writer(runner, root / name) for name in ("lanes", "general"))
        for writer in both:  # a queue's first message makes its file
            text = b'{"messages":[{"body":"first"}]}'
            assert writer.send_generally(text)[0] == 201
            for _ in range(QUEUES):
                assert writer.send_generally(text, SPREAD)[0] == 201
        yield both[0], both[1]
        for writer in both:
            writer.stop()


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(60),
)
@given(st.lists(requests(), min_size=1, max_size=4))
def test_records_and_replies_are_those_of_the_general_way(
    writers: tuple[Writer, Writer], texts: list[bytes]
) -> None:
    lanes, general = writers
    starts = [writer.service.store.log.max_offset for writer in writers]
    for text in texts:
        replies = [lanes.send(text), general.send_generally(text)]
        found = [comparable(each) for each in replies]
        assert found[0] == found[1]
    assert lanes.records(starts[0]) == general.records(starts[1])


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A query, and a body in RocketMQ's batch encoding, some of them damaged."""
    keys = st.sampled_from([b"", b"", b"UNIQ_KEY\x01%b\x02" % os.urandom(8).hex().encode()])
    keys |= st.sampled_from([b"UNIQ_KEY\x01A1\x02", b'UNIQ_KEY\x01a"b\x02'])
    items, ordering = [], draw(st.sampled_from([b"", b"", b"__SHARDINGKEY\x01order-2\x02"]))
    for _ in range(draw(st.integers(0, 5))):
        own = ordering + draw(keys) + draw(st.sampled_from(BATCH_PROPERTIES))
        body = draw(st.binary(max_size=9))
        size = 22 + len(body) + len(own)
        head = struct.pack(">iiiii", size, 0, 0, draw(st.integers(-9, 9)), len(body))
        items.append(head + body + struct.pack(">h", len(own)) + own)
    data = b"".join(items)[: draw(st.sampled_from([None, None, None, -1]))]
    query = draw(
        st.sampled_from([b"", b"queueId=0", b"queueId=1", b"durability=sync", b"durability=x"])
    )
    return query, data


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(100),
)
@given(st.lists(batches(), min_size=1, max_size=4))
def test_records_and_replies_to_batches_are_those_of_the_general_way(
    writers: tuple[Writer, Writer], requests: list[tuple[bytes, bytes]]
) -> None:
    lanes, general = writers
    starts = [writer.service.store.log.max_offset for writer in writers]
    for query, data in requests:
        replies = lanes.send(data, query=query), general.send_generally(data, query=query)
        found = [comparable(each) for each in replies]
        assert found[0] == found[1]
    assert lanes.records(starts[0]) == general.records(starts[1])


def make_room(writer: Writer, entries: int) -> None:
    """Put messages until the reserved part of the queue file has room for so many entries.

    The general way reserves more where a batch goes beyond it.
    """
    window, body = None, json.dumps({"messages": [{"body": "a"}]}).encode()
    while window is None or window.first_index + window.entries < window.next_index + entries:
        writer.send_generally(body)
        window = writer.service.store.queues.windows_by_place[TOPIC, 0]


def test_a_batch_is_stored_by_the_lane(
    writers: tuple[Writer, Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes, _ = writers
    first = {"body": "a", "uniqKey": os.urandom(8).hex()}
    lanes.send_generally(json.dumps({"messages": [first]}).encode())  # begins the table of keys
    make_room(lanes, 200)
    monkeypatch.setattr(lanes.producer, "_batch", None)  # of the general way
    keys = [os.urandom(8).hex() for _ in range(100)]
    texts = [b"UNIQ_KEY\x01%b\x02" % key.encode() for key in keys]
    data = b"".join(
        struct.pack(">iiiii", 25 + len(own), 0, 0, 0, 3)
        + b"abc"
        + struct.pack(">h", len(own))
        + own
        for own in texts
    )
    for query in (b"", b"durability=sync"):
        status, reply = lanes.send(data.replace(b"UNIQ", b"NAME") if query else data, query=query)
        assert status == 201
        assert [each["uniqKey"] for each in reply["messages"]] == ([""] * 100 if query else keys)


def test_a_plain_request_is_stored_by_the_lane(writers: tuple[Writer, Writer]) -> None:
    lanes, _ = writers
    used = lanes.lanes_used
    key = os.urandom(8).hex()
    body = json.dumps({"messages": [{"body": "a", "uniqKey": key}]}).encode()
    status, first = lanes.send(body)
    assert (status, lanes.lanes_used) == (201, used + 1)
    assert "repeat" not in first["messages"][0]
    status, second = lanes.send(body)
    assert (status, second["messages"][0].pop("repeat")) == (201, True)
    assert second == first


def queue_of_one(writer: Writer) -> int:
    """The queue of a message that names none."""
    found: int = writer.send(b'{"messages":[{"body":"a"}]}', SPREAD)[1]["messages"][0]["queueId"]
    return found


def test_messages_under_one_ordering_key_are_stored_by_the_lane(
    writers: tuple[Writer, Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes, general = writers
    single = [[{"body": key, "orderingKey": key, "tags": "t"}] for key in ORDERING_KEYS]
    several = [{"body": str(number), "orderingKey": "order-1"} for number in range(3)]
    texts = [json.dumps({"messages": each}).encode() for each in (*single, several)]
    own = b"TAGS\x01t\x02__SHARDINGKEY\x01order-2\x02"
    item = struct.pack(">iiiii", 23 + len(own), 0, 0, 0, 1) + b"b" + struct.pack(">h", len(own))
    requests = [*((text, None) for text in texts), (3 * (item + own), b"")]
    turn = queue_of_one(lanes)
    starts = [writer.service.store.log.max_offset for writer in writers]
    replies = [general.send_generally(body, SPREAD, query) for body, query in requests]
    monkeypatch.setattr(lanes.producer, "_batch", None)  # of the general way
    found = [lanes.send(body, SPREAD, query) for body, query in requests]
    assert [[each["queueId"] for each in reply["messages"]] for _, reply in found] == [
        [each["queueId"] for each in reply["messages"]] for _, reply in replies
    ]
    without_offset = [
        [(*record[:3], *record[4:]) for record in writer.records(start)]
        for writer, start in zip(writers, starts, strict=True)
    ]
    assert without_offset[0] == without_offset[1]
    assert queue_of_one(lanes) == (turn + 1) % QUEUES  # an ordering key takes no turn


def test_a_lane_leaves_messages_under_several_ordering_keys(
    writers: tuple[Writer, Writer],
) -> None:
    lanes, _ = writers
    lane, client = lanes.producer._lanes._lane(lanes.service.store.topic(SPREAD)), Host(b"1234", 1)
    assert lane is not None
    for messages in (
        [{"orderingKey": "a"}, {"orderingKey": "b"}],
        [{"orderingKey": "a"}, {}],
        [{}, {"orderingKey": "a"}],
        [{"orderingKey": "a", "queueId": 0}],
        [{"orderingKey": "k" * 256}],
    ):
        assert not lane.read(json.dumps({"messages": messages}).encode(), client), messages
    assert lane.read(b'{"messages":[{"orderingKey":"a"}]}', client)
    assert lane.ordering_key == "a"
    assert lane.read(b'{"messages":[{}]}', client)
    assert lane.ordering_key is None


def test_a_lane_leaves_messages_whose_ordering_key_is_of_another_shard(
    writers: tuple[Writer, Writer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes, _ = writers
    topic, cluster = lanes.service.store.topic(SPREAD), Cluster(tmp_path / "shards", 0, [0, 1, 2])
    monkeypatch.setattr(lanes.service, "shards", cluster.shards)
    monkeypatch.setattr(lanes.service, "key_routing", cluster.routing)
    stored = set()
    for key in map(str, range(20)):
        messages = [{"orderingKey": key, "body": "a"}] * 2
        body = json.dumps({"messages": messages}).encode()
        sent = [
            lanes.producer._lanes.send(topic, body, Host(b"1234", 1), stays=stays)
            for stays in (False, True)
        ]
        assert sent[1] is not None  # the client named this shard
        assert (sent[0] is not None) == (shard_of_ordering_key(key, [0, 1, 2]) == 0)
        stored.add(sent[0] is None)
    assert stored == {True, False}


def test_a_sync_request_waits_until_its_messages_are_on_disk(
    writers: tuple[Writer, Writer],
) -> None:
    lanes, _ = writers
    status, _ = lanes.send(b'{"messages":[{"body":"a"}],"durability":"sync"}')
    assert status == 201
    assert lanes.service.store.flush.flushed_offset == lanes.service.store.log.max_offset


def test_what_a_lane_stores_is_counted(writers: tuple[Writer, Writer]) -> None:
    lanes, _ = writers
    metrics = lanes.service.metrics
    before = metrics.traffic.of(TOPIC, "normal")[0], sum(metrics.put_seconds.counts)
    lanes.send(b'{"messages":[{"body":"a"},{"body":"b"}]}')
    after = metrics.traffic.of(TOPIC, "normal")[0], sum(metrics.put_seconds.counts)
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)


def test_messages_without_a_queue_go_to_the_queues_in_turn(
    writers: tuple[Writer, Writer],
) -> None:
    lanes, _ = writers
    replies = [lanes.send(b'{"messages":[{"body":"a"}]}', SPREAD)[1] for _ in range(2 * QUEUES)]
    queues = [each["messages"][0]["queueId"] for each in replies]
    assert queues == [(queues[0] + i) % QUEUES for i in range(2 * QUEUES)]


def test_a_lane_is_made_again_when_its_topic_changed(writers: tuple[Writer, Writer]) -> None:
    lanes, _ = writers
    lanes.service.topics.clear()
    used = lanes.lanes_used
    assert lanes.send(b'{"messages":[{"body":"a"}]}')[0] == 201
    assert lanes.lanes_used == used  # the topic is looked up first
    assert lanes.send(b'{"messages":[{"body":"a"}]}')[0] == 201
    assert lanes.lanes_used == used + 1


def test_a_request_under_a_key_is_left_while_another_thread_puts_one(
    writers: tuple[Writer, Writer],
) -> None:
    lanes, _ = writers
    dedup, topic = lanes.service.store.dedup, lanes.service.store.topic(TOPIC)
    assert dedup is not None
    lanes.send(b'{"messages":[{"body":"a","uniqKey":"first"}]}')  # the table of keys begins
    body = b'{"messages":[{"body":"a","uniqKey":"%b"}]}' % os.urandom(8).hex().encode()
    client = Host(b"\x7f\0\0\1", 1)

    def send() -> bytes | StoredSend | None:
        return lanes.producer._lanes.send(topic, body, client, stays=False)

    with dedup.lock:
        assert send() is None
    while send() is None:
        time.sleep(0)  # the service that saves keys may hold the lock
