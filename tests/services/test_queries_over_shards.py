"""Queries to any one of several shards: real processes, one of which goes away."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.main import app
from mqstore.client import Client, NewMessage, ProblemError, QueueName
from mqstore.service.forwarding import FORWARDED
from tests.services.service_processes import query
from tests.services.shard_processes import TIMEOUT_S, Cluster, cluster, store_host

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shards")]
ADMIN, CONSUME, SYSTEM = "admin-" + "a" * 20, "consume-" + "c" * 20, "system-" + "s" * 20


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two, with tokens; topic t has messages 0 to 19 under key k, the even ones on shard 0."""
    settings: dict[str, Any] = {"token_admin": ADMIN, "token_consume": CONSUME}
    settings |= {"token_system": SYSTEM, "log_format": "json"}
    settings |= {"flush_consumer_offset_interval": 20}
    with cluster(tmp_path_factory.mktemp("shards"), **settings) as found:
        for number in range(2):
            with found.client(number, token=ADMIN, shard=number) as client:
                client.create_topic("t", queues=2)
        for number in range(20):
            with found.client(number % 2, token=ADMIN) as client:
                client.produce("t", [NewMessage(body=str(number), keys=("k",))])
        yield found


@pytest.fixture(params=[0, 1])
def client(shards: Cluster, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of either shard: both reply alike."""
    with shards.client(request.param, token=CONSUME) as found:
        yield found


def pages(client: Client, **parameters: object) -> list[str]:
    """All bodies, page by page."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = client.messages_by_key("t", "k", cursor=cursor, **parameters)  # type: ignore[arg-type]
        found += [message.body or "" for message in page.messages]
        assert page.shards is not None and page.shards.missing == ()
        assert page.complete == (page.next is None)
        if page.next is None:
            return found
        cursor = page.next


@pytest.mark.parametrize("limit", [1, 3, 7, 64])
def test_a_key_is_found_on_all_shards_newest_first_page_by_page(client: Client, limit: int) -> None:
    assert pages(client, limit=limit) == [str(number) for number in reversed(range(20))]


def test_times_go_over_all_shards_in_both_orders(client: Client) -> None:
    whole = client.messages_by_time("t", limit=5)
    assert [message.body for message in whole.messages] == ["19", "18", "17", "16", "15"]
    oldest = client.messages_by_time("t", limit=5, order="oldest")
    assert [message.body for message in oldest.messages] == ["0", "1", "2", "3", "4"]
    more = client.messages_by_time("t", limit=50, order="oldest", cursor=oldest.next)
    assert [message.body for message in more.messages] == [str(n) for n in range(5, 20)]
    assert more.complete
    assert more.scanned.by_shard is not None and set(more.scanned.by_shard) == {"0", "1"}


def test_an_id_is_looked_up_where_its_store_host_is(shards: Cluster, client: Client) -> None:
    for message in client.messages_by_key("t", "k", limit=4).messages:
        found = client.message(message.offset_msg_id)
        assert (found.body, found.shard) == (message.body, message.shard)
        assert found.store_host == store_host(message.shard)
        by_key = client.message(message.uniq_key or "", topic="t")
        assert by_key.offset_msg_id == message.offset_msg_id
        assert client.message_body(message.offset_msg_id, start=0, stop=1).content


def test_many_ids_are_looked_up_on_all_shards(client: Client) -> None:
    stored = client.messages_by_key("t", "k", limit=20).messages
    ids = [each.offset_msg_id for each in stored]
    ids[3:3] = ["no id", "0A090005" + "00002A9F" + "0" * 16]
    results = client.messages_by_id(ids).results
    assert [each.id for each in results] == ids
    assert [each.message for each in results if each.message is not None] == list(stored)
    problems = [each.problem.type for each in results if each.problem is not None]
    assert [each.rpartition(":")[2] for each in problems] == ["bad-message-id", "message-unknown"]
    keys = [each.uniq_key or "" for each in stored]
    found = client.messages_by_id([*keys, "none"], topic="t")
    assert [each.message for each in found.results] == [*stored, None]
    unknown = found.results[-1].problem
    assert unknown is not None and (unknown.status, unknown.complete) == (404, True)
    assert found.shards is not None and found.shards.requested == (0, 1)


def test_offsets_of_a_time_are_those_of_all_shards(client: Client) -> None:
    at = client.messages_by_key("t", "k", limit=5).messages[-1].store_timestamp
    queues = [
        QueueName(topic="t", queue_id=queue_id, shard=shard)
        for queue_id, shard in ((1, 1), (0, 0), (0, None), (0, 7), (0, 1))
    ]
    found = client.offsets_by_time(at, queues=queues, topics=["t", "none"])
    single, of_topics = found.results[:5], found.results[5:]
    assert [each.problem and each.problem.type.rpartition(":")[2] for each in single] == [
        *(None, None, "shard-needed", "shard-unknown", None)
    ]
    assert [(each.shard, each.queue_id) for each in of_topics] == [
        *((0, 0), (0, 1), (1, 0), (1, 1), (0, None))
    ]
    for each in (single[0], single[1], single[4], *of_topics[:4]):
        assert each.queue_id is not None
        one = client.offset_by_time("t", each.queue_id, at, shard=each.shard)
        assert (each.offset, each.max_offset) == (one.offset, one.max_offset)


def test_a_message_of_no_shard_is_unknown(client: Client) -> None:
    for call in (
        lambda: client.message("A" * 32, topic="t"),
        lambda: client.messages_by_key("none", "k"),
        lambda: client.message("0A090005" + "00002A9F" + "0" * 16),
    ):
        with pytest.raises(ProblemError) as error:
            call()
        assert error.value.status == 404
        assert "shards" not in error.value.problem  # all have answered


def test_queues_and_lags_are_those_of_all_shards(shards: Cluster, client: Client) -> None:
    queues = client.queues("t").queues
    assert [(each.shard, each.queue_id) for each in queues] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert sum(each.max_offset for each in queues) == 20
    for number in range(2):
        with shards.client(number, token=ADMIN) as writer:
            writer.commit("billing", "t", {0: 1}, shard=number)
            writer.commit(f"only-{number}", "t", {0: 1}, shard=number)
    _await_groups(client, {"billing", "only-0", "only-1"})
    lag = client.lag("billing")
    assert lag.lag == 18
    [topic] = lag.topics
    assert [(each.shard, each.queue_id) for each in topic.queues] == [
        *((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    assert _groups(client, limit=1) == ["billing", "only-0", "only-1"]


def _groups(client: Client, limit: int) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = client.lags(limit=limit, cursor=cursor)
        found += [each.group for each in page.groups]
        if page.next is None:
            return found
        cursor = page.next


def _await_groups(client: Client, wanted: set[str]) -> None:
    """Until the writers have saved the offsets."""
    while {each.group for each in client.lags().groups} != wanted:
        pass


def test_a_trace_names_the_shard_of_each_copy(client: Client) -> None:
    found = client.messages_by_key("t", "k", limit=2).messages
    for message in found:
        traced = client.trace(message.offset_msg_id)
        assert [copy.shard for copy in traced.trace.copies] == [message.shard]
        assert traced.trace.complete
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = client.traces("t", "k", limit=4, cursor=cursor)
        seen += [each.uniq_key or "" for each in page.traces]
        if page.next is None:
            break
        cursor = page.next
    assert len(set(seen)) == len(seen) == 20


def test_a_unique_key_may_have_slashes(shards: Cluster, client: Client) -> None:
    with shards.client(1, token=ADMIN) as one:
        one.create_topic("slashes", queues=1)
        one.produce("slashes", [NewMessage(body="found", uniq_key="order/1/7")])
    found = client.message("order/1/7", topic="slashes")
    assert (found.body, found.shard) == ("found", 1)
    assert client.message_body("order/1/7", topic="slashes").content == b"found"
    for traced in (
        client.trace("order/1/7", topic="slashes"),
        client.trace(found.offset_msg_id),
    ):
        assert [copy.shard for copy in traced.trace.copies] == [1]
        assert traced.trace.complete


def test_commands_query_the_shard_that_they_name(shards: Cluster) -> None:
    one = shards.shards[0]
    urls = {"MQSTORE_QUERY_URL": one.query.url, "MQSTORE_WRITER_URL": one.writer.url}
    variables = {**urls, "MQSTORE_TOKEN": ADMIN, "MQSTORE_OUTPUT": "json"}

    def run(*command: str) -> Result:
        return CliRunner().invoke(app, command, env=variables)

    on_all = run("message", "trace", "k", "--topic", "t").stdout.splitlines()
    on_one = run("message", "trace", "k", "--topic", "t", "--shard", "1").stdout.splitlines()
    assert (len(on_all), len(on_one)) == (20, 10)
    assert all('"shard":1,' in line for line in on_one)
    assert json.loads(run("lag", "--shard", "1").stdout)["shard"] == 1
    assert '"kind":"opened"' in run("events", "--shard", "1").stdout
    for command in (["consume", "t", "--follow"], ["events"], ["lag", "g"]):
        refused = run(*command, "--shard", "7")
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1), refused.output
        assert "unknown shard 7; the shards are 0, 1" in refused.stderr


def test_a_queue_is_of_one_shard_and_any_shard_answers_for_it(client: Client) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.pull("t", 0),
        lambda: client.offset_by_time("t", 0, 0),
        lambda: next(client.follow("t", from_ms=0)),
        lambda: client.message_at(0),
    ]
    for call in calls:
        with pytest.raises(ProblemError) as error:
            call()
        assert (error.value.status, error.value.type) == (400, "shard-needed")
        assert error.value.problem["shards"] == [0, 1]
    bodies = {
        message.body
        for shard in (0, 1)
        for queue in (0, 1)
        for message in client.pull("t", queue, shard=shard).messages
    }
    assert bodies == {str(number) for number in range(20)}
    assert client.offset_by_time("t", 0, 0, shard=1).shard == 1
    followed = client.follow("t", from_ms=0, shard=1)
    with contextlib.closing(followed):
        assert [next(followed).message.body for _ in range(3)] == ["1", "3", "5"]  # type: ignore[union-attr]
    with pytest.raises(ProblemError) as error:
        client.pull("t", 0, shard=7)
    assert (error.value.status, error.value.type) == (404, "shard-unknown")


def test_a_long_poll_of_another_shard_is_answered_at_an_arrival(shards: Cluster) -> None:
    with shards.client(1, token=ADMIN, shard=1) as other:
        other.create_topic("poll", queues=1)
        with shards.client(0, token=CONSUME) as client:
            arrival = threading.Timer(0.2, other.produce, ("poll", [NewMessage(body="came")]))
            arrival.start()
            found = client.pull("poll", 0, 0, wait_s=20.0, shard=1)
            arrival.join()
    assert [(message.body, message.shard) for message in found.messages] == [("came", 1)]


@pytest.mark.parametrize("at", [0, 1])
def test_a_shard_that_a_request_names_answers_for_itself_alone(shards: Cluster, at: int) -> None:
    with shards.client(at, token=CONSUME, shard=1) as client:
        page = client.messages_by_key("t", "k", limit=64)
    assert {message.shard for message in page.messages} == {1}
    assert page.shards is None and page.complete


def test_a_cursor_that_was_changed_or_is_of_another_query_is_refused(client: Client) -> None:
    cursor = client.messages_by_key("t", "k", limit=3).next
    assert cursor is not None
    packed = bytearray(base64.urlsafe_b64decode(cursor))
    for place in range(len(packed)):
        packed[place] ^= 1
        with pytest.raises(ProblemError) as error:
            client.messages_by_key("t", "k", cursor=base64.urlsafe_b64encode(packed).decode())
        assert error.value.type == "bad-cursor"
        packed[place] ^= 1
    calls: list[Callable[[], object]] = [
        lambda: client.messages_by_key("t", "other", cursor=cursor),
        lambda: client.messages_by_time("t", cursor=cursor),
        lambda: client.messages_by_key("t", "k", cursor=cursor[:-4]),
    ]
    for call in calls:
        with pytest.raises(ProblemError) as error:
            call()
        assert error.value.type == "bad-cursor"


def test_what_was_passed_on_is_not_passed_on_again(shards: Cluster) -> None:
    url = shards.shards[0].query.url
    headers = {"authorization": f"Bearer {CONSUME}", FORWARDED: "1"}
    mine = httpx.get(f"{url}/v1/topics/t/messages?key=k", headers=headers).json()
    assert {each["shard"] for each in mine["messages"]} == {0}
    assert "shards" not in mine
    for path in ("/v1/topics/t/queues/0/messages", "/v1/store"):
        answer = httpx.get(f"{url}{path}?shard=1", headers=headers)
        assert (answer.status_code, answer.json()["url"]) == (421, shards.shards[1].query.url)


def test_the_callers_own_token_is_what_counts_at_every_shard(shards: Cluster) -> None:
    url = shards.shards[0].query.url
    for path in ("/v1/topics/t/messages?key=k", "/v1/topics/t/queues/0/messages?shard=1"):
        assert httpx.get(url + path).status_code == 401
        wrong = {"authorization": "Bearer " + "x" * 30}
        assert httpx.get(url + path, headers=wrong).status_code == 401
    with _listening() as (port, requests):
        entry = {"shard": 2, "storeHost": store_host(2)}
        urls = {"writerUrl": f"http://127.0.0.1:{port}", "queryUrl": f"http://127.0.0.1:{port}"}
        shards.put_list(entry | urls)
        try:
            with shards.client(0, token=CONSUME, timeout_s=6 * TIMEOUT_S) as client:
                found = client.messages_by_key("t", "k", limit=64)
        finally:
            shards.put_list()
    assert found.shards is not None and found.shards.missing == (2,)  # the slow one: it never says
    assert "no answer within" in found.shards.why["2"]
    assert not found.complete and len(found.messages) == 20
    (search,) = [each for each in requests if not each.startswith("GET /healthz/")]
    assert f"authorization: bearer {CONSUME}" in search.lower()
    assert SYSTEM not in "".join(requests)


@contextlib.contextmanager
def _listening() -> Iterator[tuple[int, list[str]]]:
    """A server that takes requests, and answers none."""
    requests: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as taken:

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = taken.enter_context(listener.accept()[0])
                    requests.append(connection.recv(65536).decode())

        threading.Thread(target=take, daemon=True).start()
        yield listener.getsockname()[1], requests
        listener.shutdown(socket.SHUT_RDWR)


def test_a_shard_that_is_down_is_named_and_comes_back(tmp_path: Path) -> None:
    with cluster(tmp_path) as two:
        for number in range(2):
            with two.client(number, shard=number) as client:
                client.create_topic("t", queues=1)
                client.produce("t", [NewMessage(body=str(number), keys=("k",))])
        with two.client(0) as client:
            first = client.messages_by_key("t", "k", limit=1)
            assert [message.body for message in first.messages] == ["1"]
            ids = [each.offset_msg_id for each in client.messages_by_key("t", "k").messages]
            port = two.shards[1].query.port
            two.shards[1].query.kill()
            found = client.messages_by_key("t", "k")
            assert [message.body for message in found.messages] == ["0"]
            assert (found.complete, found.next) == (False, None)
            assert found.shards is not None
            assert (found.shards.requested, found.shards.missing) == ((0, 1), (1,))
            assert found.shards.why["1"]
            assert [each.shard for each in client.queues("t").queues] == [0]
            with pytest.raises(ProblemError) as error:
                client.message(ids[0])
            assert (error.value.type, error.value.problem["shard"]) == ("shard-unreachable", 1)
            _assert_many_are_found_without_one(client, ids, len(found.messages))
            with pytest.raises(ProblemError) as error:
                client.message("A" * 32, topic="t")
            assert error.value.type == "message-unknown"
            assert error.value.problem["complete"] is False
            assert error.value.problem["shards"]["missing"] == [1]
            with pytest.raises(ProblemError) as error:
                client.pull("t", 0, shard=1)
            assert error.value.type == "shard-unreachable"
            given = {"shards_file": two.listed, "store_host": store_host(1), "port": port}
            with query(tmp_path / "store-1", shard=1, **given):
                again = client.messages_by_key("t", "k", cursor=first.next)
                assert [message.body for message in again.messages] == ["0"]
                assert client.message(ids[0]).body == "1"


def test_a_trace_comes_from_the_messages_shard_whatever_expired_on_others(tmp_path: Path) -> None:
    small = {"mapped_file_size_commit_log": 1 << 20, "disk_max_used_space_ratio": 95}
    with cluster(tmp_path, clean_resource_interval=100, **small) as two:
        with two.client(0) as client:
            client.create_topic("t", queues=1)
            while client.store().segments < 2:
                client.produce("t", [NewMessage(body=b"x" * 200_000)], durability="async")
            for path in (two.root / "store-0" / "commitlog").iterdir():
                os.utime(path, (0, 0))
            client.run_retention()
            while client.store().segments > 1:
                time.sleep(0.02)
        with two.client(1) as client:
            [placed] = client.produce("t", [NewMessage(body="there")]).messages
        with two.client(0) as client:
            traced = client.trace(placed.offset_msg_id)
            assert [copy.shard for copy in traced.trace.copies] == [1]
            assert traced.trace.complete
            with pytest.raises(ProblemError) as error:
                client.trace(placed.offset_msg_id[:16] + f"{1 << 20:016X}")
            assert error.value.type == "message-unknown"


def test_tokens_are_in_no_log(shards: Cluster) -> None:
    """The last test of its module: the processes end here."""
    for each in shards.shards:
        for process in (each.query, each.writer):
            process.process.terminate()
            _, said = process.ended()
            assert all(token not in said for token in (ADMIN, CONSUME, SYSTEM))
            assert all(json.loads(line) for line in said.splitlines())


def _assert_many_are_found_without_one(client: Client, ids: list[str], there: int) -> None:
    """Look-ups of shard 0 have their results while shard 1, of the first id, is down."""
    lost, kept = client.messages_by_id(ids).results
    assert kept.message is not None and (kept.message.body, there) == ("0", 1)
    assert lost.problem is not None and lost.problem.type.endswith("shard-unreachable")
    unknown = client.messages_by_id(["none", kept.message.uniq_key or ""], topic="t")
    first, second = unknown.results
    assert first.problem is not None and first.problem.complete is False
    assert second.message == kept.message
    assert unknown.shards is not None and unknown.shards.missing == (1,)
    queues = [QueueName(topic="t", queue_id=0, shard=shard) for shard in (1, 0)]
    offsets = client.offsets_by_time(0, queues=queues, topics=["t"])
    assert [each.offset for each in offsets.results] == [None, 0, 0]
    assert offsets.results[0].problem is not None
    assert offsets.results[0].problem.type.endswith("shard-unreachable")
    assert offsets.shards is not None and offsets.shards.missing == (1,)
