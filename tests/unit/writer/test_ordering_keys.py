"""An ordering key chooses the queue and the shard of its messages, and is stored with them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from mqstore.service.http import Reply
from mqstore.service.key_shards import shard_of_ordering_key
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.properties import encode
from mqstore.storage.codec.record import Message
from mqstore.storage.formats import Host
from mqstore.wire.messages import ORDERING_KEY_PROPERTY
from mqstore.writer.key_routing import Parts, join
from mqstore.writer.ordering import queue_of
from tests.unit.writer.test_key_routing import Cluster
from tests.unit.writer.test_sends import QUEUES, SPREAD, Writer
from tests.unit.writer.writers_in_process import Writers, run

GUAVA: Final = {
    "a": (0, 0, 346),
    "order-1": (3, 3, 489),
    "customer-7": (2, 2, 324),
    "größe": (3, 4, 528),
    "鍵": (1, 1, 382),
    "😀": (1, 4, 748),
    "polygenelubricants": (2, 2, 185),
}
"""Queues among 4, 7 and 1024 by ``Hashing.consistentHash(key.hashCode(), n)`` of Guava 32.0.1. The
last hashCode is -2**31."""
KEYS: Final = [f"customer-{number}" for number in range(20)]
HOST: Final = Host(b"\x7f\0\0\1", 1)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    with asyncio.Runner() as runner:
        found = Writer(runner, tmp_path_factory.mktemp("ordering"))
        for _ in range(QUEUES):
            assert found.send(b'{"messages":[{"body":"first"}]}', SPREAD)[0] == 201
        yield found
        found.stop()


def send(writer: Writer, *messages: dict[str, Any]) -> tuple[int, Any]:
    return writer.send(json.dumps({"messages": messages}).encode(), SPREAD)


def encoded(*properties: dict[str, str]) -> bytes:
    return encode_batch(
        [
            Message(
                "", 0, b"a", encode(each, trailing_separator=True) if each else b"", HOST, HOST, 0
            )
            for each in properties
        ]
    )


def queues_of(reply: tuple[int, Any]) -> list[int]:
    status, content = reply
    assert status == 201, content
    return [each["queueId"] for each in content["messages"]]


def wanted(*keys: str) -> list[int]:
    return [queue_of(key, QUEUES) for key in keys]


@pytest.mark.parametrize(("key", "queues"), GUAVA.items())
def test_the_queue_is_that_of_rocketmqs_proxy(key: str, queues: tuple[int, ...]) -> None:
    assert tuple(queue_of(key, count) for count in (4, 7, 1024)) == queues
    assert queue_of(key, 1) == 0


def test_messages_under_a_key_go_to_its_queue_with_the_key_as_a_property(writer: Writer) -> None:
    start = writer.service.store.log.max_offset
    for key in KEYS:
        assert queues_of(send(writer, {"body": "a", "orderingKey": key})) == wanted(key)
    stored = writer.records(start)
    assert [each.properties[ORDERING_KEY_PROPERTY] for each in stored] == KEYS
    assert len(set(wanted(*KEYS))) == QUEUES


def test_keys_of_one_request_go_to_queues_of_their_own_and_the_others_to_one(
    writer: Writer,
) -> None:
    messages: list[dict[str, Any]] = [{"orderingKey": key} for key in KEYS]
    assert queues_of(send(writer, *messages)) == wanted(*KEYS)
    found = queues_of(send(writer, {}, *messages, {}))
    assert found[1:-1] == wanted(*KEYS)
    assert found[0] == found[-1]
    assert queues_of(send(writer, {"queueId": 1}, {"orderingKey": "a"})) == [1, *wanted("a")]


def test_the_turns_of_other_messages_go_on(writer: Writer) -> None:
    (before,) = queues_of(send(writer, {}))
    send(writer, {"orderingKey": "a"}, {"orderingKey": "b"})
    assert queues_of(send(writer, {})) == [(before + 1) % QUEUES]


def test_a_batch_in_rocketmqs_encoding_is_ordered_by_its_property(writer: Writer) -> None:
    batch = encoded(*({ORDERING_KEY_PROPERTY: key, "TAGS": "t"} for key in KEYS))
    assert queues_of(writer.send(batch, SPREAD, b"")) == wanted(*KEYS)
    status, detail = writer.send(encoded({}, {ORDERING_KEY_PROPERTY: "a"}), SPREAD, b"queueId=1")
    assert status == 422 and "not both" in detail


def test_a_queue_and_a_key_together_are_refused(writer: Writer) -> None:
    end = writer.service.store.log.max_offset
    status, detail = send(writer, {}, {"queueId": 0, "orderingKey": "a"})
    assert (status, "not both" in detail) == (422, True)
    for wrong in ("", "k" * 256, 7):
        assert send(writer, {"orderingKey": wrong})[0] == 422
    assert "orderingKey" in send(writer, {"orderingKey": "a\0"})[1]
    status, detail = send(writer, {"properties": {ORDERING_KEY_PROPERTY: "a"}})
    assert "orderingKey" in detail
    assert writer.service.store.log.max_offset == end


def test_a_retry_under_its_unique_key_is_a_duplicate(writer: Writer) -> None:
    messages = [{"orderingKey": key, "uniqKey": os.urandom(8).hex()} for key in KEYS]
    status, first = send(writer, *messages)
    assert status == 201
    assert send(writer, *messages) == (
        201,
        {"messages": [each | {"repeat": True} for each in first["messages"]]},
    )


# The index of a refused message --------------------------------------------------------------


BAD: Final[list[dict[str, Any]]] = [
    {"body": 7},
    {"body": "a", "bodyBase64": "YQ=="},
    {"orderingKey": "a", "queueId": 1},
    {"properties": {"KEYS": "a"}},
    {"keys": ["two words"]},
    {"delayLevel": 99},
    {"body": "a", "crc32c": 1},
    {"properties": {"a": "b" * 40_000}},
    {"body": "x" * (5 << 20)},
]


def index_of(writers: Writers, shard: int, messages: list[dict[str, Any]]) -> Any:
    async def post(http: httpx.AsyncClient) -> httpx.Response:
        return await http.post("/v1/topics/t/messages", json={"messages": messages})

    async def reply() -> Any:
        async with writers.http(shard) as http:
            found = await post(http)
        assert found.status_code in (409, 413, 422), found.text
        return found.json().get("index")

    return reply()


def test_a_problem_names_the_message_that_was_refused(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        for bad in BAD:
            for many in (1, 1_500):  # a thread decodes a large one
                assert await index_of(writers, 0, [{"body": "a"}] * many + [bad, {}]) == many, bad
        taken = [{"body": "a", "uniqKey": "k"}, {"body": "b", "uniqKey": "k"}]
        assert await index_of(writers, 0, [{}, {"delayLevel": 1}, *taken]) == 3
        assert await index_of(writers, 0, [{"queueId": 0}, {"queueId": 1}]) == 1

    run(tmp_path, act, 1)


def test_a_batch_in_rocketmqs_encoding_names_it_too(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        for data in (
            encoded({}, {"a": "b"}, {"DELAY": "1"}),
            encoded({}, {}) + b"torn",
            encoded({}, {}, {ORDERING_KEY_PROPERTY: "a"}),
        ):
            async with writers.http(0) as http:
                reply = await http.post(
                    "/v1/topics/t/messages?queueId=0",
                    content=data,
                    headers={"content-type": "application/x-rocketmq-batch"},
                )
            assert (reply.status_code, reply.json()["index"]) == (422, 2), reply.text

    run(tmp_path, act, 1)


# Shards ----------------------------------------------------------------------------------------


def test_a_key_has_one_shard_from_every_address(tmp_path: Path) -> None:
    async def act(writers: Writers) -> None:
        messages = [{"body": key, "orderingKey": key, "uniqKey": f"u-{key}"} for key in KEYS]
        for shard in (0, 1):
            async with writers.http(shard) as http:
                reply = await http.post("/v1/topics/t/messages", json={"messages": messages})
            assert reply.status_code == 201, reply.text
            places = reply.json()["messages"]
            assert [each["shard"] for each in places] == shards
            assert [each["queueId"] for each in places] == [queue_of(key, 4) for key in KEYS]
            assert [each.get("repeat", False) for each in places] == [shard == 1] * len(KEYS)

        bad = [*messages, {"orderingKey": KEYS[0], "body": "x" * (5 << 20)}]
        for number in (shards.index(0), shards.index(1)):
            bad[-1]["orderingKey"] = KEYS[number]
            assert await index_of(writers, 0, bad) == len(KEYS)

    shards = [shard_of_ordering_key(key, [0, 1]) for key in KEYS]
    assert set(shards) == {0, 1}
    run(tmp_path, act, 2)


MOVED: Final = next(
    key
    for key in (f"k{number}" for number in range(100))
    if (shard_of_ordering_key(key, [0, 1]), shard_of_ordering_key(key, [0, 1, 2])) == (0, 2)
)


def test_only_under_a_unique_key_is_the_former_shard_visited(tmp_path: Path) -> None:
    routing = Cluster(tmp_path / "shards.json", 1, [0, 1]).routing
    parts = routing.parts(["u", None, None], 1_000, [MOVED, MOVED, None])
    assert parts == {(0, 2): [0, 2], (2,): [1]}


def test_the_index_of_a_part_is_that_of_the_request() -> None:
    parts: Parts = {(0,): [0, 2], (1,): [1, 3]}
    refused = Reply(b'{"status":422,"index":1}', 422)
    stored = Reply(b'{"messages":[1,3]}', 201)
    assert json.loads(join(parts, [stored, refused]).body) == {"status": 422, "index": 3}
    broken = Reply(b"no JSON", 502)
    assert join(parts, [stored, broken]) == broken
