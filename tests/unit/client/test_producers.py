"""Producers form requests, keep order, retry under one unique key, and report each end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

import pytest

from mqstore.client import (
    AsyncProducer,
    BufferFull,
    ClientError,
    Delivery,
    MessagePlace,
    NewMessage,
    ProblemError,
    Producer,
    ProduceReply,
)
from mqstore.client.producers import producer
from mqstore.client.requests import Call

LATER_S = 60
REFUSED = ProblemError(422, {"type": "urn:mqstore:problem:message-invalid", "index": 1})


class Service:
    """A store-writer that replies as a test says; ``replies`` are taken first."""

    tracing = None

    def __init__(self, *replies: Exception) -> None:
        self.replies = list(replies)
        self.requests: list[list[dict[str, Any]]] = []
        self.stored: list[str] = []
        self.gate: asyncio.Event | None = None
        self.received = asyncio.Event()
        self.concurrent: Counter[str] = Counter()
        self.most = 0

    async def __aenter__(self) -> Service:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def send(self, call: Call[Any]) -> ProduceReply:
        messages = (call.json or {})["messages"]
        self.requests.append(messages)
        self.received.set()
        self.concurrent[call.path] += 1
        self.most = max(self.most, *self.concurrent.values())
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.replies:
                raise self.replies.pop(0)
        finally:
            self.concurrent[call.path] -= 1
        first = len(self.stored)
        self.stored += [each.get("body", "") for each in messages]
        return ProduceReply(messages=tuple(place(first + n) for n in range(len(messages))))


def place(number: int) -> MessagePlace:
    return MessagePlace(
        offset_msg_id="",
        uniq_key="",
        queue_id=0,
        queue_offset=number,
        physical_offset=number,
        size=1,
        store_timestamp=0,
        shard=0,
    )


def running(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, on an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), LATER_S))

    return run


def producer_of(service: Any, **options: Any) -> AsyncProducer:
    return AsyncProducer(service, producer("t", **options))


def threaded(service: Any, **options: Any) -> Producer:
    return Producer(lambda: service, producer("t", **options))


@running
async def test_messages_that_are_sent_together_are_one_request() -> None:
    service = Service()
    async with producer_of(service, linger_ms=60_000, batch_max=3) as sending:
        futures = [await sending.send(str(number)) for number in range(3)]
        assert [(await each).queue_offset for each in futures] == [0, 1, 2]
        await sending.send("later")  # the end does not linger
    assert [len(each) for each in service.requests] == [3, 1]
    assert service.stored == ["0", "1", "2", "later"]


@running
async def test_a_message_alone_is_sent_after_the_linger_time() -> None:
    async with producer_of(Service(), linger_ms=1) as sending:
        assert (await (await sending.send(b"bytes"))).queue_offset == 0


@running
async def test_a_lane_has_one_request_at_a_time_and_keeps_its_order() -> None:
    service = Service()
    service.gate = asyncio.Event()
    async with producer_of(service, linger_ms=0, batch_max=2) as sending:
        for number in range(20):
            await sending.send(NewMessage(body=str(number), ordering_key="k"))
        await service.received.wait()
        service.gate.set()
        await sending.flush()
    assert (service.most, service.stored) == (1, [str(number) for number in range(20)])


@running
async def test_a_refused_message_fails_alone() -> None:
    service = Service(REFUSED)
    ends: list[Delivery] = []
    async with producer_of(service, linger_ms=60_000, on_delivery=ends.append) as sending:
        futures = [await sending.send(each) for each in "abc"]
        await sending.flush()
        assert futures[1].exception() is REFUSED
        assert [each.result().queue_offset for each in (futures[0], futures[2])] == [0, 1]
    assert [len(each) for each in service.requests] == [3, 2]
    assert Counter(each.message.body for each in ends) == Counter("abc")
    (failed,) = [each for each in ends if each.error]
    assert (failed.message.body, failed.place) == ("b", None)


@running
async def test_keys_of_ordered_messages_stay_when_a_request_is_sent_again() -> None:
    service = Service(REFUSED)
    async with producer_of(service, linger_ms=60_000) as sending:
        for number in range(3):
            await sending.send(NewMessage(body="x", ordering_key=f"k{number}"))
    first, second = [[each["uniqKey"] for each in sent] for sent in service.requests]
    assert second == [first[0], first[2]]
    assert len(set(first)) == 3


@running
async def test_a_flush_that_takes_too_long_says_so_and_goes_on() -> None:
    service = Service()
    service.gate = asyncio.Event()
    async with producer_of(service) as sending:
        sent = await sending.send("a")
        with pytest.raises(TimeoutError, match="1 messages"):
            await sending.flush(timeout_s=0)
        service.gate.set()
        assert (await sent).queue_offset == 0


@running
async def test_a_full_buffer_refuses_or_waits() -> None:
    service = Service()
    service.gate = asyncio.Event()
    async with producer_of(service, buffer_max=2, when_full="raise") as sending:
        await sending.send("a")
        await sending.send("b")
        with pytest.raises(BufferFull):
            await sending.send("c")
        service.gate.set()
        await sending.flush()
        await sending.send("d")
    async with producer_of(service, buffer_max=1) as sending:
        for each in "efg":
            await sending.send(each)
    assert service.stored == ["a", "b", *"defg"]


@running
async def test_a_cancelled_message_is_not_sent_and_gives_its_room_back() -> None:
    service = Service()
    async with producer_of(service, linger_ms=60_000, buffer_max=2) as sending:
        (await sending.send("a")).cancel()
        await sending.send("b")
        await sending.flush()
        await sending.send("c")
    assert service.stored == ["b", "c"]


@running
async def test_a_stop_fails_what_is_not_stored() -> None:
    service = Service()
    service.gate = asyncio.Event()

    async def work() -> None:
        async with producer_of(service, linger_ms=0) as sending:
            futures.append(await sending.send("a"))
            await service.received.wait()
            futures.append(await sending.send(NewMessage(ordering_key="k")))
            waits.set()  # leaving the block waits for the messages

    waits = asyncio.Event()
    futures: list[asyncio.Future[MessagePlace]] = []
    working = asyncio.create_task(work())
    await waits.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert [type(each.exception()) for each in futures] == [ClientError, ClientError]


@running
async def test_a_callback_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Delivery) -> None:
        raise RuntimeError("no")

    with caplog.at_level(logging.CRITICAL):
        async with producer_of(Service(), on_delivery=fail) as sending:
            assert (await (await sending.send("a"))).queue_offset == 0


@running
async def test_a_producer_is_used_inside_its_block() -> None:
    sending = producer_of(Service())
    with pytest.raises(ClientError, match="with statement"):
        await sending.send("a")
    async with sending:
        pass
    with pytest.raises(ClientError, match="has ended"):
        await sending.send("a")
    with pytest.raises(ValueError, match="topic"):
        await AsyncProducer(Service(), producer()).send("a")  # type: ignore[arg-type]


@running
async def test_arguments_in_the_wrong_order_are_refused_at_once() -> None:
    async with producer_of(Service()) as sending:
        with pytest.raises(TypeError, match="give send the message, then a name"):
            await sending.send("orders", NewMessage(body="a"))  # type: ignore[arg-type]


def test_threads_send_and_each_keeps_its_order() -> None:
    service = Service()

    def send_all(name: str) -> None:
        for number in range(200):
            sending.send(NewMessage(body=f"{name} {number}", ordering_key=name))

    with threaded(service, buffer_max=50) as sending:
        threads = [threading.Thread(target=partial(send_all, name)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    for name in "abcd":
        of_one = [each for each in service.stored if each.startswith(name)]
        assert of_one == [f"{name} {number}" for number in range(200)]
    assert service.most == 1


def test_a_blocked_send_goes_on_once_there_is_room_and_a_callback_never_blocks() -> None:
    refused: list[Exception] = []

    def send_more(delivery: Delivery) -> None:
        if delivery.message.body == "a":
            try:
                sending.send("from the callback")
                sending.send("one too many")
            except BufferFull as error:
                refused.append(error)

    service = Service()
    with threaded(service, buffer_max=1, on_delivery=send_more) as sending:
        sending.send("a").result(LATER_S)
        sending.flush()
        sending.send("b")
    assert len(refused) == 1
    assert service.stored == ["a", "from the callback", "b"]


def test_futures_of_threads_report_failures_and_can_be_cancelled() -> None:
    with threaded(Service(REFUSED), linger_ms=60_000, on_delivery=lambda _: None) as sending:
        kept, failed, cancelled = (sending.send(each) for each in "abc")
        assert cancelled.cancel()
        sending.flush(LATER_S)
        assert kept.result(0).queue_offset == 0
        assert failed.exception(0) is REFUSED
    with pytest.raises(ClientError, match="has ended"):
        sending.send("late")


@pytest.mark.parametrize(
    "wrong",
    [
        {"linger_ms": -1},
        {"batch_max": 0},
        {"buffer_max": 0},
        {"buffer_bytes_max": 0},
        {"patience_s": -1},
        {"when_full": "drop"},
    ],
)
def test_values_of_no_use_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        producer("t", **wrong)
