"""Receives that wait: what wakes them, how often they look, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage.shared_groups import Received, Subscription, decode_receipts
from mqstore.storage.system.threads import production_seams
from mqstore.writer.consumers.waiting import SharedConsumers
from tests.unit.storage.stores import open_store, put_some

T = [Subscription("T")]


class Consumers(SharedConsumers):
    """Counts the reads of its engine; a read may be made to wait."""

    def watch_engine(self) -> None:
        self.reads = 0
        self.reading, self.waits = asyncio.Event(), asyncio.Event()
        self.may_read = threading.Event()
        self.may_read.set()
        receive, loop = self.engine.receive, asyncio.get_running_loop()

        def counted(*given: Any, **named: Any) -> Received:
            self.reads += 1
            loop.call_soon_threadsafe(self.reading.set)
            assert self.may_read.wait(60)
            return receive(*given, **named)

        self.engine.receive = counted  # type: ignore[method-assign]

    async def get(self, wait_s: float = 0.0, count: int = 100) -> Received:
        return await self.receive(
            "g", T, count=count, max_bytes=1 << 20, invisible_s=600, wait_s=wait_s
        )

    async def _await_change(self, *given: Any) -> None:
        asyncio.get_running_loop().call_soon(self.waits.set)
        await super()._await_change(*given)

    async def until_one_waits(self) -> None:
        await self.waits.wait()


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
        await consumers.until_one_waits()
        receipts = decode_receipts(each.receipt for each in leased)
        consumers.engine.acknowledge("g", receipts)
        consumers.wake("other", only_full=False)
        consumers.wake("g", only_full=True)
        assert len((await waiting).messages) == 4

    run(tmp_path, act)


def test_an_acknowledgement_does_not_wake_receives_without_a_full_queue(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        waiting = asyncio.ensure_future(consumers.get(wait_s=600))
        await consumers.until_one_waits()
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
