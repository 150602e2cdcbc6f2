"""Following a topic over HTTP: each message once, in order, also over a broken connection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import AsyncClient, Client, NewMessage, ProblemError, TopicEvent
from tests.forked_processes import start
from tests.services.service_processes import Run, query, running, writer


def _url(services: Run, topic: str) -> str:
    return f"{services.query_url}/v1/topics/{topic}/events"


def _sent(response: httpx.Response) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if line:
            event[name] = json.loads(value) if name == "data" else value
        elif event:
            yield event
            event = {}


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Without those that only say how to go on."""
    return (each for each in _sent(response) if each.get("event", "position") != "position")


def _send(client: Client, topic: str, *bodies: str, tags: str | None = None) -> None:
    for body in bodies:
        client.produce(topic, [NewMessage(body=body, tags=tags)])


def test_messages_of_all_queues_come_as_they_arrive_and_in_order(
    services: Run, client: Client
) -> None:
    client.create_topic("followed", queues=3)
    _send(client, "followed", "before")
    with httpx.stream("GET", _url(services, "followed"), timeout=30) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = _events(response)
        sent = [str(number) for number in range(20)]
        _send(client, "followed", *sent)
        found = [next(events) for _ in sent]
    assert [each["event"] for each in found] == ["message"] * len(sent)
    assert [each["data"]["body"] for each in found] == sent


def test_broken_stream_goes_on_behind_its_last_event(
    services: Run, client: Client, topic: str
) -> None:
    _send(client, topic, *"abcdef")
    seen: list[str] = []
    last = ""
    for count in (2, 1, 3):
        params = {} if last else {"from": "0"}
        headers = {"last-event-id": last} if last else {}
        with httpx.stream(
            "GET", _url(services, topic), params=params, headers=headers, timeout=30
        ) as response:
            events = _events(response)
            for _ in range(count):
                event = next(events)
                last = event["id"]
                seen.append(event["data"]["body"])
    assert "".join(seen) == "abcdef"


def test_stream_that_broke_before_anything_came_misses_nothing(
    services: Run, client: Client, topic: str
) -> None:
    _send(client, topic, "early")
    with httpx.stream("GET", _url(services, topic), timeout=30) as response:
        retry, where = itertools.islice(_sent(response), 2)
    assert (retry, where["event"]) == ({"retry": "1000"}, "position")
    _send(client, topic, "meanwhile")
    found = client.follow(topic, after=where["id"])
    assert _body(next(found)) == "meanwhile"
    found.close()


def test_client_follows_from_a_time_by_tags_by_expressions_and_behind_an_event(
    client: Client, topic: str
) -> None:
    tagged = [NewMessage(body=each, tags=each, properties={"p": each}) for each in "abc"]
    client.produce(topic, tagged)

    def bodies(count: int, **chosen: Any) -> list[str | None]:
        with contextlib.closing(client.follow(topic, **chosen)) as found:
            return [_body(next(found)) for _ in range(count)]

    assert bodies(3, from_ms=0) == ["a", "b", "c"]
    assert bodies(2, from_ms=0, tags="a || c") == ["a", "c"]
    assert bodies(1, from_ms=0, sql="p = 'b'") == ["b"]
    with contextlib.closing(client.follow(topic, from_ms=0)) as found:
        first = next(found)
    assert bodies(2, after=first.id) == ["b", "c"]
    with pytest.raises(ProblemError) as caught:
        next(client.follow("never-made"))
    assert caught.value.type == "topic-unknown"


def test_asynchronous_client_follows_too(services: Run, client: Client, topic: str) -> None:
    _send(client, topic, "a", "b")

    async def follow() -> list[str | None]:
        async with (
            AsyncClient(services.writer_url, services.query_url) as other,
            contextlib.aclosing(other.follow(topic, from_ms=0)) as events,
        ):
            return [_body(await anext(events)) for _ in range(2)]

    assert asyncio.run(follow()) == ["a", "b"]


def _body(event: TopicEvent) -> str | None:
    assert event.message is not None
    return event.message.body


