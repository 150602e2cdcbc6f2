"""Produces that are sent again and reach another shard: real processes, lost answers, a death."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from mqstore.client import AsyncClient, Client, NewMessage, ProblemError, Produced
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from tests.services.service_processes import Process, writer
from tests.services.shard_processes import Cluster, RunningShard, cluster, store_host

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shards")]
LOOPBACK = Host(b"\x7f\0\0\1", 0)
TOKENS = {role: f"{role}-token-0123456789" for role in ("admin", "system")}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings: dict[str, Any] = {f"token_{role}": token for role, token in TOKENS.items()}
    with cluster(tmp_path_factory.mktemp("shards"), **settings) as found:
        yield found


def at(shards: Cluster, number: int, **more: Any) -> Client:
    return shards.client(number, token=TOKENS["admin"], **more)


@pytest.fixture
def topic(shards: Cluster) -> str:
    with at(shards, 0) as client:
        return client.create_topic(uuid.uuid4().hex, queues=1).topic


def stored(shards: Cluster, topic: str) -> int:
    """Messages of a topic over all shards."""
    with at(shards, 0) as client:
        shown = client.delete_topic(topic, dry_run=True)
    assert shown.shards is not None and not shown.shards.missing
    return shown.messages


def repeats_counted(shard: RunningShard) -> float:
    text = httpx.get(f"{shard.writer.url}/metrics").text
    found = re.search(r"^mqstore_repeats_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


@contextlib.contextmanager
def losing_address(first: Process, then: Process) -> Iterator[str]:
    """One address of two shards: what the first connection is answered is lost, all others are the
    second one's."""
    backends = itertools.chain([first], itertools.repeat(then))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    backend = next(backends)
                    threading.Thread(target=pass_on, args=(client, backend), daemon=True).start()

        def pass_on(client: socket.socket, backend: Process) -> None:
            with client, socket.create_connection(("127.0.0.1", backend.port)) as service:
                back = threading.Thread(target=pump, args=(service, client, backend is first))
                back.start()
                pump(client, service, False)
                back.join()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def pump(source: socket.socket, sink: socket.socket, is_lost: bool) -> None:
    with contextlib.suppress(OSError):
        while (data := source.recv(65536)) and not is_lost:
            sink.sendall(data)
        for each in (source, sink):
            each.shutdown(socket.SHUT_RDWR)


def by_client(url: str, topic: str) -> Produced:
    with Client(url, token=TOKENS["admin"]) as client:
        message = NewMessage(body="x", uniq_key="k")
        return client.produce(topic, [message], durability="sync", patience_s=20.0)


def by_async_client(url: str, topic: str) -> Produced:
    async def send() -> Produced:
        async with AsyncClient(url, token=TOKENS["admin"]) as client:
            return await client.produce(
                topic, [NewMessage(body="x", uniq_key="k")], patience_s=20.0
            )

    return asyncio.run(send())


def by_batch(url: str, topic: str) -> Produced:
    message = Message(topic, 0, b"x", b"UNIQ_KEY\x01k", LOOPBACK, LOOPBACK, 0)
    with Client(url, token=TOKENS["admin"]) as client:
        return client.produce_batch(topic, encode_batch([message]), patience_s=20.0)


def by_a_loop_of_its_own(url: str, topic: str) -> Produced:
    with Client(url, token=TOKENS["admin"]) as client:
        while True:
            with contextlib.suppress(Exception):
                return client.produce(topic, [NewMessage(body="x", uniq_key="k")])


@pytest.mark.parametrize("produce", [by_client, by_async_client, by_batch, by_a_loop_of_its_own])
def test_a_message_whose_answer_was_lost_is_stored_once(
    shards: Cluster, topic: str, produce: Any
) -> None:
    first, second = (each.writer for each in shards.shards)
    with losing_address(first, second) as url:
        (placed,) = produce(url, topic).messages
    assert (placed.shard, placed.repeat, placed.uniq_key) == (0, True, "k")
    assert stored(shards, topic) == 1


def test_what_no_shard_has_is_stored_by_the_one_that_got_the_repeat(
    shards: Cluster, topic: str
) -> None:
    sent = [NewMessage(body=f"{n}", uniq_key=f"k{n}") for n in range(4)]
    counted = repeats_counted(shards.shards[1])
    with at(shards, 0) as one, at(shards, 1) as other:
        there = one.produce(topic, sent[1:3]).messages
        placed = other.produce(topic, sent, repeat=True).messages
        assert [(each.shard, each.repeat) for each in placed] == [
            *((1, False), (0, True), (0, True), (1, False))
        ]
        assert [each.uniq_key for each in placed] == ["k0", "k1", "k2", "k3"]
        assert repeats_counted(shards.shards[1]) == counted + 2
        assert [each.offset_msg_id for each in placed[1:3]] == [
            each.offset_msg_id for each in there
        ]
        for client in (one, other):  # whichever is asked from now on
            again = client.produce(topic, sent, repeat=True).messages
            assert [(each.shard, each.repeat) for each in again] == [
                *((1, True), (0, True), (0, True), (1, True))
            ]
    assert stored(shards, topic) == 4


