"""The client's ordered consumers over real services: order, hand-over, ends, kills."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue as Hand

import pytest

from mqstore.client import AsyncClient, Client, ConsumedMessage, NewMessage, ProblemError
from tests.forked_processes import start_program
from tests.services.service_processes import ServicePair, writer

LATER_S = 60
"""For what must come: no test waits so long."""


@pytest.fixture
def client(pair: ServicePair) -> Iterator[Client]:
    with pair.client() as made:
        yield made


def produce(client: Client, topic: str, keys: int, count: int, *, queues: int = 4) -> None:
    """Store ``count`` messages under each of some keys, as ``KEY NUMBER``."""
    client.create_topic(topic, queues=queues)
    client.produce(
        topic,
        [
            NewMessage(body=f"{key} {number}", ordering_key=f"key-{key}")
            for number in range(count)
            for key in range(keys)
        ],
    )


def is_in_order(bodies: list[str], keys: int, count: int) -> bool:
    """Whether each key's messages came in order, none was skipped, and repeats went back."""
    following: dict[str, int] = defaultdict(int)
    for body in bodies:
        key, number = body.split()
        if int(number) > following[key]:
            return False
        following[key] = int(number) + 1
    return set(following.values()) == {count} and len(following) == keys


def test_messages_of_a_key_come_in_order(client: Client) -> None:
    produce(client, "looped", 6, 10)
    got: list[str] = []
    with client.ordered_consumer("looping", "looped", prefetch=7) as consumer:
        for message in consumer:
            got.append(message.body or "")
            message.ack()
            if len(got) == 60:
                consumer.stop()
    assert is_in_order(got, 6, 10)
    assert len(set(got)) == 60
    assert client.members("looping").members == ()
    assert client.lag("looping", topic="looped").lag == 0


def test_threads_handle_several_queues_and_one_message_of_each(client: Client) -> None:
    produce(client, "handled", 12, 10)
    got: list[str] = []
    busy: set[int] = set()
    lock, consumer = threading.Lock(), client.ordered_consumer("handling", "handled", concurrency=4)

    def handle(message: ConsumedMessage) -> None:
        with lock:
            assert message.queue_id not in busy
            busy.add(message.queue_id)
        with lock:
            got.append(message.body or "")
            busy.remove(message.queue_id)
            if len(set(got)) == 120:
                consumer.stop()

    with consumer:
        consumer.run(handle)
    assert is_in_order(got, 12, 10)


def test_a_returned_message_comes_again_before_the_next_one(client: Client) -> None:
    produce(client, "returned", 1, 4, queues=1)
    client.put_group("returning", retry_times_max=2)
    got: list[tuple[str | None, int]] = []
    with client.ordered_consumer("returning", "returned") as consumer:
        for message in consumer:
            got.append((message.body, message.delivery_attempt))
            if message.body == "0 1":
                message.nack(delay_s=0.01, reason="never")
            else:
                message.ack()
            if message.body == "0 3":
                consumer.stop()
    assert got == [("0 0", 1), ("0 1", 1), ("0 1", 2), ("0 1", 3), ("0 2", 1), ("0 3", 1)]
    (letter,) = client.dead_letters("returning").messages
    assert (letter.body, letter.reason) == ("0 1", "never")


def test_queues_are_handed_over_at_a_join_and_an_end(client: Client) -> None:
    produce(client, "shared-out", 20, 5)
    with client.ordered_consumer("sharing", "shared-out", member="a", session_s=3) as first:
        held = next(iter(first))
        with client.ordered_consumer("sharing", "shared-out", member="b", session_s=3) as second:
            other = next(iter(second))
            assert other.queue_id != held.queue_id
            other.ack()
            second.flush()
            held.ack()
            first.flush()
        seen = [held.body or "", other.body or ""]
        for message in first:
            seen.append(message.body or "")
            message.ack()
            if len(seen) == 100:
                first.stop()
    assert is_in_order(seen, 20, 5)
    assert len(set(seen)) == 100


