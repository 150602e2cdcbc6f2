"""Requests that are sent again, over HTTP and over kills: nothing is lost or stored twice."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, ClientError, MessagePlace, NewMessage, ProblemError
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.services.service_processes import Run, writer

LOOPBACK = Host(b"\x7f\0\0\1", 0)
TOPIC = "again"
QUEUES = 2
PRODUCERS = 3
ROUNDS = int(os.environ.get("MQSTORE_KILL_ROUNDS", "4"))


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_repeat_is_answered_with_the_first_ones_place(
    client: Client, topic: str, durability: Any
) -> None:
    sent = NewMessage(body="once", uniq_key="order-1")
    (first,) = client.produce(topic, [sent]).messages
    (again,) = client.produce(topic, [sent], durability=durability).messages
    assert (first.repeat, again.repeat) == (False, True)
    assert again == first.model_copy(update={"repeat": True})
    assert len(client.pull(topic, 0).messages) == 1


def test_the_retry_of_a_batch_stores_what_is_missing(client: Client, topic: str) -> None:
    sent = [NewMessage(body=f"{n}", uniq_key=f"k{n}") for n in range(4)]
    client.produce(topic, sent[1:3])
    placed = client.produce(topic, sent).messages
    assert [each.queue_offset for each in placed] == [2, 0, 1, 3]
    assert [each.repeat for each in placed] == [False, True, True, False]
    assert [each.uniq_key for each in placed] == ["k0", "k1", "k2", "k3"]


def test_the_retry_of_a_large_batch_stores_what_is_missing(client: Client, topic: str) -> None:
    sent = [NewMessage(body=f"{n}", uniq_key=f"k{n}") for n in range(1_000)]
    first = client.produce(topic, sent[:900]).messages
    again = client.produce(topic, sent).messages
    assert [each.offset_msg_id for each in again[:900]] == [each.offset_msg_id for each in first]
    assert [each.repeat for each in again] == [True] * 900 + [False] * 100
    assert client.pull(topic, 0, 999).messages[-1].queue_offset == 999
    changed = [*sent[:999], NewMessage(body="other", uniq_key="k999")]
    with pytest.raises(ProblemError) as caught:
        client.produce(topic, changed)
    assert (caught.value.status, caught.value.type) == (409, "unique-key-taken")


def test_the_retry_of_a_large_batch_of_bytes_stores_what_is_missing(
    client: Client, topic: str
) -> None:
    def encode(count: int) -> bytes:
        hosts = LOOPBACK, LOOPBACK
        return encode_batch(
            [Message(topic, 0, b"b", b"UNIQ_KEY\x01u%d" % i, *hosts, 0) for i in range(count)]
        )

    first = client.produce_batch(topic, encode(900)).messages
    again = client.produce_batch(topic, encode(1_000)).messages
    assert [each.queue_offset for each in first] == list(range(900))
    assert [each.repeat for each in again] == [True] * 900 + [False] * 100
    assert client.pull(topic, 0, 999).messages[-1].queue_offset == 999


def test_another_body_under_a_key_is_a_conflict(client: Client, topic: str) -> None:
    client.produce(topic, [NewMessage(body="one", uniq_key="k")])
    with pytest.raises(ProblemError) as caught:
        client.produce(topic, [NewMessage(body="new"), NewMessage(body="two", uniq_key="k")])
    assert (caught.value.status, caught.value.type) == (409, "unique-key-taken")
    assert caught.value.problem["putStatus"] == "MESSAGE_ILLEGAL"
    assert len(client.pull(topic, 0).messages) == 1


def test_a_batch_of_a_rocketmq_client_is_known_by_its_unique_keys(
    client: Client, topic: str
) -> None:
    body = encode_batch(
        [
            Message(topic, 0, b"%d" % i, b"UNIQ_KEY\x01u%d" % i, LOOPBACK, LOOPBACK, 0)
            for i in (1, 2)
        ]
    )
    first = client.produce_batch(topic, body).messages
    again = client.produce_batch(topic, body).messages
    assert [each.queue_offset for each in again] == [each.queue_offset for each in first] == [0, 1]
    assert all(each.repeat for each in again)


def test_a_delayed_message_is_stored_once(client: Client, topic: str) -> None:
    sent = NewMessage(body="later", uniq_key="later", delay_level=18)
    (first,) = client.produce(topic, [sent]).messages
    (again,) = client.produce(topic, [sent]).messages
    assert again == first.model_copy(update={"repeat": True})


def post(url: str, topic: str, key: str, *bodies: str, **headers: str) -> httpx.Response:
    """A produce under an Idempotency-Key."""
    return httpx.post(
        f"{url}/v1/topics/{topic}/messages",
        json={"messages": [{"body": body} for body in bodies]},
        headers={"Idempotency-Key": key, **headers},
    )


def unique_keys(answer: httpx.Response) -> list[str]:
    return [each["uniqKey"] for each in answer.json()["messages"]]


@pytest.mark.parametrize("bodies", [("one",), ("one", "two", "three")])
def test_a_request_under_an_idempotency_key_is_stored_once(
    services: Run, client: Client, topic: str, bodies: tuple[str, ...]
) -> None:
    first = post(services.writer_url, topic, '"order-1"', *bodies).json()["messages"]
    retried = post(services.writer_url, topic, "order-1", *bodies)  # the same key, not quoted
    assert retried.status_code == 201
    assert retried.json()["messages"] == [each | {"repeat": True} for each in first]
    keys = ["order-1"] if len(bodies) == 1 else [f"order-1~{n}" for n in range(len(bodies))]
    assert unique_keys(retried) == keys
    assert len(client.pull(topic, 0).messages) == len(bodies)


@pytest.mark.parametrize(
    ("first", "then"),
    [("a", "b"), ("ab", "ac"), ("a", "ab"), ("ab", "a"), ("abc", "ab")],
)
def test_another_request_under_an_idempotency_key_is_a_conflict(
    services: Run, client: Client, topic: str, first: str, then: str
) -> None:
    assert post(services.writer_url, topic, "order-1", *first).status_code == 201
    refused = post(services.writer_url, topic, "order-1", *then)
    assert (refused.status_code, refused.json()["type"][-16:]) == (409, "unique-key-taken")
    assert len(client.pull(topic, 0).messages) == len(first)


def test_a_message_keeps_its_own_unique_key_beside_an_idempotency_key(
    services: Run, client: Client, topic: str
) -> None:
    sent = {"messages": [{"body": "a", "uniqKey": "mine"}, {"body": "b"}]}
    url, headers = f"{services.writer_url}/v1/topics/{topic}/messages", {"idempotency-key": "mine"}
    for is_repeat in (False, True):
        answer = httpx.post(url, json=sent, headers=headers)
        assert unique_keys(answer) == ["mine", "mine~1"]
        assert [each.get("repeat", False) for each in answer.json()["messages"]] == [is_repeat] * 2


@pytest.mark.parametrize("properties", [b"", b"TAGS\x01t", b"TAGS\x01t\x02"])
def test_an_idempotency_key_gives_a_batch_of_bytes_the_keys_that_it_lacks(
    services: Run, client: Client, topic: str, properties: bytes
) -> None:
    body = encode_batch(
        [
            Message(topic, 0, b"a", properties, LOOPBACK, LOOPBACK, 0),
            Message(topic, 0, b"b", b"UNIQ_KEY\x01own", LOOPBACK, LOOPBACK, 0),
        ]
    )
    for _ in range(2):
        answer = httpx.post(
            f"{services.writer_url}/v1/topics/{topic}/messages",
            content=body,
            headers={"content-type": "application/x-rocketmq-batch", "idempotency-key": "order-1"},
        )
        assert unique_keys(answer) == ["order-1~0", "own"]
    first, second = client.pull(topic, 0).messages
    tags = "t" if properties else None
    assert (first.body, first.uniq_key, first.tags) == ("a", "order-1~0", tags)
    assert (second.body, second.uniq_key) == ("b", "own")


def test_an_idempotency_key_holds_on_a_connection_that_is_used_again(
    services: Run, client: Client, topic: str
) -> None:
    """The head is read once for a connection, and the key is part of it."""
    with httpx.Client(base_url=services.writer_url) as one:
        url = f"/v1/topics/{topic}/messages"
        for number in (0, 1, 0, 1, 2):
            sent = {"messages": [{"body": f"{number}"}]}
            one.post(url, json=sent, headers={"idempotency-key": f"k{number}"})
            one.post(url, json=sent)  # without a key: stored again
    stored = [each.body for each in client.pull(topic, 0, max_messages=20).messages]
    assert sorted(map(str, stored)) == sorted("0" * 3 + "1" * 3 + "2" * 2)


@pytest.mark.parametrize(
    "key", ["", '""', "a b", "a/b", "a~1", 'a"', '"a', '"a";p=1', "\u00e9", "x" * 256]
)
def test_what_is_no_idempotency_key_is_refused(
    services: Run, client: Client, topic: str, key: str
) -> None:
    headers = [(b"idempotency-key", key.encode("latin-1"))]
    url = f"{services.writer_url}/v1/topics/{topic}/messages"
    answer = httpx.post(url, json={"messages": [{"body": "a"}]}, headers=headers)
    assert (answer.status_code, answer.json()["type"][-13:]) == (400, "bad-parameter")
    assert "Idempotency-Key" in answer.json()["detail"]
    assert not client.pull(topic, 0).messages


def test_two_idempotency_keys_are_refused(services: Run, client: Client, topic: str) -> None:
    headers = [("idempotency-key", "a"), ("idempotency-key", "a")]
    url = f"{services.writer_url}/v1/topics/{topic}/messages"
    answer = httpx.post(url, json={"messages": [{"body": "a"}]}, headers=headers)
    assert answer.status_code == 400 and "2 times" in answer.json()["detail"]


class _Producers:
    """Threads that send requests until each was answered, over the writer's deaths."""

    def __init__(self, seed: int) -> None:
        self.answered: dict[str, MessagePlace] = {}
        self.changed = threading.Condition()
        self._random = [random.Random(f"{seed}/{number}") for number in range(PRODUCERS)]
        self._unanswered: list[list[NewMessage] | None] = [None] * PRODUCERS
        self._next = [0] * PRODUCERS

    def start(self, url: str) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._produce, args=(url, number))
            for number in range(PRODUCERS)
        ]
        for thread in threads:
            thread.start()
        return threads

    def await_count(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.answered) >= count, 60)

    def _produce(self, url: str, number: int) -> None:
        durability: Any = ("sync", "async")[number % 2]
        with Client(url) as client:
            try:
                while True:
                    request = self._unanswered[number] or self._draw(number)
                    self._unanswered[number] = request
                    placed = client.produce(TOPIC, request, durability=durability).messages
                    self._unanswered[number] = None
                    with self.changed:
                        self.answered |= {each.uniq_key: each for each in placed}
                        self.changed.notify_all()
            except ClientError:
                return

    def _draw(self, number: int) -> list[NewMessage]:
        random_, first = self._random[number], self._next[number]
        self._next[number] += (count := random_.choice((1, 1, 5, 20)))
        names = [f"{number}.{sequence}" for sequence in range(first, first + count)]
        return [
            NewMessage(body=name + "#" * random_.randrange(3000), uniq_key=name) for name in names
        ]