@pytest.mark.slow
def test_following_goes_on_over_a_restart_of_the_service(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writer(root) as put:
        with query(root) as find:
            client = Client(put.url, find.url)
            client.create_topic("t", queues=1)
            events = client.follow("t", from_ms=0)
            _send(client, "t", "a")
            assert _body(next(events)) == "a"
            find.kill()
        _send(client, "t", "b")
        with query(root, port=find.port):
            _send(client, "t", "c")
            assert [_body(next(events)) for _ in range(2)] == ["b", "c"]
            events.close()
        client.close()


@pytest.mark.slow
def test_command_prints_messages_until_it_is_interrupted(
    services: Run, client: Client, topic: str
) -> None:
    _send(client, topic, "a", tags="t")
    command = ["consume", topic, "--follow", "--from", "0", "--query-url", services.query_url]
    following = start("mqstore.cli.main", *command, interactive=True)
    assert following.stdout.readline().startswith("STORED")
    assert re.search(r" 0 +0 +t .* a$", following.stdout.readline())
    _send(client, topic, "b", tags="t")
    assert re.search(r" 0 +1 +t .* b$", following.stdout.readline())
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=30)
    assert following.returncode == 0


def test_only_wanted_tags_come(services: Run, client: Client, topic: str) -> None:
    _send(client, topic, "1", tags="a")
    _send(client, topic, "2", tags="b")
    _send(client, topic, "3", tags="a")
    params = {"from": "0", "tags": "a"}
    with httpx.stream("GET", _url(services, topic), params=params, timeout=30) as response:
        events = _events(response)
        assert [next(events)["data"]["body"] for _ in range(2)] == ["1", "3"]


def test_only_messages_that_an_expression_is_true_of_come(
    services: Run, client: Client, topic: str
) -> None:
    for number in range(6):
        client.produce(topic, [NewMessage(body=str(number), properties={"n": str(number)})])
    params = {"from": "0", "sql": "n BETWEEN 2 AND 3 OR n = 5"}
    with httpx.stream("GET", _url(services, topic), params=params, timeout=30) as response:
        events = _events(response)
        assert [next(events)["data"]["body"] for _ in range(3)] == ["2", "3", "5"]


def test_body_shown_as_json_may_have_lines(services: Run, client: Client, topic: str) -> None:
    _send(client, topic, '{\n "a": "1\\n",\r\n\n "b":\r2}')
    params = {"from": "0", "body": "json"}
    with httpx.stream("GET", _url(services, topic), params=params, timeout=30) as response:
        assert next(_events(response))["data"]["bodyJson"] == {"a": "1\n", "b": 2}


@pytest.mark.parametrize(
    ("headers", "query", "status", "kind"),
    [
        ({"last-event-id": "x"}, "", 400, "bad-cursor"),
        ({"last-event-id": "A" * 16}, "", 400, "bad-cursor"),
        ({}, "from=-1", 400, "bad-parameter"),
        ({}, "tags=||", 400, "bad-filter"),
        ({}, "sql=n+%3E", 400, "bad-filter"),
        ({}, "sql=n+%3E+1&tags=a", 400, "bad-parameter"),
        ({}, "unknown=1", 400, "bad-parameter"),
    ],
)
def test_stream_that_makes_no_sense_is_refused(
    services: Run, topic: str, headers: dict[str, str], query: str, status: int, kind: str
) -> None:
    response = httpx.get(f"{_url(services, topic)}?{query}", headers=headers)
    assert (response.status_code, response.json()["type"]) == (
        status,
        f"urn:mqstore:problem:{kind}",
    )


def test_id_of_another_topics_stream_and_an_unknown_topic_are_refused(
    services: Run, client: Client, topic: str
) -> None:
    client.create_topic("another-stream")
    _send(client, topic, "x")
    with httpx.stream("GET", _url(services, topic), params={"from": "0"}, timeout=30) as response:
        last = next(_events(response))["id"]
    other = httpx.get(_url(services, "another-stream"), headers={"last-event-id": last})
    assert other.json()["type"] == "urn:mqstore:problem:bad-cursor"
    unknown = httpx.get(_url(services, "never-created"))
    assert unknown.json()["type"] == "urn:mqstore:problem:topic-unknown"


def test_open_stream_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with running(tmp_path / "store") as services, services.client() as client:
        client.create_topic("t", queues=1)
        with httpx.stream("GET", _url(services, "t"), timeout=30) as response:
            _send(client, "t", "x")
            assert next(_events(response))["data"]["body"] == "x"
            code, errors = services.stop()
        assert (code, errors) == (0, "")
