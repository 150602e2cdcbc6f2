"""Producers: they send messages in the background, many in one request, and in their order.

``AsyncProducer`` does the work, on an event loop; ``Producer`` runs one in a thread of its own, for
applications without a loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Literal, Self

from mqstore.client import produce_calls
from mqstore.client.changes import Changes
from mqstore.client.errors import BufferFull, ClientError
from mqstore.client.home_process import HomeProcess
from mqstore.client.loop_thread import LoopThread
from mqstore.client.new_message import NewMessage
from mqstore.client.outbox import Lane, LaneKey, Outgoing, Room, divide
from mqstore.client.requests import Asynchronous, Call
from mqstore.wire import unique_keys
from mqstore.wire.produce import Durability, MessagePlace, ProduceReply

if TYPE_CHECKING:
    from mqstore.client.otel import Tracing

log = logging.getLogger(__name__)

LINGER_MS: Final = 5.0
BATCH_MAX: Final = 500
"""Messages of one request; store-writer accepts 1,000 by default."""
BUFFER_MAX: Final = 10_000
BUFFER_BYTES_MAX: Final = 32 << 20
PATIENCE_S: Final = 60.0
PATIENCE_MIN_S: Final = 1.0
"""Seconds for which the attempts of a request go on, however long its messages have waited."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The end of a message: it is stored at ``place``, or failed with ``error``."""

    topic: str
    message: NewMessage
    place: MessagePlace | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class ProducerSpec:
    """How a producer sends: the parameters of ``producer``."""

    topic: str | None
    linger_ms: float
    batch_max: int
    buffer_max: int
    buffer_bytes_max: int
    when_full: Literal["wait", "raise"]
    patience_s: float
    durability: Durability | None
    on_delivery: Callable[[Delivery], object] | None
    shard: int | None

    def __post_init__(self) -> None:
        """Raise ValueError for a value out of range."""
        for name, least, most in (
            ("linger_ms", 0, 60_000),
            ("batch_max", 1, inf),
            ("buffer_max", 1, inf),
            ("buffer_bytes_max", 1, inf),
            ("patience_s", 0, inf),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}; give {least} to {most}")
        if self.when_full not in ("wait", "raise"):
            raise ValueError(f"when_full is {self.when_full!r}; give 'wait' or 'raise'")

    def outgoing(
        self,
        message: NewMessage | str | bytes,
        topic: str | None,
        future: object,
        tracing: Tracing | None,
    ) -> Outgoing:
        """Return a message to send, with the trace context of its creation. Raises ValueError if it
        has no topic, and TypeError for one that is no text."""
        topic = topic or self.topic
        if topic is None:
            raise ValueError("the message has no topic; give send, or the producer, one")
        if not isinstance(topic, str):
            raise TypeError(f"topic is {type(topic).__name__}; give send the message, then a name")
        if not isinstance(message, NewMessage):
            message = NewMessage(body=message)
        if message.ordering_key is not None and message.uniq_key is None:
            message = message.model_copy(update={"uniq_key": unique_keys.generate(None)})
        if tracing is not None:
            message = tracing.create(message, topic)
        return Outgoing(topic, message, future, time.monotonic())


def producer(
    topic: str | None = None,
    *,
    linger_ms: float = LINGER_MS,
    batch_max: int = BATCH_MAX,
    buffer_max: int = BUFFER_MAX,
    buffer_bytes_max: int = BUFFER_BYTES_MAX,
    when_full: Literal["wait", "raise"] = "wait",
    patience_s: float = PATIENCE_S,
    durability: Durability | None = None,
    on_delivery: Callable[[Delivery], object] | None = None,
    shard: int | None = None,
) -> ProducerSpec:
    """Send messages in the background, many in one request.

    ``topic`` is that of messages that are sent without one. A message waits ``linger_ms``
    milliseconds for others; a request has ``batch_max`` of them at most. The producer holds
    ``buffer_max`` messages, and about ``buffer_bytes_max`` bytes; with more, ``send`` waits, or
    raises BufferFull (``when_full``). A message is retried until ``patience_s`` seconds after it
    was sent, and is stored once: each has a unique key. ``on_delivery`` is called with the end of
    each message, in the background; it must not block. ``durability`` and ``shard`` are those of
    ``produce``. Raises ValueError.
    """
    return ProducerSpec(
        topic,
        linger_ms,
        batch_max,
        buffer_max,
        buffer_bytes_max,
        when_full,
        patience_s,
        durability,
        on_delivery,
        shard,
    )


