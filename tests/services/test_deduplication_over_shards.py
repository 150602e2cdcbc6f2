"""Messages under unique keys over several shards: real processes, lost replies, a death."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from mqstore.client import (
    AsyncClient,
    Client,
    MessagePlace,
    NewMessage,
    ProblemError,
    ProduceReply,
)
from mqstore.service.key_shards import shard_of
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.wire import unique_keys
from tests.services.service_processes import Process, writer
from tests.services.shard_processes import Cluster, cluster, store_host

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


def key_of(shard: int, name: str = "k") -> str:
    """A key that the two shards' hash gives to ``shard``."""
    keys = (f"{name}{number}" for number in itertools.count())
    return next(key for key in keys if shard_of(key, [0, 1]) == shard)


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


def by_client(url: str, topic: str, key: str) -> ProduceReply:
    with Client(url, token=TOKENS["admin"]) as client:
        message = NewMessage(body="x", uniq_key=key)
        return client.produce(topic, [message], durability="sync", patience_s=20.0)


def by_async_client(url: str, topic: str, key: str) -> ProduceReply:
    async def send() -> ProduceReply:
        async with AsyncClient(url, token=TOKENS["admin"]) as client:
            return await client.produce(
                topic, [NewMessage(body="x", uniq_key=key)], patience_s=20.0
            )

    return asyncio.run(send())


def by_batch(url: str, topic: str, key: str) -> ProduceReply:
    message = Message(topic, 0, b"x", f"UNIQ_KEY\x01{key}".encode(), LOOPBACK, LOOPBACK, 0)
    with Client(url, token=TOKENS["admin"]) as client:
        return client.produce_batch(topic, encode_batch([message]), patience_s=20.0)


def by_a_loop_of_its_own(url: str, topic: str, key: str) -> ProduceReply:
    with Client(url, token=TOKENS["admin"]) as client:
        while True:
            with contextlib.suppress(Exception):
                return client.produce(topic, [NewMessage(body="x", uniq_key=key)])


@pytest.mark.parametrize("home", [0, 1])
@pytest.mark.parametrize("produce", [by_client, by_async_client, by_batch, by_a_loop_of_its_own])
def test_a_message_whose_answer_was_lost_is_stored_once(
    shards: Cluster, topic: str, produce: Any, home: int
) -> None:
    first, second = (each.writer for each in shards.shards)
    key = key_of(home)
    with losing_address(first, second) as url:
        (placed,) = produce(url, topic, key).messages
    assert (placed.shard, placed.repeat, placed.uniq_key) == (home, True, key)
    assert stored(shards, topic) == 1


@pytest.mark.parametrize("home", [0, 1])
def test_a_generated_key_names_the_shard(shards: Cluster, topic: str, home: int) -> None:
    message = NewMessage(body="x", uniq_key=unique_keys.generate(home))
    with at(shards, 0) as one, at(shards, 1) as other:
        (first,) = one.produce(topic, message).messages
        (second,) = other.produce(topic, message).messages
    assert (first.shard, second) == (home, first.model_copy(update={"repeat": True}))


def test_a_generated_key_of_a_removed_shard_belongs_to_another_one(
    shards: Cluster, topic: str
) -> None:
    message = NewMessage(body="x", uniq_key=unique_keys.generate(7))
    with at(shards, 0) as one, at(shards, 1) as other:
        (first,) = one.produce(topic, message).messages
        (second,) = other.produce(topic, message).messages
    assert second == first.model_copy(update={"repeat": True})
    assert stored(shards, topic) == 1


def batch_of(topic: str, keys: list[str], bodies: list[str]) -> bytes:
    return encode_batch(
        [
            Message(topic, 0, body.encode(), f"UNIQ_KEY\x01{key}".encode(), LOOPBACK, LOOPBACK, 0)
            for key, body in zip(keys, bodies, strict=True)
        ]
    )


@pytest.mark.parametrize("is_json", [True, False])
def test_a_request_whose_keys_name_several_shards_is_divided(
    shards: Cluster, topic: str, is_json: bool
) -> None:
    """Any part of it, sent to any shard, is found again."""
    homes = [1, 0, 0, 1]
    keys = [key_of(home, f"m{number}-") for number, home in enumerate(homes)]

    def send(client: Client, numbers: list[int]) -> list[MessagePlace]:
        sent, bodies = [keys[each] for each in numbers], [f"{each}" for each in numbers]
        if not is_json:
            return list(client.produce_batch(topic, batch_of(topic, sent, bodies)).messages)
        pairs = zip(sent, bodies, strict=True)
        messages = [NewMessage(body=body, uniq_key=key, tags="t") for key, body in pairs]
        return list(client.produce(topic, messages, durability="sync").messages)

    with at(shards, 0) as one, at(shards, 1) as other:
        placed = send(one, [0, 1, 2, 3])
        assert [each.shard for each in placed] == homes
        assert [each.uniq_key for each in placed] == keys
        for client in (one, other):
            for numbers in ([0, 1, 2, 3], [3, 1], [2]):
                again = [placed[each].model_copy(update={"repeat": True}) for each in numbers]
                assert send(client, numbers) == again
    assert stored(shards, topic) == 4


