"""Receives that wait: what wakes them, how often they look, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage.shared_groups import Received, Subscription, decode_receipts
from mqstore.storage.system.threads import production_seams
from mqstore.writer.consumers.waiting import Look, SharedConsumers
from tests.unit.storage.stores import open_store, put_some

T = [Subscription("T")]


class Consumers(SharedConsumers):
    """Counts the reads of its engine; a read may be made to wait."""

    def watch_engine(self) -> None:
        self.reads = 0
        self.reading, self.waits = asyncio.Event(), asyncio.Semaphore(0)
        self.may_read = threading.Event()
        self.may_read.set()
        receive, loop = self.engine.receive, asyncio.get_running_loop()
        receive_in_memory = self.engine.receive_in_memory

        def counted(*given: Any, **named: Any) -> Received:
            self.reads += 1
            loop.call_soon_threadsafe(self.reading.set)
            assert self.may_read.wait(60)
            return receive(*given, **named)

        def counted_in_memory(*given: Any, **named: Any) -> Received | None:
            found = receive_in_memory(*given, **named)
            self.reads += found is not None
            return found

        self.engine.receive = counted  # type: ignore[method-assign]
        self.engine.receive_in_memory = counted_in_memory  # type: ignore[method-assign]

    async def get(
        self, wait_s: float = 0.0, count: int = 100, look: Look | None = None
    ) -> Received:
        return await self.receive(
            "g",
            T,
            count=count,
            max_bytes=1 << 20,
            invisible_s=600,
            member=None,
            wait_s=wait_s,
            look=look,
        )

    def look(self) -> Look:
        found = self.receive_at_once("g", T, count=100, max_bytes=1 << 20, invisible_s=600)
        assert found is not None
        return found

    async def _await_change(self, *given: Any) -> None:
        asyncio.get_running_loop().call_soon(self.waits.release)
        await super()._await_change(*given)

    async def until_wait(self, count: int = 1) -> None:
        for _ in range(count):
            await self.waits.acquire()

    def put_one(self) -> None:
        put_some(self.engine._store, 1, queues=1)


def run(root: Path, act: Callable[[Consumers], Awaitable[None]]) -> None:
    async def with_consumers() -> None:
        with open_store(root / "store", deliver_delayed=False) as store:
            store.create_topic("T", queues=1)
            put_some(store, 10, queues=1)
            consumers = Consumers(store, production_seams(), 0, 10, lambda _: None)
            consumers.watch_engine()
            try:
                await act(consumers)
            finally:
                await consumers.stop()

    asyncio.run(with_consumers())


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqstore.storage.shared_groups.queue_leases.PENDING_MAX", 4)


@pytest.mark.usefixtures("small_window")
def test_a_receive_of_a_full_queue_looks_once_and_waits(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        consumers.reads = 0
        found = await consumers.get(wait_s=0.2)
        assert (found.messages, found.is_full) == ([], True)
        assert consumers.reads == 2  # at its begin and its end

    run(tmp_path, act)


@pytest.mark.usefixtures("small_window")
def test_an_acknowledgement_makes_room_for_a_receive_that_waits(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        waiting = asyncio.ensure_future(consumers.get(wait_s=600))
        await consumers.until_wait()
        receipts = decode_receipts(each.receipt for each in leased)
        consumers.engine.acknowledge("g", receipts)
        consumers.wake("other", only_full=False)
        consumers.wake("g", only_full=True)
        assert len((await waiting).messages) == 4

    run(tmp_path, act)


def test_a_receive_that_found_nothing_at_once_waits_without_a_second_look(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        look = consumers.look()
        consumers.reads = 0
        waiting = asyncio.ensure_future(consumers.get(wait_s=600, look=look))
        await consumers.until_wait()
        assert consumers.reads == 0
        consumers.put_one()
        assert len((await waiting).messages) == 1
        assert consumers.reads == 1

    run(tmp_path, act)


@pytest.mark.usefixtures("small_window")
def test_what_changes_between_the_first_look_and_the_wait_is_not_missed(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        receipts = decode_receipts(each.receipt for each in leased)
        look = consumers.look()
        consumers.engine.acknowledge("g", receipts[:1])
        consumers.wake("g", only_full=True)
        assert len((await consumers.get(600, look=look)).messages) == 1

        look = consumers.look()
        consumers.engine.extend("g", receipts[1:2], 0)
        consumers.wake("g", only_full=False)
        assert len((await consumers.get(600, look=look)).messages) == 1

    run(tmp_path, act)


def test_an_acknowledgement_does_not_wake_receives_without_a_full_queue(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        waiting = asyncio.ensure_future(consumers.get(wait_s=600))
        await consumers.until_wait()
        consumers.reads = 0
        consumers.wake("g", only_full=True)
        consumers.engine.extend("g", decode_receipts([leased[3].receipt]), 0)
        consumers.wake("g", only_full=False)
        (again,) = (await waiting).messages
        assert (again.record.queue_offset, consumers.reads) == (3, 1)

    run(tmp_path, act)


@pytest.mark.usefixtures("small_window")
def test_a_change_between_a_look_and_the_wait_is_not_missed(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        loop, read = asyncio.get_running_loop(), consumers.engine.receive

        def read_before_an_acknowledgement(*given: Any, **named: Any) -> Received:
            found = read(*given, **named)
            consumers.engine.receive = read  # type: ignore[method-assign]
            consumers.engine.acknowledge("g", decode_receipts([leased[0].receipt]))
            loop.call_soon_threadsafe(partial(consumers.wake, "g", only_full=True))
            return found

        consumers.engine.receive = read_before_an_acknowledgement  # type: ignore[method-assign]
        consumers.engine.receive_in_memory = lambda *_, **__: None  # type: ignore[method-assign]
        assert len((await consumers.get(wait_s=10)).messages) == 1

    run(tmp_path, act)


def test_a_receive_that_is_cancelled_leases_nothing(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        consumers.may_read.clear()
        receiving = asyncio.ensure_future(consumers.get())
        await consumers.reading.wait()
        waiting = asyncio.ensure_future(consumers.get(wait_s=10))
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        consumers.may_read.set()
        found = (await waiting).messages
        assert [each.attempt for each in found] == [1] * 10

    run(tmp_path, act)


def test_an_arrival_wakes_one_receive_and_that_one_the_next(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = [asyncio.ensure_future(consumers.get(wait_s=600)) for _ in range(5)]
        await consumers.until_wait(5)
        consumers.reads = 0
        for _ in range(2):
            consumers.put_one()
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            (ended,) = done
            assert len(ended.result().messages) == 1
            waiting.remove(ended)
            await consumers.until_wait()
        assert consumers.reads <= 4  # by the one that got it, and the next one, for each message
        await end_all(waiting)

    run(tmp_path, act)


def test_a_cancelled_receive_leaves_its_watch_to_the_next(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = [asyncio.ensure_future(consumers.get(wait_s=600)) for _ in range(3)]
        await consumers.until_wait(3)
        first = waiting.pop(0)
        await end_all([first])
        consumers.put_one()
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [len(each.result().messages) for each in done] == [1]
        await end_all(waiting)

    run(tmp_path, act)


async def end_all(receives: Sequence[asyncio.Future[Received]]) -> None:
    for each in receives:
        each.cancel()
    await asyncio.wait(receives)
