"""A change on one of several shards reaches all of them; real processes."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError, Target
from tests.services.service_processes import writer
from tests.services.shard_processes import Cluster, cluster, entry_at, store_host, write_list

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shards")]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("shards")) as found:
        yield found


@pytest.fixture(params=[0, 1])
def client(shards: Cluster, request: pytest.FixtureRequest) -> Iterator[Client]:
    with shards.client(request.param) as found:
        yield found


def at(shards: Cluster, number: int) -> Client:
    """Reply of one shard, without the others."""
    return shards.client(number, shard=number)


def test_a_topic_is_made_changed_and_deleted_on_all_shards(shards: Cluster, client: Client) -> None:
    name = uuid.uuid4().hex
    made = client.create_topic(name, queues=3)
    assert made.shards is not None
    assert (made.shards.requested, made.shards.missing) == ((0, 1), ())
    client.change_topic(name, perm=4)
    for number in range(2):
        with at(shards, number) as one:
            found = one.topic(name)
            assert (found.queues, found.perm, found.shards) == (3, 4, None)
    client.change_topic(name, perm=6)
    for number in range(2):
        with at(shards, number) as one:
            one.produce(name, [NewMessage(body="x")])
    shown = client.delete_topic(name, dry_run=True)
    assert (shown.messages, shown.dry_run) == (2, True)
    assert client.delete_topic(name).messages == 2
    for number in range(2):
        with at(shards, number) as one, pytest.raises(ProblemError, match="topic-unknown"):
            one.topic(name)
    with pytest.raises(ProblemError, match="topic-unknown"):
        client.delete_topic(name)


def test_a_topic_that_one_shard_lacks_becomes_there_what_it_is_here(shards: Cluster) -> None:
    with at(shards, 0) as one:
        one.create_topic("here-only", queues=7)
    with shards.client(0) as client:
        client.change_topic("here-only", order=True)
    with at(shards, 1) as other:
        found = other.topic("here-only")
    assert (found.queues, found.order) == (7, True)


def test_a_change_that_one_shard_refuses_is_made_on_no_shard(
    shards: Cluster, client: Client
) -> None:
    with pytest.raises(ProblemError) as error:
        client.change_topic("wrong", perm=3)  # type: ignore[arg-type] # as a wrong client sends
    assert error.value.status == 422
    for number in range(2):
        with at(shards, number) as one, pytest.raises(ProblemError, match="topic-unknown"):
            one.topic("wrong")


def test_groups_and_subscriptions_are_those_of_all_shards(shards: Cluster, client: Client) -> None:
    client.create_topic("subscribed")
    group = client.put_group("g", retry_times_max=3)
    assert group.shards is not None and group.shards.missing == ()
    assert client.subscribe("g", "subscribed", "a > 1").shards is not None
    for number in range(2):
        with at(shards, number) as one:
            assert one.group("g").config["retryTimesMax"] == 3
            assert one.subscription("g", "subscribed").expression == "a > 1"
    client.unsubscribe("g", "subscribed")
    client.delete_group("g")
    for number in range(2):
        with at(shards, number) as one:
            assert not one.subscriptions("g").subscriptions
            with pytest.raises(ProblemError, match="group-unknown"):
                one.group("g")


def test_offsets_are_of_a_shards_queues(shards: Cluster, client: Client) -> None:
    topic = uuid.uuid4().hex
    client.create_topic(topic, queues=1)
    for number in range(2):
        with at(shards, number) as one:
            one.produce(topic, [NewMessage(body="x")] * 3)
    with pytest.raises(ProblemError, match="shard-needed"):
        client.commit("reader", topic, {0: 1})
    client.commit("reader", topic, {0: 1}, shard=0)
    client.commit("reader", topic, {0: 2}, shard=1)
    found = client.offsets("reader", topic=topic)
    assert [(each.shard, each.committed) for each in found.offsets] == [(0, 1), (1, 2)]
    with pytest.raises(ProblemError, match="shard-needed"):
        client.reset_offsets("reader", topic, "latest", queue_ids=[0])
    moved = client.reset_offsets("reader", topic, "earliest")
    assert [(each.shard, each.after) for each in moved.queues] == [(0, 0), (1, 0)]


def test_a_message_lands_where_it_is_sent_and_a_wrong_shard_says_where_to_go(
    shards: Cluster, client: Client
) -> None:
    client.create_topic("sent", queues=1)
    for number in range(2):
        sent = client.produce("sent", [NewMessage(body="x")], shard=number)  # follows
        assert sent.messages[0].shard == number
    own = client.produce("sent", [NewMessage(body="x")]).messages[0].shard
    url = shards.shards[own].writer.url
    body = {"messages": [{"body": "x"}]}
    answer = httpx.post(f"{url}/v1/topics/sent/messages?shard={1 - own}", json=body)
    problem = answer.json()
    assert (answer.status_code, problem["shard"]) == (421, 1 - own)
    assert problem["url"] == shards.shards[1 - own].writer.url
    with pytest.raises(ProblemError, match="shard-unknown"):
        client.produce("sent", [NewMessage(body="x")], shard=5)
    client.delete_topic("sent")


def test_a_shard_that_takes_no_messages_names_one_that_does(shards: Cluster) -> None:
    with at(shards, 0) as paused, at(shards, 1) as other, shards.client(0) as client:
        client.create_topic("refused")
        paused.put_writes(paused=True, reason="a move")
        assert not paused.writes().taken
        with pytest.raises(ProblemError) as error:
            client.produce("refused", [NewMessage(body="x")])
        assert error.value.type == "writes-paused"
        url = shards.shards[1].writer.url
        assert error.value.problem["writable"] == {"shard": 1, "url": url}
        other.put_writes(paused=True, reason="a move")
        with pytest.raises(ProblemError) as error:
            other.produce("refused", [NewMessage(body="x")])
        assert "writable" not in error.value.problem
        paused.put_writes(paused=False)
        other.put_writes(paused=False)


def test_the_store_says_which_shards_there_are(client: Client) -> None:
    found = client.store().shards
    assert [(each.shard, each.store_host) for each in found] == [
        (number, store_host(number)) for number in range(2)
    ]


def test_health_is_that_of_the_process_whatever_shard_a_client_names(shards: Cluster) -> None:
    with at(shards, 1) as one:
        assert {one.health(target).status for target in (Target.WRITER, Target.QUERY)} == {"ready"}


def test_a_further_shard_takes_part_without_a_restart_and_has_the_topics(shards: Cluster) -> None:
    with shards.client(0) as client:
        client.create_topic("known", queues=5)
        client.put_group("known-group", retry_times_max=4)
        client.subscribe("known-group", "known", "a > 1")
        third = shards.start(2)
        try:
            shards.put_list()
            with at(shards, 2) as new:
                _await_topic(new, "known")
                assert new.topic("known").queues == 5
                assert new.group("known-group").config["retryTimesMax"] == 4
                assert new.subscription("known-group", "known").expression == "a > 1"
                new.produce("known", [NewMessage(body="new", keys=("k",))])
            found = client.messages_by_key("known", "k")
            assert [(each.body, each.shard) for each in found.messages] == [("new", 2)]
            assert len(client.queues("known").queues) == 15
        finally:
            third.writer.kill()
        partial = client.change_topic("known", order=True)
        assert partial.shards is not None
        assert (partial.shards.requested, partial.shards.missing) == ((0, 1, 2), (2,))
        url = f"{shards.shards[0].writer.url}/v1/groups/known-group"
        gone = httpx.delete(url)
        assert (gone.status_code, gone.json()["shards"]["missing"]) == (200, [2])


def test_a_new_shard_copies_everything_or_retries(tmp_path: Path) -> None:
    topic = {"topic": "t", "readQueues": 3, "writeQueues": 3, "perm": 6, "order": False}
    subscription = {"topic": "t", "expression": "a > 1"}
    answers: dict[str, Any] = {
        "/v1/topics": {"topics": [topic | {"filterType": "SINGLE_TAG", "attributes": {}}]},
        "/v1/groups": {"groups": [{"group": "g", "configured": True, "config": {}}]},
        "/v1/groups/g/subscriptions": {"subscriptions": [subscription]},
    }
    paths: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            reply = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(503 if paths.count(self.path) == 1 else 200)
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{other.server_port}"
        listed = tmp_path / "shards.json"
        write_list(listed, [entry_at(number, url) for number in range(2)])
        given = {"shard": 1, "shards_file": listed, "store_host": store_host(1)}
        with writer(tmp_path / "store", **given) as new, Client(new.url, shard=1) as client:
            _await_topic(client, "t")
            assert client.group("g").configured
            assert any(client.subscriptions("g").subscriptions for _ in range(5_000))
        other.shutdown()


def _await_topic(client: Client, topic: str) -> None:
    for _ in range(5_000):
        if any(each.topic == topic for each in client.topics().topics):
            return
    raise AssertionError(f"{topic} was not copied")
