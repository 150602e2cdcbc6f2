"""The client's consumers over real services: iteration, handlers in threads, ends, kills."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue as Hand

import pytest

from mqstore.client import AsyncClient, Client, ConsumedMessage, ProblemError
from tests.services.producing import produce
from tests.services.service_processes import ServicePair, writer

LATER_S = 60
"""For what must come: no test waits so long."""


@pytest.fixture
def client(pair: ServicePair) -> Iterator[Client]:
    with pair.client() as made:
        yield made


def test_a_loop_gets_each_message_and_what_it_acknowledged_stays_so(client: Client) -> None:
    sent = produce(client, "looped", 100)
    got = set()
    with client.consumer("looping", "looped", prefetch=16) as consumer:
        for message in consumer:
            got.add(message.body)
            message.ack()
            if len(got) == len(sent):
                consumer.stop()

    assert got == sent
    assert client.lag("looping", topic="looped").lag == 0
    assert client.receive("looping", "looped").messages == ()


def test_threads_of_two_consumers_share_the_messages(client: Client) -> None:
    sent = produce(client, "handled", 300)
    seen: Counter[str | None] = Counter()
    lock = threading.Lock()

    with (
        client.consumer("handling", "handled", concurrency=4, prefetch=8) as first,
        client.consumer("handling", "handled", concurrency=4, prefetch=8) as second,
    ):

        def handle(message: ConsumedMessage) -> None:
            with lock:
                seen[message.body] += 1
                if len(seen) == len(sent):
                    first.stop()
                    second.stop()

        beside = threading.Thread(target=second.run, args=(handle,))
        beside.start()
        first.run(handle)
        beside.join()

    assert seen == Counter(sent)
    assert client.lag("handling", topic="handled").lag == 0


def test_a_message_whose_handler_raises_is_delivered_again_with_the_reason(client: Client) -> None:
    (sent,) = produce(client, "failing", 1)
    seen: list[ConsumedMessage] = []

    with client.consumer("raising", "failing") as consumer:

        def handle(message: ConsumedMessage) -> None:
            seen.append(message)
            if message.delivery_attempt == 1:
                message.nack(delay_s=0.5, reason="not yet")
            else:
                consumer.stop()

        consumer.run(handle)

    assert [each.body for each in seen] == [sent, sent]
    assert seen[1].properties["MQSTORE_WHY"] == "not yet"
    assert seen[1].delivery_attempt == 2


def test_an_exception_of_a_handler_is_the_reason_of_a_return(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    produce(client, "raised", 1)
    client.put_group("logging", retry_times_max=0)
    with client.consumer("logging", "raised") as consumer:

        def handle(message: ConsumedMessage) -> None:
            consumer.stop()
            raise RuntimeError("no\nroom")

        with caplog.at_level(logging.CRITICAL):
            consumer.run(handle)

    (dead,) = client.pull("%DLQ%logging", 0).messages
    assert dead.properties["MQSTORE_WHY"] == "RuntimeError: no room"


def test_a_rejected_message_is_a_dead_letter(client: Client) -> None:
    (sent,) = produce(client, "rejected", 1)
    with client.consumer("rejecting", "rejected") as consumer:
        message = next(consumer)
        message.reject(reason="malformed")
        message.ack()  # too late
        consumer.flush()

        (dead,) = client.pull("%DLQ%rejecting", 0).messages
    assert dead.body == sent


def test_the_application_has_no_more_messages_than_it_wants(client: Client) -> None:
    produce(client, "bounded", 3)
    with client.consumer("bound", "bounded", concurrency=2) as consumer:
        first, _ = next(consumer), next(consumer)
        hand: Hand[ConsumedMessage] = Hand()
        third = threading.Thread(target=lambda: hand.put(next(consumer)))
        third.start()
        assert hand.empty()
        first.ack()
        assert hand.get(timeout=LATER_S).body
        third.join()


def test_what_was_not_settled_is_delivered_again_at_once_after_the_end(client: Client) -> None:
    sent = produce(client, "left", 20)
    with client.consumer("leaving", "left", concurrency=2, lease_s=3_600) as consumer:
        kept = next(consumer)
        next(consumer)
        kept.ack()

    rest = client.receive("leaving", "left").messages
    assert {each.body for each in rest} == sent - {kept.body}


def test_a_filter_selects_and_an_end_wakes_the_loop_that_waits(client: Client) -> None:
    produce(client, "filtered", 2, tags="sent")
    paid = produce(client, "filtered", 2, tags="paid")
    got: Hand[str | None] = Hand()

    with client.consumer("selecting", {"filtered": "paid"}) as consumer:

        def loop() -> None:
            for message in consumer:
                got.put(message.body)
                message.ack()

        waiting = threading.Thread(target=loop)
        waiting.start()
        assert {got.get(timeout=LATER_S), got.get(timeout=LATER_S)} == paid
    waiting.join()
    assert got.empty()


def test_a_consumer_that_the_service_rejects_raises_its_problem(client: Client) -> None:
    with (
        client.consumer("rejected-itself", "no-such-topic") as consumer,
        pytest.raises(ProblemError, match="no-such-topic"),
    ):
        next(consumer)


def test_values_of_no_use_are_refused(client: Client) -> None:
    produce(client, "wrong", 1)
    for wrong in ({"concurrency": 0}, {"prefetch": 0}, {"wait_s": 31}, {"lease_s": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            client.consumer("g", "wrong", **wrong)
    with client.consumer("choosy", "wrong") as consumer:
        message = next(consumer)
        with pytest.raises(ValueError, match="delay_level"):
            message.nack(delay_level=19)
        with pytest.raises(ValueError, match="reason"):
            message.nack(reason="a\x01b")
        message.ack()


def test_a_consumer_goes_on_after_the_store_writer_was_killed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    got: Counter[str | None] = Counter()
    with ExitStack() as later, writer(root) as process:
        port = int(process.url.rpartition(":")[2])
        with Client(process.url) as client:
            sent = produce(client, "killed", 50)
            with client.consumer("steady", "killed") as consumer:
                for message in consumer:
                    got[message.body] += 1
                    message.ack()
                    if len(got) == 25:
                        break
                process.kill()
                later.enter_context(writer(root, port=port))
                for message in consumer:
                    got[message.body] += 1
                    message.ack()
                    if set(got) == sent:
                        consumer.stop()
    assert set(got) == sent


def test_tasks_share_a_consumer(client: Client, pair: ServicePair) -> None:
    sent = produce(client, "tasks", 60)
    got: set[str | None] = set()

    async def consume() -> None:
        urls = (pair.writer.url, pair.query.url)
        async with AsyncClient(*urls) as made, made.consumer("g", "tasks", concurrency=3) as shared:

            async def loop() -> None:
                async for message in shared:
                    got.add(message.body)
                    message.ack()
                    if got == sent:
                        shared.stop()

            await asyncio.gather(*[loop() for _ in range(3)])

    asyncio.run(consume())
    assert got == sent
    assert client.lag("g", topic="tasks").lag == 0


def test_a_client_is_what_the_environment_says(pair: ServicePair, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    environment = {
        "MQSTORE_WRITER_URL": pair.writer.url,
        "MQSTORE_TOKEN_FILE": str(token),
        "MQSTORE_QUERY_URL": "",
    }
    with Client.from_env(environment) as client:
        assert client.topics()
        assert client._headers == {"authorization": "Bearer secret"}
