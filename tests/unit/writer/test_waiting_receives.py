"""Receives that wait: what wakes them, how often they look, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqstore.service.limits import Budget
from mqstore.service.problems import CLIENT_OVER_SHARE, OVERLOADED, UNAUTHENTICATED, Problem
from mqstore.storage.errors import GroupDisabled
from mqstore.storage.shared_groups import Received, Subscription, decode_receipts
from mqstore.storage.system.threads import production_seams
from mqstore.writer.consumers.receiving import Receiving
from mqstore.writer.consumers.waiting import SharedConsumers
from tests.unit.storage.stores import open_store, put_some

T = [Subscription("T")]
POLLS_MAX = 10


class Consumers(SharedConsumers):
    """Counts the reads of its engine; a read may be made to wait."""

    refusal: Problem | None = None

    def watch_engine(self) -> None:
        self.reads, self.is_in_memory = 0, True
        self.reading = asyncio.Event()
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
            found = receive_in_memory(*given, **named) if self.is_in_memory else None
            self.reads += found is not None
            return found

        self.engine.receive = counted  # type: ignore[method-assign]
        self.engine.receive_in_memory = counted_in_memory  # type: ignore[method-assign]

    def check(self) -> None:
        """The client's token is valid, unless a test has another ``refusal``."""
        if self.refusal is not None:
            raise self.refusal

    def begin(self, wait_s: float = 0.0, count: int = 100, client: str = "10.0.0.1") -> Receiving:
        return self.receive(
            "g",
            T,
            count=count,
            max_bytes=1 << 20,
            invisible_s=600,
            member=None,
            wait_s=wait_s,
            client=client,
            check=self.check,
        )

    async def get(self, wait_s: float = 0.0, count: int = 100) -> Received:
        return await self.begin(wait_s, count).finished()

    def put_one(self) -> None:
        put_some(self.engine._store, 1, queues=1)


def run(root: Path, act: Callable[[Consumers], Awaitable[None]]) -> None:
    async def with_consumers() -> None:
        with open_store(root / "store", deliver_delayed=False) as store:
            store.create_topic("T", queues=1)
            put_some(store, 10, queues=1)
            consumers = Consumers(
                *(store, production_seams(), 0, Budget("polls", POLLS_MAX, 80)), lambda _: None
            )
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
        assert consumers.reads == 1

    run(tmp_path, act)


