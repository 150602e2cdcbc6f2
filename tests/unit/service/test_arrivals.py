from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

import pytest

from mqstore.service.arrivals import ReaderArrivals, WriterArrivals


class _Source:
    """A store with one counter per queue and a condition instead of a futex, written by this
    process or by another one."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0
        self.ends: dict[tuple[str, int], int] = {}
        self.broken = False
        self.event_fd = -1
        self.checks = 0

    def notify(self, event_fd: int) -> None:
        self.event_fd = event_fd

    def arrival_count(self) -> int:
        return self.count

    def wait_for_arrival(self, seen: int, timeout_s: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.count != seen, timeout_s)

    def end_of(self, topic: str, queue_id: int) -> int:
        self.checks += 1
        if self.broken:
            self.broken = False
            raise OSError("disk")
        return self.ends.get((topic, queue_id), 0)

    def put(self, topic: str, queue_id: int) -> None:
        with self.changed:
            self.ends[topic, queue_id] = self.ends.get((topic, queue_id), 0) + 1
            self.count += 1
            self.changed.notify_all()
        event_fd, self.event_fd = self.event_fd, -1
        if event_fd >= 0:
            os.eventfd_write(event_fd, 1)


Kind = Callable[[_Source, asyncio.AbstractEventLoop], WriterArrivals | ReaderArrivals]


@pytest.fixture(params=[WriterArrivals, ReaderArrivals])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


async def _start(kind: Kind, source: _Source) -> WriterArrivals | ReaderArrivals:
    arrivals = kind(source, asyncio.get_running_loop())
    arrivals.start()
    return arrivals


def test_arrival_wakes_those_who_wait_for_it_and_no_others(kind: Kind) -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = await _start(kind, source)
        with arrivals.watch(("a", 0, 0)) as mine, arrivals.watch(("b", 0, 0)) as other:
            source.put("a", 0)
            await asyncio.wait_for(mine, 30)
            assert not other.done()
        assert len(arrivals) == 0
        arrivals.stop()

    asyncio.run(scenario())


def test_what_is_there_already_wakes_at_once(kind: Kind) -> None:
    async def scenario() -> None:
        source = _Source()
        source.put("a", 0)
        arrivals = await _start(kind, source)
        with arrivals.watch(("a", 0, 0)) as mine:
            await asyncio.wait_for(mine, 30)
        arrivals.stop()

    asyncio.run(scenario())


def test_what_came_before_the_watch_wakes_although_a_check_has_counted_it(kind: Kind) -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = kind(source, asyncio.get_running_loop())  # nothing checks
        source.put("a", 0)
        with arrivals.watch(("a", 0, 0)) as mine, arrivals.watch(("a", 0, 1)) as later:
            assert (mine.done(), later.done()) == (True, False)

    asyncio.run(scenario())


def test_interrupt_wakes_all_polls_and_lets_no_further_one_wait(kind: Kind) -> None:
    async def scenario() -> None:
        arrivals = await _start(kind, _Source())
        with arrivals.watch(("a", 0, 0)) as first:
            arrivals.interrupt()
            assert first.done()
        with arrivals.watch(("a", 0, 0)) as later:
            assert later.done()
        arrivals.stop()

    asyncio.run(scenario())


def test_failed_look_does_not_end_the_waiting(kind: Kind) -> None:
    async def scenario() -> None:
        source = _Source()
        source.broken = True
        arrivals = await _start(kind, source)
        with arrivals.watch(("a", 0, 0)) as mine:
            source.put("a", 0)
            await asyncio.wait_for(mine, 30)
        arrivals.stop()

    asyncio.run(scenario())


def test_stop_before_start_is_fine(kind: Kind) -> None:
    async def scenario() -> None:
        kind(_Source(), asyncio.get_running_loop()).stop()

    asyncio.run(scenario())


def test_arrival_in_any_of_several_queues_wakes(kind: Kind) -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = await _start(kind, source)
        for queue_id in range(3):
            ends = [("a", each, source.end_of("a", each)) for each in range(3)]
            with arrivals.watch(*ends) as mine:
                source.put("a", queue_id)
                await asyncio.wait_for(mine, 30)
        arrivals.stop()

    asyncio.run(scenario())


def test_thousands_wait_for_one_queue_and_for_one_each(kind: Kind) -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = await _start(kind, source)
        count = 2_000
        with contextlib.ExitStack() as stack:
            shared = [stack.enter_context(arrivals.watch(("a", 0, 0))) for _ in range(count)]
            own = [stack.enter_context(arrivals.watch(("b", n, 0))) for n in range(count)]
            assert len(arrivals) == 2 * count
            source.put("a", 0)
            await asyncio.wait_for(asyncio.gather(*shared), 30)
            for number in (0, count - 1):
                source.put("b", number)
                await asyncio.wait_for(own[number], 30)
            assert sum(each.done() for each in own) == 2
        assert len(arrivals) == 0
        arrivals.stop()

    asyncio.run(scenario())


def test_puts_without_a_waiting_poll_lead_to_no_check() -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = WriterArrivals(source, asyncio.get_running_loop())
        arrivals.start()
        with arrivals.watch(("a", 0, 0)) as mine:
            source.put("a", 0)
            await asyncio.wait_for(mine, 30)
        source.put("a", 0)  # one notification may be on its way: it finds no watch
        for _ in range(3):
            await asyncio.sleep(0)
        before = source.checks
        for _ in range(100):
            source.put("a", 0)
            await asyncio.sleep(0)
        assert (source.checks, source.event_fd) == (before, -1)
        arrivals.stop()

    asyncio.run(scenario())


def test_a_put_of_another_thread_wakes() -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = WriterArrivals(source, asyncio.get_running_loop())
        arrivals.start()
        for offset in range(3):
            with arrivals.watch(("a", 0, offset)) as mine:
                await asyncio.to_thread(source.put, "a", 0)
                await asyncio.wait_for(mine, 30)
        arrivals.stop()

    asyncio.run(scenario())