class AsyncProducer:
    """A producer for asyncio. Use it on the event loop of its client.

    ::

        async with client.producer("orders") as producer:
            sent = await producer.send(NewMessage(body="paid", ordering_key="customer-7"))
            place = await sent

    Messages keep their order under one ordering key, in one given queue, and among those of a topic
    that have neither: a topic has one request at a time for each of these. The end of the block
    waits until each message is stored or has failed.
    """

    def __init__(self, client: Asynchronous, spec: ProducerSpec, room: Room | None = None) -> None:
        """``client.producer`` makes it. ``room`` is that of the thread-safe producer around it."""
        self._client = client
        self._home = HomeProcess("producer")
        self.tracing = client.tracing
        self._spec = spec
        self._room = room or Room(spec.buffer_max, spec.buffer_bytes_max)
        self._lanes: dict[LaneKey, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: dict[int, Outgoing] = {}
        """Messages that have no end yet by number, oldest first."""
        self._number = 0
        self._flushes = 0
        self._changes = Changes()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        """Protects ``_posted`` and the two fields behind it."""
        self._posted: deque[Outgoing] = deque()
        self._is_woken = False
        self._has_ended = False

    async def __aenter__(self) -> Self:
        self._home.require()
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._home.is_current:
            return  # the messages are those of the process that holds them
        with self._lock:
            self._has_ended = True
        try:
            await self.flush()
        finally:
            for task in self._tasks:
                task.cancel()
            for each in list(self._pending.values()):  # the wait was cancelled
                self._fail(each, ClientError("the producer was stopped; it may be stored"))

    async def send(
        self, message: NewMessage | str | bytes, topic: str | None = None
    ) -> asyncio.Future[MessagePlace]:
        """Accept a message; returns the future of its place once the buffer has room.

        The future raises ClientError for a message that failed. A message that is not in a request
        yet can be cancelled. Raises BufferFull if ``when_full`` says so, and ValueError for a
        message without a topic.
        """
        future: asyncio.Future[MessagePlace] = asyncio.get_running_loop().create_future()
        outgoing = self._spec.outgoing(message, topic, future, self.tracing)
        self._require_running()
        if not self._room.take(outgoing.size):
            if self._spec.when_full == "raise":
                raise _full(self._spec)
            await self._changes.until(partial(self._room.take, outgoing.size))
        if self._has_ended:
            self._room.release(outgoing.size)
        self._require_running()
        self._accept(outgoing)
        return future

    def post(self, outgoing: Outgoing) -> None:
        """Accept a message on any thread, for which there is room."""
        with self._lock:
            self._require_running()
            self._posted.append(outgoing)
            if not self._is_woken:
                self._is_woken = True
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._accept_posted)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Return when each message that was sent before is stored or has failed.

        Raises TimeoutError after ``timeout_s`` seconds; the messages are sent all the same.
        """
        self._home.require()
        self._accept_posted()
        last, until = self._number, None if timeout_s is None else time.monotonic() + timeout_s
        self._flushes += 1
        for lane in self._lanes.values():
            lane.changes.notify()
        try:
            await self._changes.until(
                lambda: not self._has_pending(last),
                lambda: None if until is None else max(0.0, until - time.monotonic()),
            )
        finally:
            self._flushes -= 1
        if self._has_pending(last):
            raise TimeoutError(f"{len(self._pending)} messages are not stored after {timeout_s} s")

    def _require_running(self) -> None:
        self._home.require()
        if self._loop is None:
            raise ClientError("the producer has not started; use it in a with statement")
        if self._has_ended:
            raise ClientError("the producer has ended")

    def _has_pending(self, last: int) -> bool:
        return next(iter(self._pending), inf) <= last

    # in the background --------------------------------------------------------------------

    def _accept_posted(self) -> None:
        with self._lock:
            self._is_woken = False
            posted, self._posted = self._posted, deque()
        for each in posted:
            self._accept(each)

    def _accept(self, outgoing: Outgoing) -> None:
        self._number += 1
        outgoing.number = self._number
        self._pending[outgoing.number] = outgoing
        key = outgoing.lane
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
            task = asyncio.create_task(self._serve(key, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        lane.add(outgoing)
        if lane.is_full(self._spec.batch_max):
            lane.changes.notify()

    async def _serve(self, key: LaneKey, lane: Lane) -> None:
        """Send the messages of a lane until there is none."""
        try:
            while len(lane):
                await self._linger(lane)
                await self._deliver(lane.take(self._spec.batch_max))
        finally:
            del self._lanes[key]

    async def _linger(self, lane: Lane) -> None:
        until = lane.first.since + self._spec.linger_ms / 1000
        await lane.changes.until(
            lambda: self._flushes > 0 or lane.is_full(self._spec.batch_max),
            lambda: max(0.0, until - time.monotonic()),
        )

    async def _deliver(self, batch: list[Outgoing]) -> None:
        """Send messages until each is stored or has failed."""
        wanted = []
        for each in batch:
            if each.begin():
                wanted.append(each)
            else:
                self._end(each, None)
        requests = deque([wanted])
        while requests:
            if found := requests.popleft():
                requests.extendleft(reversed(await self._send(found)))

    async def _send(self, batch: list[Outgoing]) -> Sequence[list[Outgoing]]:
        """Send a request, with retries; returns the requests to send instead of a refused one."""
        try:
            reply = await self._client.send(self._call(batch))
            places = dict(zip(batch, reply.messages, strict=True))
        except Exception as error:
            refusal = divide(batch, error)
            for each in refusal.failed:
                self._fail(each, error)
            return refusal.rest
        for each, place in places.items():
            self._end(each, Delivery(each.topic, each.message, place=place))
        return ()

    def _call(self, batch: list[Outgoing]) -> Call[ProduceReply]:
        waited_s = time.monotonic() - batch[0].since
        return produce_calls.produce(
            batch[0].topic,
            [each.message for each in batch],
            durability=self._spec.durability,
            shard=self._spec.shard,
            patience_s=max(PATIENCE_MIN_S, self._spec.patience_s - waited_s),
        )

    def _fail(self, outgoing: Outgoing, error: Exception) -> None:
        if self._spec.on_delivery is None:
            log.warning("producer: a message of %s is not stored: %s", outgoing.topic, error)
        self._end(outgoing, Delivery(outgoing.topic, outgoing.message, error=error))

    def _end(self, outgoing: Outgoing, delivery: Delivery | None) -> None:
        """Report the end of a message; without a delivery the application cancelled it."""
        del self._pending[outgoing.number]
        self._room.release(outgoing.size)
        self._changes.notify()
        if delivery is None:
            return
        outgoing.settle(delivery.place, delivery.error)
        if self._spec.on_delivery is not None:
            try:
                self._spec.on_delivery(delivery)
            except Exception:
                log.exception("producer: on_delivery failed")


class SentMessage(Future[MessagePlace]):
    """The future of a message's place. It is used in the process of its producer only: in a fork of
    that process nothing would end a wait."""

    def __init__(self) -> None:
        super().__init__()
        self._home = HomeProcess("producer")

    def result(self, timeout: float | None = None) -> MessagePlace:
        """Return the place. Raises ClientError if the message failed, and in a fork."""
        self._home.require()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return why the message failed, or None. Raises ClientError in a fork."""
        self._home.require()
        return super().exception(timeout)