@pytest.mark.usefixtures("small_window")
def test_an_acknowledgement_makes_room_for_a_receive_that_waits(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        waiting = consumers.begin(wait_s=600)
        receipts = decode_receipts(each.receipt for each in leased)
        consumers.engine.acknowledge("g", receipts)
        consumers.lines.wake("other", only_full=False)
        assert not waiting.is_done
        consumers.lines.wake("g", only_full=True)
        assert len(waiting.result().messages) == 4

    run(tmp_path, act)


def test_a_receive_of_messages_in_memory_is_done_at_once_and_makes_no_task(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        consumers.put_one()
        tasks = asyncio.all_tasks()
        assert len(consumers.begin(wait_s=600).result().messages) == 1
        waiting = consumers.begin(wait_s=600)
        assert asyncio.all_tasks() == tasks
        consumers.put_one()
        assert len((await waiting.finished()).messages) == 1

    run(tmp_path, act)


def test_a_receive_that_waits_is_done_in_the_turn_in_which_a_message_comes(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = consumers.begin(wait_s=600)
        consumers.put_one()
        await asyncio.sleep(0)  # the loop finds the event
        await asyncio.sleep(0)  # and handles it
        assert waiting.is_done
        assert len(waiting.result().messages) == 1

    run(tmp_path, act)


def test_a_receive_that_joins_others_waits_without_a_look(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        consumers.reads = 0
        first, second, third = [consumers.begin(wait_s=600) for _ in range(3)]
        assert consumers.reads == 1
        consumers.put_one()
        assert len((await first.finished()).messages) == 1
        assert consumers.reads == 2
        assert not second.is_done
        third.cancel()
        consumers.put_one()
        assert len((await second.finished()).messages) == 1
        assert consumers.reads == 3

    run(tmp_path, act)


def test_a_look_is_shared_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.writer.consumers.receiving.SHARED_LOOK_S", -1.0)

    async def act(consumers: Consumers) -> None:
        await consumers.get()
        consumers.reads = 0
        consumers.begin(wait_s=600)
        consumers.begin(wait_s=600)
        assert consumers.reads == 2

    run(tmp_path, act)


def test_a_receive_without_a_wait_looks_although_others_wait(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = consumers.begin(wait_s=600)
        consumers.put_one()  # not noticed yet
        assert len(consumers.begin().result().messages) == 1
        consumers.put_one()
        assert len((await waiting.finished()).messages) == 1

    run(tmp_path, act)


def test_messages_that_one_receive_leaves_are_those_of_the_next(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = [consumers.begin(600, count=2) for _ in range(3)]
        put_some(consumers.engine._store, 5, queues=1)
        found = [await each.finished() for each in waiting]
        assert [len(each.messages) for each in found] == [2, 2, 1]

    run(tmp_path, act)


def test_an_acknowledgement_does_not_wake_receives_without_a_full_queue(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        waiting = consumers.begin(wait_s=600)
        consumers.reads = 0
        consumers.lines.wake("g", only_full=True)
        consumers.engine.extend("g", decode_receipts([leased[3].receipt]), 0)
        consumers.lines.wake("g", only_full=False)
        (again,) = (await waiting.finished()).messages
        assert (again.record.queue_offset, consumers.reads) == (3, 1)

    run(tmp_path, act)


def test_the_end_of_a_lease_wakes_a_receive_that_waits(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages[0]
        consumers.engine.extend("g", decode_receipts([leased.receipt]), 0.05)
        (again,) = (await consumers.get(wait_s=600)).messages
        assert (again.record, again.attempt) == (leased.record, 2)

    run(tmp_path, act)


@pytest.mark.usefixtures("small_window")
def test_a_change_during_a_look_in_a_thread_is_not_missed(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        leased = (await consumers.get()).messages
        loop, read = asyncio.get_running_loop(), consumers.engine.receive

        def read_before_an_acknowledgement(*given: Any, **named: Any) -> Received:
            found = read(*given, **named)
            consumers.engine.receive = read  # type: ignore[method-assign]
            consumers.engine.acknowledge("g", decode_receipts([leased[0].receipt]))
            loop.call_soon_threadsafe(partial(consumers.lines.wake, "g", only_full=True))
            return found

        consumers.engine.receive = read_before_an_acknowledgement  # type: ignore[method-assign]
        consumers.is_in_memory = False
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


def test_a_cancelled_receive_leaves_its_watch_to_the_next(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        first, second, third = [consumers.begin(wait_s=600) for _ in range(3)]
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            first.result()
        consumers.put_one()
        assert len((await second.finished()).messages) == 1
        assert not third.is_done

    run(tmp_path, act)


def test_the_first_of_a_line_looks_in_a_thread_while_the_others_wait(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = [consumers.begin(wait_s=600) for _ in range(3)]
        consumers.is_in_memory = False
        consumers.may_read.clear()
        consumers.reading.clear()
        consumers.reads = 0
        consumers.put_one()
        await consumers.reading.wait()
        waiting[0].cancel()  # its look goes on: the next one looks too
        consumers.may_read.set()
        assert len((await waiting[1].finished()).messages) == 1
        assert not waiting[2].is_done

    run(tmp_path, act)


def test_an_interrupt_ends_all_receives_that_wait(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = [consumers.begin(wait_s=600) for _ in range(3)]
        consumers.end()
        waiting.append(consumers.begin(wait_s=600))
        assert [(await each.finished()).messages for each in waiting] == [[], [], [], []]

    run(tmp_path, act)


def test_only_so_many_receives_may_wait(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        share = POLLS_MAX * 8 // 10
        waiting = [consumers.begin(wait_s=600) for _ in range(share)]
        with pytest.raises(Problem) as over_share:
            consumers.begin(wait_s=600).result()
        assert over_share.value.kind is CLIENT_OVER_SHARE
        for _ in range(POLLS_MAX - share):
            assert not consumers.begin(wait_s=600, client="10.0.0.2").is_done
        with pytest.raises(Problem) as overloaded:
            consumers.begin(wait_s=600, client="10.0.0.3").result()
        assert overloaded.value.kind is OVERLOADED
        waiting[0].cancel()
        assert not consumers.begin(wait_s=600).is_done

    run(tmp_path, act)


def test_a_receive_whose_token_was_removed_meanwhile_gets_no_message(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        waiting = consumers.begin(wait_s=600)
        consumers.refusal = Problem(UNAUTHENTICATED, "removed")
        consumers.put_one()
        with pytest.raises(Problem, match="removed"):
            await waiting.finished()
        consumers.refusal = None
        assert len((await consumers.get()).messages) == 1  # nothing was leased

    run(tmp_path, act)


def test_an_error_of_a_look_is_that_of_the_receive(tmp_path: Path) -> None:
    async def act(consumers: Consumers) -> None:
        await consumers.get()
        first, second = consumers.begin(wait_s=600), consumers.begin(wait_s=600)
        groups = consumers.engine._store.groups
        groups.put("g", lambda config: replace(config, consume_enable=False))
        consumers.put_one()
        for each in (first, second):
            with pytest.raises(GroupDisabled):
                await each.finished()

    run(tmp_path, act)