def test_a_request_under_an_idempotency_key_is_known_by_the_other_shards(
    shards: Cluster, topic: str
) -> None:
    sent = {"messages": [{"body": "a"}, {"body": "b"}]}
    headers = {"idempotency-key": "k", "authorization": f"Bearer {TOKENS['admin']}"}
    first, second = (
        httpx.post(
            f"{each.writer.url}/v1/topics/{topic}/messages", json=sent, headers=headers | repeat
        ).json()["messages"]
        for each, repeat in zip(shards.shards, ({}, {"x-mqstore-repeat": "1"}), strict=False)
    )
    assert second == [each | {"repeat": True} for each in first]
    assert stored(shards, topic) == 2


def test_another_body_on_another_shard_is_a_conflict(shards: Cluster, topic: str) -> None:
    with at(shards, 0) as one, at(shards, 1) as other:
        one.produce(topic, [NewMessage(body="one", uniq_key="k")])
        with pytest.raises(ProblemError) as caught:
            other.produce(topic, [NewMessage(body="two", uniq_key="k")], repeat=True)
    assert (caught.value.status, caught.value.type) == (409, "unique-key-taken")
    assert stored(shards, topic) == 1


def test_an_attempt_that_is_still_on_its_way_is_not_stored_behind_its_repeat(
    shards: Cluster, topic: str
) -> None:
    body = json.dumps({"messages": [{"body": "x", "uniqKey": "k"}]}).encode()
    head = f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nhost: localhost\r\n"
    head += f"authorization: Bearer {TOKENS['admin']}\r\ncontent-type: application/json\r\n"
    head += f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shards.shards[0].writer.port)) as slow:
        slow.sendall(head.encode() + body[:-1])
        with at(shards, 1) as client:
            (placed,) = client.produce(
                topic, [NewMessage(body="x", uniq_key="k")], repeat=True
            ).messages
        slow.sendall(body[-1:])
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 503") and b"repeat-ambiguous" in answer
    with at(shards, 0) as client:
        (again,) = client.produce(topic, [NewMessage(body="x", uniq_key="k")], repeat=True).messages
    assert again == placed.model_copy(update={"repeat": True})
    assert stored(shards, topic) == 1


def test_repeats_at_several_shards_at_one_time_are_stored_once(shards: Cluster, topic: str) -> None:
    with at(shards, 0) as one, at(shards, 1) as other, ThreadPoolExecutor(8) as pool:

        def send(number: int) -> str:
            message = NewMessage(body="x", uniq_key=f"k{number // 2}")
            client = (one, other)[number % 2]
            sent = client.produce(topic, [message], repeat=True, patience_s=60.0)
            return sent.messages[0].offset_msg_id

        ids = list(pool.map(send, range(40)))
    assert ids[0::2] == ids[1::2]
    assert stored(shards, topic) == 20


def test_a_header_that_is_no_repeat_is_refused(shards: Cluster, topic: str) -> None:
    answer = httpx.post(
        f"{shards.shards[0].writer.url}/v1/topics/{topic}/messages",
        json={"messages": [{"body": "x"}]},
        headers={"authorization": f"Bearer {TOKENS['admin']}", "x-mqstore-repeat": "yes"},
    )
    assert (answer.status_code, stored(shards, topic)) == (400, 0)


def test_a_repeat_waits_for_a_shard_that_is_down_and_all_else_does_not(
    shards: Cluster, topic: str
) -> None:
    """The last test of its module: a shard is killed."""
    sent, down = [NewMessage(body="x", uniq_key="k")], shards.shards[0].writer
    with at(shards, 0) as client:
        first = client.produce(topic, sent, durability="sync").messages[0]
    down.kill()
    with at(shards, 1) as client, ThreadPoolExecutor(1) as pool:
        with pytest.raises(ProblemError) as caught:
            client.produce(topic, sent, repeat=True)
        assert (caught.value.status, caught.value.type) == (503, "repeat-ambiguous")
        assert caught.value.problem["shards"]["missing"] == [0]
        assert caught.value.retry_after_s == 1
        for more in ({}, {"repeat": True}, {"repeat": True, "shard": 1}):
            message = NewMessage(body="new", uniq_key="new")  # known here from the first time on
            assert client.produce(topic, [message], **more).messages[0].shard == 1
        again = pool.submit(client.produce, topic, sent, repeat=True, patience_s=60.0)
        settings = {"shards_file": shards.listed, "store_host": store_host(0)}
        with writer(shards.root / "store-0", port=down.port, **settings, **shards.settings):
            assert again.result().messages == (first.model_copy(update={"repeat": True}),)
            assert stored(shards, topic) == 2
