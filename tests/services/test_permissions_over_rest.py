"""Permissions of topics and groups, which every endpoint obeys as a broker's processors do.

Source: PullMessageProcessor, PopMessageProcessor and AbstractSendMessageProcessor of 5.4.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from tests.services.service_processes import Run, running

READ: Final = 4
WRITE: Final = 2
_BATCH = {"content-type": "application/x-rocketmq-batch"}


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """Ten messages in the topic's one queue."""
    client.produce(topic, [NewMessage(body=f"{n}") for n in range(10)])
    return topic


def _post(url: str, body: object) -> httpx.Response:
    return httpx.post(url, json=body, timeout=30)


def _readers(run: Run, topic: str) -> dict[str, Callable[[], httpx.Response]]:
    """A request of each endpoint that consumers receive from."""
    pull = f"{run.query_url}/v1/topics/{topic}/queues/0/messages?offset=0"
    records = {"accept": "application/x-rocketmq-records"}
    events = f"{run.query_url}/v1/topics/{topic}/events?from=0"
    return {
        "pull": lambda: httpx.get(pull),
        "pull of a group": lambda: httpx.get(f"{pull}&group=puller"),
        "pull of records": lambda: httpx.get(pull, headers=records),
        "pull by tags": lambda: httpx.get(f"{pull}&tags=a"),
        "pull that waits": lambda: httpx.get(f"{pull.replace('=0', '=10')}&wait=0.1"),
        "stream": lambda: _head(events),
        "receive": lambda: _post(
            f"{run.writer_url}/v1/groups/reader:receive", {"topics": {topic: {}}, "max": 1}
        ),
        "receive by tags": lambda: _post(
            f"{run.writer_url}/v1/groups/tagged:receive",
            {"topics": {topic: {"tags": "a"}}, "max": 1},
        ),
    }


def _head(url: str) -> httpx.Response:
    """The status of a stream, whose body does not end."""
    with httpx.stream("GET", url, timeout=30) as found:
        if found.status_code != httpx.codes.OK:
            found.read()
        return found


def _writers(run: Run, topic: str) -> dict[str, Callable[[], httpx.Response]]:
    url = f"{run.writer_url}/v1/topics/{topic}/messages"
    return {
        "produce": lambda: _post(url, {"messages": [{"body": "x"}]}),
        "batch": lambda: httpx.post(url, content=b"\0" * 4, headers=_BATCH),
        "transaction": lambda: _post(
            f"{run.writer_url}/v1/transactions",
            {"topic": topic, "producerGroup": "p", "messages": [{"body": "x"}]},
        ),
    }


def _types(found: dict[str, Callable[[], httpx.Response]]) -> dict[str, str]:
    """By request: ok, or the type of its problem."""
    types = {}
    for name, request in found.items():
        reply = request()
        types[name] = "ok" if reply.is_success else reply.json()["type"].rpartition(":")[2]
    return types


@pytest.mark.parametrize("perm", [2, 4, 6])
def test_a_topics_perm_is_obeyed_by_every_endpoint_at_once(
    services: Run, client: Client, filled: str, perm: Literal[2, 4, 6]
) -> None:
    readers, writers = _readers(services, filled), _writers(services, filled)
    assert set(_types(readers).values()) == {"ok"}, "and the pulls are in memory now"
    client.change_topic(filled, perm=perm)
    expected = "ok" if perm & READ else "topic-not-readable"
    assert _types(readers) == dict.fromkeys(readers, expected)
    found = _types(writers)
    if perm & WRITE:
        assert "topic-not-writable" not in found.values()
    else:
        assert found == dict.fromkeys(writers, "topic-not-writable")
    client.change_topic(filled, perm=6)
    assert set(_types(readers).values()) == {"ok"}


def test_a_disabled_group_neither_receives_nor_pulls(
    services: Run, client: Client, filled: str
) -> None:
    pull = f"{services.query_url}/v1/topics/{filled}/queues/0/messages?offset=0&group=puller-off"
    assert httpx.get(pull).is_success
    client.put_group("puller-off", consume_enable=False)
    assert httpx.get(pull).json()["type"].endswith("group-disabled")
    with pytest.raises(ProblemError) as caught:
        client.receive("puller-off", [filled])
    assert caught.value.type.endswith("group-disabled")
    client.put_group("puller-off", consume_enable=True)
    assert httpx.get(pull).is_success


@pytest.fixture
def of_broker(tmp_path: Path) -> Iterator[Run]:
    """A store of a broker with topics of every perm. Its administrator has forbidden g the topic
    T, and not U."""
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    perms = {"T": 6, "U": 6, "TBW102": 5, **{f"P{perm}": perm for perm in range(16)}}
    topics: dict[str, Any] = {
        name: {"topicName": name, "perm": perm, "readQueueNums": 1, "writeQueueNums": 1}
        for name, perm in perms.items()
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    group = {"groupName": "g", "consumeEnable": True}
    tables = {"subscriptionGroupTable": {"g": group}, "forbiddenTable": {"g": {"T": 4, "U": 2}}}
    (config / "subscriptionGroup.json").write_text(json.dumps(tables))
    with running(tmp_path / "store", store_format="5.x", auto_create_topic_enable=True) as run:
        yield run


def test_every_perm_of_a_brokers_topics_is_obeyed(of_broker: Run) -> None:
    for perm in range(16):
        readers, writers = _readers(of_broker, f"P{perm}"), _writers(of_broker, f"P{perm}")
        readable = set(_types(readers).values())
        assert readable == {"ok"} if perm & READ else readable == {"topic-not-readable"}, perm
        assert ("topic-not-writable" in _types(writers).values()) is not bool(perm & WRITE), perm


def test_what_an_administrator_forbade_a_group_stays_forbidden(of_broker: Run) -> None:
    def types(topic: str, group: str) -> set[str]:
        url = f"{of_broker.query_url}/v1/topics/{topic}/queues/0/messages?offset=0&group={group}"
        receive = f"{of_broker.writer_url}/v1/groups/{group}:receive"
        requests = {
            "pull": lambda: httpx.get(url),
            "receive": lambda: _post(receive, {"topics": {topic: {}}}),
        }
        return set(_types(requests).values())

    assert types("T", "g") == {"group-disabled"}
    assert types("U", "g") == {"ok"}
    assert types("T", "other") == {"ok"}
    with of_broker.client() as client:
        client.delete_group("g")
        client.put_group("g")
    assert types("T", "g") == {"ok"}


def test_a_topic_that_a_producer_creates_is_made_after_the_brokers_template(
    of_broker: Run,
) -> None:
    url = f"{of_broker.writer_url}/v1/topics/new/messages"
    assert _types({"produce": lambda: _post(url, {"messages": [{"body": "x"}]})}) == {
        "produce": "topic-not-writable"
    }
    with of_broker.client() as client:
        made = client.topic("new")
    assert (made.perm, made.read_queues, made.write_queues) == (4, 1, 1)
