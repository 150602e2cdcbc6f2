"""Requests that are sent again, over HTTP and over kills: nothing is lost or stored twice."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client, ClientError, NewMessage, Placed, ProblemError
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.services.service_processes import writer

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


class _Producers:
    """Threads that send requests until each was answered, over the writer's deaths."""

    def __init__(self, seed: int) -> None:
        self.answered: dict[str, Placed] = {}
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


def _check(store: Path, answered: dict[str, Placed]) -> None:
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
