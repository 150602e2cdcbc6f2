"""Pulls over HTTP: statuses, tags, records as they stand."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.storage.codec import record
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.layout import StoreFormat
from tests.services.service_processes import Run, running
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import open_store


def _records(data: bytes) -> list[Record]:
    """Records as a RocketMQ client decodes them, one after the other."""
    found, position = [], 0
    while position < len(data):
        one = record.decode(data, position, len(data), physical_offset=record.ANY_OFFSET)
        found.append(one)
        position += one.size
    return found


def _url(services: Run, topic: str, queue: int = 0) -> str:
    return f"{services.query_url}/v1/topics/{topic}/queues/{queue}/messages"


def test_records_are_answered_as_they_stand_in_the_log(
    services: Run, client: Client, topic: str
) -> None:
    sent = [NewMessage(body=f"b{n}", tags="t", keys=(f"k{n}",)) for n in range(40)]
    placed = client.produce(topic, sent).messages
    answer = httpx.get(
        _url(services, topic),
        params={"max": 30},
        headers={"accept": "application/x-rocketmq-records"},
    )
    assert answer.headers["content-type"] == "application/x-rocketmq-records"
    found = _records(answer.content)
    assert [(each.physical_offset, each.size) for each in found] == [
        (each.physical_offset, each.size) for each in placed[:30]
    ]
    assert [each.body for each in found] == [b"b%d" % n for n in range(30)]
    headers = {
        name.removeprefix("x-mqstore-"): value
        for name, value in answer.headers.items()
        if name.startswith("x-mqstore-")
    }
    assert headers.items() >= {
        ("status", "FOUND"),
        ("next", "30"),
        ("min-offset", "0"),
        ("max-offset", "40"),
        ("messages", "30"),
        ("unreadable", "0"),
        ("shard", "0"),
    }


def test_tags_choose_messages_and_next_goes_on_behind_all_that_was_looked_at(
    client: Client, topic: str
) -> None:
    tags = ["a", "b", "Aa", "BB", None] * 4
    client.produce(topic, [NewMessage(body=str(n), tags=t) for n, t in enumerate(tags)])
    for expression, wanted in (("a", {"a"}), (" b||Aa ", {"b", "Aa"}), ("none", set())):
        found = client.pull(topic, 0, tags=expression)
        assert [each.body for each in found.messages] == [
            str(n) for n, tag in enumerate(tags) if tag in wanted
        ]
        assert found.next == len(tags)
        assert found.status == ("FOUND" if wanted else "NO_MATCHED_MESSAGE")
    assert len(client.pull(topic, 0, tags="*").messages) == len(tags)
    part = client.pull(topic, 0, tags="a", max_messages=1)
    assert (len(part.messages), part.next) == (1, 1)
    with pytest.raises(ProblemError) as caught:
        client.pull(topic, 0, tags="||")
    assert (caught.value.status, caught.value.type) == (400, "bad-filter")


def test_sql_chooses_messages_by_their_properties(client: Client, topic: str) -> None:
    sent = [NewMessage(body=str(n), properties={"n": str(n)} if n % 2 else {}) for n in range(12)]
    client.produce(topic, sent)
    for expression, wanted in (
        ("n > 5", [7, 9, 11]),
        ("n IS NULL", [0, 2, 4, 6, 8, 10]),
        ("NOT (n > 5)", [1, 3, 5]),
    ):
        found = client.pull(topic, 0, sql=expression)
        assert [each.body for each in found.messages] == [str(n) for n in wanted]
        assert found.next == len(sent)
    with pytest.raises(ProblemError) as caught:
        client.pull(topic, 0, sql="n >")
    assert (caught.value.status, caught.value.type) == (400, "bad-filter")
    assert "column" in caught.value.detail
    with pytest.raises(ProblemError):
        client.pull(topic, 0, sql="n > 1", tags="a")


def test_statuses_are_rocketmqs(client: Client, topic: str) -> None:
    assert client.pull(topic, 0).status == "NO_MESSAGE_IN_QUEUE"
    assert client.pull(topic, 0, 7).next == 0
    client.produce(topic, [NewMessage()])
    found = [(client.pull(topic, 0, at).status, client.pull(topic, 0, at).next) for at in (0, 1, 2)]
    assert found == [("FOUND", 1), ("OFFSET_OVERFLOW_ONE", 1), ("OFFSET_OVERFLOW_BADLY", 1)]


def test_filtered_poll_waits_through_what_does_not_match(
    services: Run, client: Client, topic: str
) -> None:
    client.produce(topic, [NewMessage(body="early", tags="other")])
    answers: list[Any] = []

    def poll() -> None:
        with services.client() as other:
            answers.append(other.pull(topic, 0, wait_s=30, tags="mine"))

    thread = threading.Thread(target=poll)
    thread.start()
    for _ in range(5):
        client.produce(topic, [NewMessage(tags="other")])
    client.produce(topic, [NewMessage(body="awaited", tags="mine")])
    thread.join(25)
    assert [each.body for each in answers[0].messages] == ["awaited"]
    assert answers[0].next == 7


def test_filtered_poll_that_finds_nothing_says_how_far_it_looked(
    client: Client, topic: str
) -> None:
    client.produce(topic, [NewMessage(tags="other")] * 3)
    found = client.pull(topic, 0, wait_s=0.05, tags="mine")
    assert (found.status, found.messages, found.next) == ("NO_MATCHED_MESSAGE", (), 3)


@pytest.mark.parametrize(
    "query",
    [
        "offset=+1",
        "offset=1.0",
        "offset=",
        "offset=9223372036854775808",
        "max=x",
        "wait=-1",
        "wait=1e1",
        "wait=inf",
        "body=xml",
        "bodyMax=-1",
        "inflate=maybe",
        "sort=x",
        "max=1&max=2",
    ],
)
def test_parameter_of_a_pull_that_makes_no_sense_is_400(
    services: Run, topic: str, query: str
) -> None:
    response = httpx.get(f"{_url(services, topic)}?{query}")
    assert response.status_code == 400
    assert response.json()["type"] == "urn:mqstore:problem:bad-parameter"


def test_a_lane_has_the_replies_of_the_general_way(
    services: Run, client: Client, topic: str
) -> None:
    """A path with an escape is never plain: it goes through uvicorn and the slow path."""
    bodies = ["text", 'é\n"\\\x7f😀', "", "x" * 3_000]
    sent = [
        NewMessage(
            body=body,
            tags="t" if number % 2 else None,
            keys=("a", "b") if number % 3 else (),
            properties={"n": str(number)} if number % 5 else {},
        )
        for number, body in enumerate(bodies * 12)
    ]
    client.produce(topic, [*sent, NewMessage(body=b"\xff\x00")])
    end = len(sent) + 1
    with httpx.Client() as plain, httpx.Client() as general:
        for more in ("", "max=1", "max=7", "max=100", "body=none", "body=base64"):
            for accept in ("application/json", "application/x-rocketmq-records"):
                for offset in (0, 5, end - 3, end - 1, end, end + 1, 0):
                    url = f"{_url(services, topic)}?{more}&offset={offset}"
                    headers = {"accept": accept, "accept-encoding": "identity"}
                    ours = plain.get(url, headers=headers)
                    theirs = general.get(url.replace("/queues", "/%71ueues"), headers=headers)
                    assert _fields(ours) == _fields(theirs)
                    assert ours.content == theirs.content


def _fields(reply: httpx.Response) -> list[tuple[str, str]]:
    """The header fields that are equal for equal requests, in their order."""
    own = ("date", "x-request-id")
    return [(name, value) for name, value in reply.headers.items() if name not in own]


@pytest.mark.parametrize("topic", ["%RETRY%g+T", "%LMQ%home.temp+"])
def test_topics_that_only_a_broker_makes_are_read_by_their_names(
    tmp_path: Path, topic: str
) -> None:
    root = tmp_path / "store"
    with open_store(root, format=StoreFormat.V5_X) as store:
        put_message(store, Message(topic, 0, b"b", b"", store.host, store.host, 1))
    with running(root) as run, run.client() as client:
        assert [each.body for each in client.pull(topic, 0).messages] == ["b"]
        assert client.queues(topic).queues[0].max_offset == 1
        raw = httpx.get(_url(run, topic.replace("%", "%25")))
        assert raw.json()["messages"][0]["topic"] == topic