def test_messages_without_a_key_go_with_those_that_have_one(shards: Cluster, topic: str) -> None:
    sent = [NewMessage(body="a"), NewMessage(body="b", uniq_key=key_of(1))]
    with at(shards, 0) as client:
        assert [each.shard for each in client.produce(topic, sent).messages] == [1, 1]
        assert client.produce(topic, NewMessage(body="c")).messages[0].shard == 0


def test_a_shard_that_is_named_stores_what_it_gets(shards: Cluster, topic: str) -> None:
    with at(shards, 0) as client:
        message = NewMessage(body="a", uniq_key=key_of(1))
        assert client.produce(topic, message, shard=0).messages[0].shard == 0


@pytest.mark.parametrize("home", [0, 1])
def test_an_idempotency_key_chooses_the_shard_of_the_whole_request(
    shards: Cluster, topic: str, home: int
) -> None:
    sent = {"messages": [{"body": "a"}, {"body": "b"}]}
    key = key_of(home)
    headers = {"idempotency-key": key, "authorization": f"Bearer {TOKENS['admin']}"}
    first, second = (
        httpx.post(
            f"{each.writer.url}/v1/topics/{topic}/messages", json=sent, headers=headers
        ).json()["messages"]
        for each in shards.shards
    )
    assert [each["shard"] for each in first] == [home, home]
    assert second == [each | {"repeat": True} for each in first]
    assert stored(shards, topic) == 2
    with at(shards, 1) as client:  # a part of it, by the unique keys that follow from the key
        (again,) = client.produce(topic, NewMessage(body="b", uniq_key=f"{key}~1")).messages
    assert (again.shard, again.repeat) == (home, True)


def test_another_body_at_another_shard_is_a_conflict(shards: Cluster, topic: str) -> None:
    with at(shards, 0) as one, at(shards, 1) as other:
        one.produce(topic, [NewMessage(body="one", uniq_key="k")])
        with pytest.raises(ProblemError) as caught:
            other.produce(topic, [NewMessage(body="two", uniq_key="k")])
    assert (caught.value.status, caught.value.type) == (409, "unique-key-taken")
    assert stored(shards, topic) == 1


def test_duplicates_at_several_shards_at_one_time_are_stored_once(
    shards: Cluster, topic: str
) -> None:
    with at(shards, 0) as one, at(shards, 1) as other, ThreadPoolExecutor(8) as pool:

        def send(number: int) -> str:
            message = NewMessage(body="x", uniq_key=f"k{number // 2}")
            client = (one, other)[number % 2]
            sent = client.produce(topic, [message], patience_s=60.0)
            return sent.messages[0].offset_msg_id

        ids = list(pool.map(send, range(40)))
    assert ids[0::2] == ids[1::2]
    assert stored(shards, topic) == 20


def test_a_key_waits_for_its_shard_and_a_generated_one_goes_to_another(
    shards: Cluster, topic: str
) -> None:
    """The last test of its module: a shard is killed."""
    sent, down = NewMessage(body="x", uniq_key=key_of(0)), shards.shards[0].writer
    with at(shards, 0) as client:
        first = client.produce(topic, sent, durability="sync").messages[0]
        generated = client.produce(topic, NewMessage(body="y"), patience_s=60.0).messages[0]
        assert unique_keys.shard_of(generated.uniq_key) in (0, 1, None)
    down.kill()
    with at(shards, 1) as client, ThreadPoolExecutor(1) as pool:
        with pytest.raises(ProblemError) as caught:
            client.produce(topic, sent)
        assert (caught.value.status, caught.value.type) == (503, "shard-unreachable")
        problem = caught.value.problem
        assert (problem["shard"], problem["sent"], problem["writable"]["shard"]) == (0, False, 1)
        assert caught.value.retry_after_s == 1
        client._up = 0  # it was, when this client sent last
        moved = client.produce(topic, NewMessage(body="z"), patience_s=60.0).messages[0]
        assert (moved.shard, unique_keys.shard_of(moved.uniq_key)) == (1, 1)
        again = pool.submit(client.produce, topic, sent, patience_s=60.0)
        settings = {"shards_file": shards.listed, "store_host": store_host(0)}
        with writer(shards.root / "store-0", port=down.port, **settings, **shards.settings):
            assert again.result().messages == (first.model_copy(update={"repeat": True}),)
            assert stored(shards, topic) == 3