class Producer:
    """A producer for applications without an event loop. Thread-safe.

    ::

        with client.producer("orders") as producer:
            sent = producer.send(NewMessage(body="paid", ordering_key="customer-7"))
            producer.send("another order")
            place = sent.result()

    It is an ``AsyncProducer`` in a thread of its own, which says which messages keep their order.
    The end of the block waits until each message is stored or has failed.
    """

    def __init__(self, make_client: Callable[[], Asynchronous], spec: ProducerSpec) -> None:
        """``client.producer`` makes it. ``make_client`` is called on the producer's thread."""
        self._spec = spec
        self._room = room = Room(spec.buffer_max, spec.buffer_bytes_max)
        self._thread = LoopThread(
            "producer",
            f"producer of {spec.topic or 'messages'}",
            make_client,
            lambda client: AsyncProducer(client, spec, room),
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.end()

    def send(
        self, message: NewMessage | str | bytes, topic: str | None = None
    ) -> Future[MessagePlace]:
        """Accept a message, once the buffer has room; returns the future of its place.

        The future raises ClientError for a message that failed. A message that is not in a request
        yet can be cancelled. Raises BufferFull if ``when_full`` says so, and always in a callback
        of this producer, which must not wait; ValueError for a message without a topic.
        """
        future = SentMessage()
        running = self._thread.running
        outgoing = self._spec.outgoing(message, topic, future, running.tracing)
        if not self._room.take(outgoing.size):
            if self._spec.when_full == "raise" or self._thread.is_current:
                raise _full(self._spec)
            self._room.wait(outgoing.size)
        try:
            running.post(outgoing)
        except BaseException:
            self._room.release(outgoing.size)
            raise
        return future

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when each message that was sent before is stored or has failed.

        Raises TimeoutError after ``timeout_s`` seconds; the messages are sent all the same.
        """
        self._thread.wait(self._thread.running.flush(timeout_s))


def _full(spec: ProducerSpec) -> BufferFull:
    return BufferFull(
        f"the producer holds {spec.buffer_max} messages or {spec.buffer_bytes_max} bytes that are "
        "not stored yet; wait, or raise buffer_max or buffer_bytes_max"
    )