@pytest.mark.slow
def test_clients_that_retry_over_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    store = tmp_path / "store"
    producers = _Producers(seed)
    with (
        writer(store, mapped_file_size_commit_log=1 << 20) as process,
        Client(process.url) as client,
    ):
        client.create_topic(TOPIC, queues=QUEUES)
    for round_number in range(ROUNDS):
        with writer(store, transient_store_pool_enable=round_number % 2 == 1) as process:
            threads = producers.start(process.url)
            producers.await_count(len(producers.answered) + random_.randrange(1, 800))
            process.kill()
            for thread in threads:
                thread.join()
    with writer(store) as process:
        threads = producers.start(process.url)
        producers.await_count(len(producers.answered) + 100)
        process.process.terminate()
        assert process.ended()[0] == 0
        for thread in threads:
            thread.join()
    _check(store, producers.answered)


def _check(store: Path, answered: dict[str, MessagePlace]) -> None:
    seen: Counter[str] = Counter()
    with StoreReader.open(store, production_seams()) as reader:
        for queue_id in range(QUEUES):
            offset = 0
            end = reader.lookups.queue_range(TOPIC, queue_id).max_offset
            while offset < end:
                pull = reader.lookups.records(TOPIC, queue_id, offset, 1000)
                assert not pull.unreadable
                for found in pull.records:
                    name = found.body.decode().rstrip("#")
                    seen[name] += 1
                    if name in answered:
                        assert answered[name].queue_offset == found.queue_offset
                        assert answered[name].physical_offset == found.physical_offset
                offset = pull.next_offset
    assert answered.keys() <= seen.keys()
    assert [name for name, count in seen.items() if count > 1] == []
