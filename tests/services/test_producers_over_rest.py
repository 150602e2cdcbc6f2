"""The client's producers over a real store-writer: order, duplicates, refusals, a kill."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.client import AsyncClient, Client, Delivery, NewMessage, ProblemError
from tests.long_runs import few_first
from tests.services.service_processes import ServicePair, writer

QUEUES = 4


@pytest.fixture
def client(pair: ServicePair) -> Iterator[Client]:
    with pair.client() as made:
        yield made


def stored(client: Client, topic: str) -> list[list[str]]:
    """The bodies of each queue of a topic, in order."""
    found: list[list[str]] = []
    for queue in range(QUEUES):
        bodies: list[str] = []
        offset: int | None = None
        while (pulled := client.pull(topic, queue, offset=offset, max_messages=1_000)).messages:
            bodies += [each.body or "" for each in pulled.messages]
            offset = pulled.next
        found.append(bodies)
    return found


def test_threads_produce_in_order_under_their_keys(client: Client) -> None:
    client.create_topic("ordered", queues=QUEUES)
    names = [f"customer-{number}" for number in range(8)]
    with client.producer("ordered", batch_max=50) as producer:

        def send(name: str) -> None:
            for number in range(200):
                producer.send(NewMessage(body=f"{name} {number}", ordering_key=name))

        threads = [threading.Thread(target=send, args=(name,)) for name in names]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    queues = stored(client, "ordered")
    for name in names:
        found = [[body for body in each if body.startswith(f"{name} ")] for each in queues]
        assert sorted(found)[-1] == [f"{name} {number}" for number in range(200)]
        assert sum(map(len, found)) == 200


def test_a_message_goes_to_its_topic_and_queue(client: Client) -> None:
    for topic in ("first", "second"):
        client.create_topic(topic, queues=QUEUES)
    with client.producer("first") as producer:
        places = [
            producer.send("a"),
            producer.send("b", topic="second"),
            producer.send(NewMessage(body="c", queue_id=3)),
        ]
    assert places[2].result().queue_id == 3
    assert sum(map(len, stored(client, "first"))) == 2
    assert sum(map(len, stored(client, "second"))) == 1


def test_bad_messages_fail_alone(client: Client) -> None:
    client.create_topic("mixed", queues=QUEUES)
    ends: list[Delivery] = []
    with client.producer("mixed", linger_ms=1_000, on_delivery=ends.append) as producer:
        sent = [
            producer.send(
                NewMessage(body=str(number), keys=["two words"] if number % 10 == 3 else [])
            )
            for number in range(50)
        ]
        sent.append(producer.send("x" * (5 << 20)))
        sent.append(producer.send("no topic", topic="unknown"))
    failed = {number for number, each in enumerate(sent) if each.exception() is not None}
    assert failed == {3, 13, 23, 33, 43, 50, 51}
    assert isinstance(sent[51].exception(), ProblemError)
    assert sum(map(len, stored(client, "mixed"))) == 45
    assert Counter(each.error is None for each in ends) == {True: 45, False: 7}


def test_a_batch_over_the_limits_of_the_service_is_divided(tmp_path: Path) -> None:
    with writer(tmp_path / "store", max_batch_count=10) as process, Client(process.url) as client:
        client.create_topic("small", queues=1)
        with client.producer("small", linger_ms=1_000) as producer:
            sent = [producer.send(str(number)) for number in range(95)]
        assert [each.result().queue_offset for each in sent] == list(range(95))


def test_tasks_share_a_producer(pair: ServicePair, client: Client) -> None:
    client.create_topic("tasks", queues=QUEUES)

    async def produce() -> None:
        async with AsyncClient(pair.writer.url) as made, made.producer("tasks") as producer:

            async def send(number: int) -> int:
                sent = await producer.send(NewMessage(body=str(number), ordering_key="k"))
                return (await sent).queue_id

            assert len(set(await asyncio.gather(*[send(each) for each in range(100)]))) == 1

    asyncio.run(produce())
    assert sorted(map(len, stored(client, "tasks"))) == [0, 0, 0, 100]


@pytest.mark.parametrize("key", few_first(["customer-7", None]))
@pytest.mark.slow
def test_each_message_is_stored_once_when_the_store_writer_is_killed(
    tmp_path: Path, key: str | None
) -> None:
    root = tmp_path / "store"
    count = 3_000
    half = threading.Semaphore(0)

    def note(delivery: Delivery) -> None:
        assert delivery.error is None
        half.release()

    with writer(root) as process:
        port = int(process.url.rpartition(":")[2])
        with Client(process.url) as client:
            client.create_topic("killed", queues=1)
            producer = client.producer("killed", batch_max=20, linger_ms=0, on_delivery=note)
            with producer:
                sent = [
                    producer.send(NewMessage(body=str(number), ordering_key=key))
                    for number in range(count)
                ]
                for _ in range(count // 4):
                    half.acquire()
                process.kill()
                with writer(root, port=port):
                    producer.flush()
                    offsets = [each.result().queue_offset for each in sent]
    assert offsets == list(range(count))