def test_a_group_that_is_shared_is_refused(client: Client) -> None:
    produce(client, "taken", 1, 2)
    assert client.receive("taking", "taken").messages
    with (
        client.ordered_consumer("taking", "taken") as consumer,
        pytest.raises(ProblemError, match="shared"),
    ):
        next(iter(consumer))


def test_values_out_of_range_are_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="session_s"):
        client.ordered_consumer("g", "T", session_s=0)
    produce(client, "valued", 1, 1)
    with client.ordered_consumer("valuing", "valued") as consumer:
        message = next(iter(consumer))
        for wrong in ({"delay_level": 19}, {"delay_s": -1.0}):
            with pytest.raises(ValueError, match="give 0 to"):
                message.nack(**wrong)


def test_an_ordered_consumer_for_asyncio(client: Client, pair: ServicePair) -> None:
    produce(client, "awaited", 3, 5)
    got: list[str] = []

    async def consume() -> None:
        async with (
            AsyncClient(pair.writer_url, pair.query_url) as asynchronous,
            asynchronous.ordered_consumer("awaiting", "awaited") as consumer,
        ):
            async for message in consumer:
                got.append(message.body or "")
                message.ack()
                if len(got) == 15:
                    consumer.stop()

    asyncio.run(consume())
    assert is_in_order(got, 3, 5)


@pytest.mark.slow
def test_messages_stay_in_order_over_kills_of_the_store_writer(tmp_path: Path) -> None:
    root, got, keys, count = tmp_path / "store", Hand[str](), 8, 40
    with ExitStack() as later, writer(root, flush_consumer_offset_interval=20) as process:
        port = process.port
        with Client(process.url) as client:
            produce(client, "killed", keys, count)
            with client.ordered_consumer(
                "killing", "killed", prefetch=5, session_s=600
            ) as consumer:

                def consume() -> None:
                    for message in consumer:
                        message.ack()
                        got.put(message.body or "")

                working = threading.Thread(target=consume)
                working.start()
                seen = [got.get(timeout=LATER_S) for _ in range(40)]
                process.kill()
                later.enter_context(writer(root, port=port, flush_consumer_offset_interval=20))
                while len(set(seen)) < keys * count:
                    seen.append(got.get(timeout=LATER_S))
                consumer.stop()
                working.join(LATER_S)
    assert is_in_order(seen, keys, count)


CONSUMER = """
import sys
from mqstore.client import Client
with Client(sys.argv[1]) as client:
    with client.ordered_consumer("dying", "dying", member=sys.argv[2], session_s=1) as consumer:
        for message in consumer:
            print("worked", message.body, flush=True)
            message.ack()
            consumer.flush()
            print("acknowledged", message.body, flush=True)
"""


def test_another_consumer_goes_on_in_order_after_one_was_killed(
    client: Client, pair: ServicePair
) -> None:
    produce(client, "dying", 8, 30)
    process = start_program(CONSUMER, pair.writer_url, "killed", interactive=True)
    lines = [process.stdout.readline() for _ in range(100)]
    process.kill()
    lines += process.communicate()[0].splitlines(keepends=True)
    # The kill may fall between an acknowledgement and its line, so the last message worked on may
    # be acknowledged or not.
    reports = [line.rstrip("\n").split(" ", 1) for line in lines if line.endswith("\n")]
    worked = [body for done, body in reports if done == "worked"]
    acknowledged = {body for done, body in reports if done == "acknowledged"}
    second: list[str] = []
    with client.ordered_consumer("dying", "dying", session_s=600) as consumer:
        for message in consumer:
            message.ack()
            second.append(message.body or "")
            if {*worked, *second} == {f"{key} {n}" for key in range(8) for n in range(30)}:
                consumer.stop()
    assert len(set(second)) == len(second)
    assert len(acknowledged & set(second)) == 0, "acknowledged by two members"
    assert is_in_order(worked + second, 8, 30)
