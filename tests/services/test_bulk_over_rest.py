"""Many look-ups in one request: each has the result that its own request has."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqstore.client import (
    AsyncClient,
    Client,
    MessagePlace,
    MessageResult,
    MessagesById,
    NewMessage,
    ProblemError,
    QueueName,
    QueueOffsets,
)
from mqstore.storage.paths import StorePaths
from tests.services.service_processes import Run, query, running
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

BODY_AT: Final = 90
UNKNOWN: Final = "0" * 32


def _one_by_one(client: Client, message_id: str, topic: str | None) -> dict[str, Any]:
    """The result that the request of one id would have among many."""
    try:
        found = client.message(message_id, topic=topic).model_dump(mode="json", by_alias=True)
    except ProblemError as error:
        members = ("type", "title", "status", "detail", "complete", "known")
        problem = error.problem
        return {"id": message_id, "problem": {n: problem[n] for n in members if n in problem}}
    for name in ("segment", "segmentPosition", "queueEntry", "checksum"):
        del found[name]
    return {"id": message_id, "message": found}


def _many(client: Client, ids: list[str], topic: str | None) -> list[dict[str, Any]]:
    found = client.messages_by_id(ids, topic=topic)
    assert found.remaining == ()
    return [each.model_dump(mode="json", by_alias=True) for each in found.results]


@pytest.fixture(scope="module")
def stored(services: Run) -> tuple[list[str], list[str]]:
    """Offset message ids and unique keys of messages with all kinds of bodies."""
    bodies: list[str | bytes] = ["text", '{"a": 1}', b"\xff\x00", "", "é" * 500]
    with services.client() as client:
        client.create_topic("bulks", queues=2)
        places = client.produce("bulks", [NewMessage(body=each) for each in bodies]).messages
    return [each.offset_msg_id for each in places], [each.uniq_key for each in places]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_many_ids_have_the_results_of_each(
    client: Client, stored: tuple[list[str], list[str]], draw: st.DataObject
) -> None:
    topic = draw.draw(st.sampled_from([None, "bulks"]))
    ids = stored[0] if topic is None else stored[1]
    odd = [UNKNOWN, "x", "0A09" + ids[0][4:], "\u20ac", "a/b"]
    wanted = draw.draw(st.lists(st.sampled_from([*ids, *odd]), min_size=1, max_size=8))
    assert _many(client, wanted, topic) == [_one_by_one(client, each, topic) for each in wanted]


def test_an_id_that_is_no_id_has_a_problem_beside_the_others(
    client: Client, stored: tuple[list[str], list[str]]
) -> None:
    first, second = stored[0][:2]
    found = client.messages_by_id([first, "", second]).results
    assert [each.message and each.message.body for each in found] == ["text", None, '{"a": 1}']
    assert found[1].problem is not None
    assert found[1].problem.type == "urn:mqstore:problem:bad-message-id"


def test_bodies_are_shown_as_requested(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put = message(store, 0).replace(sys_flag=0x1, body=zlib.compress(b"long " * 99))
        placed = put_message(store, put)
    with query(tmp_path) as find, Client(query_url=find.url) as client:
        ids = [placed.offset_message_id]
        (stored,) = client.messages_by_id(ids).results
        (inflated,) = client.messages_by_id(ids, inflate=True).results
        (without,) = client.messages_by_id(ids, body="none").results
    assert stored.message and inflated.message and without.message
    assert stored.message.compression == "ZLIB"
    assert inflated.message.body == "long " * 99
    assert without.message.body is None


def test_a_damaged_message_is_named_beside_the_others(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        placed = [put_message(store, message(store, number)) for number in range(3)]
    segment = next(StorePaths(tmp_path).commit_log.iterdir())
    content = bytearray(segment.read_bytes())
    content[placed[1].physical_offset + BODY_AT] ^= 1
    segment.write_bytes(content)
    with query(tmp_path) as find, Client(query_url=find.url) as client:
        ids = [each.offset_message_id for each in placed]
        results = client.messages_by_id(ids).results
        single = _one_by_one(client, ids[1], None)
    assert [each.message is None for each in results] == [False, True, False]
    assert results[1].model_dump(mode="json", by_alias=True) == single
    assert results[1].problem is not None and results[1].problem.known is not None


def test_a_full_reply_names_the_ids_that_remain(tmp_path: Path) -> None:
    with running(tmp_path / "store", max_answer_bytes=4096) as run, run.client() as client:
        client.create_topic("t", queues=1)
        large = [NewMessage(body="x" * 3_000) for _ in range(4)]
        small = [NewMessage(body="y") for _ in range(3)]
        ids = [each.offset_msg_id for each in client.produce("t", large + small).messages]
        wanted = [*ids[:2], "x", *ids[2:]]
        results: list[MessageResult] = []
        bulks = 0
        left = tuple(wanted)
        while left:
            found = client.messages_by_id(left)
            assert found.results, "a repeated request would not end"
            assert [each.id for each in found.results] + list(found.remaining) == list(left)
            results += found.results
            left, bulks = found.remaining, bulks + 1
    assert [each.id for each in results] == wanted
    assert [each.message is None for each in results].count(True) == 1
    assert bulks == 4


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b'{"ids": []}', 422, "body-invalid"),
        (b'{"ids": [1]}', 422, "body-invalid"),
        (b'{"ids": ["a"], "more": 1}', 422, "body-invalid"),
        (b"{}", 422, "body-invalid"),
        (b'{"ids": [%b"a"]}' % (b'"a",' * 1_000), 422, "body-invalid"),
        (b"nothing", 400, "bad-json"),
    ],
)
def test_an_invalid_request_is_refused(
    services: Run, content: bytes, status: int, kind: str
) -> None:
    headers = {"content-type": "application/json"}
    url = f"{services.query_url}/v1/messages:get"
    refused = httpx.post(url, content=content, headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (status, f"urn:mqstore:problem:{kind}")
    assert refused.headers["x-mqstore-writer"] == "alive"
    for parameters in ({"x": "1"}, {"body": "no"}, {"bodyMax": "-1"}, {"inflate": "maybe"}):
        wrong = httpx.post(url, json={"ids": ["a"]}, params=parameters)
        assert (wrong.status_code, wrong.json()["type"][-13:]) == (400, "bad-parameter")


def test_the_asynchronous_client_looks_up_many(
    services: Run, stored: tuple[list[str], list[str]]
) -> None:
    async def look_up() -> tuple[MessagesById, QueueOffsets]:
        async with AsyncClient(query_url=services.query_url) as client:
            found = await client.messages_by_id(stored[1][:2], topic="bulks")
            return found, await client.offsets_by_time(0, topics="bulks")

    found, offsets = asyncio.run(look_up())
    assert [each.message and each.message.body for each in found.results] == ["text", '{"a": 1}']
    assert [each.queue_id for each in offsets.results] == [0, 1]


# offsets by time --------------------------------------------------------------------------


def test_offsets_of_a_time_are_those_of_each_queue(client: Client) -> None:
    for name in ("times", "times-empty"):
        client.create_topic(name, queues=2)
    places: list[MessagePlace] = []
    for queue_id in (0, 1, 0, 1, 0):
        places += client.produce("times", [NewMessage(body="x", queue_id=queue_id)]).messages
    wanted = [
        *(QueueName(topic="times", queue_id=each) for each in (1, 0, 7)),
        QueueName(topic="none", queue_id=0),
        QueueName(topic="times-empty", queue_id=1),
        QueueName(topic="times", queue_id=0, shard=0),
        QueueName(topic="times", queue_id=0, shard=3),
    ]
    for at in (0, *(each.store_timestamp for each in places), places[-1].store_timestamp + 1):
        results = client.offsets_by_time(at, queues=wanted).results
        assert [(each.topic, each.queue_id) for each in results] == [
            (each.topic, each.queue_id) for each in wanted
        ]
        for queue, found in zip(wanted, results, strict=True):
            try:
                one = client.offset_by_time(queue.topic, queue.queue_id, at, shard=queue.shard)
            except ProblemError as error:
                assert found.problem is not None
                assert found.problem.type.endswith(error.type)
                assert found.problem.detail == error.detail
            else:
                assert found.problem is None
                same = (one.offset, one.min_offset, one.max_offset, one.shard)
                assert same == (found.offset, found.min_offset, found.max_offset, found.shard)


def test_topics_have_the_offsets_of_all_their_queues(client: Client) -> None:
    client.create_topic("times-1", queues=3)
    client.create_topic("times-2", queues=1)
    (placed,) = client.produce("times-1", [NewMessage(body="x", queue_id=2)]).messages
    found = client.offsets_by_time(
        placed.store_timestamp + 1,
        queues=[QueueName(topic="times-2", queue_id=0)],
        topics=["times-1", "none", "times-2", "times-1"],
    )
    assert [(each.topic, each.queue_id, each.offset) for each in found.results] == [
        ("times-2", 0, 0),
        *(("times-1", queue_id, offset) for queue_id, offset in ((0, 0), (1, 0), (2, 1))),
        ("none", None, None),
        ("times-2", 0, 0),
    ]
    unknown = found.results[4].problem
    assert unknown is not None and unknown.type.endswith("topic-unknown")
    assert found.shards is None


@pytest.mark.parametrize(
    "content",
    [
        {"timestamp": 0},
        {"timestamp": 0, "queues": []},
        {"timestamp": 7, "topics": ["t"]},
        {"timestamp": 0, "topics": ["t"] * 65},
        {"timestamp": 0, "queues": [{"topic": "t", "queueId": -1}]},
        {"topics": ["t"]},
    ],
)
def test_an_invalid_request_for_offsets_is_refused(services: Run, content: dict[str, Any]) -> None:
    refused = httpx.post(f"{services.query_url}/v1/offsets:by-time", json=content)
    assert (refused.status_code, refused.json()["type"][20:]) == (422, "body-invalid")
