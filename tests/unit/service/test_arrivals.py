from __future__ import annotations

import asyncio
import contextlib
import threading

from mqstore.service.arrivals import Arrivals


class _Source:
    """A store with one counter per queue and a condition instead of a futex."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0
        self.ends: dict[tuple[str, int], int] = {}
        self.broken = False

    def arrival_count(self) -> int:
        return self.count

    def wait_for_arrival(self, seen: int, timeout_s: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.count != seen, timeout_s)

    def end_of(self, topic: str, queue_id: int) -> int:
        if self.broken:
            self.broken = False
            raise OSError("disk")
        return self.ends.get((topic, queue_id), 0)

    def put(self, topic: str, queue_id: int) -> None:
        with self.changed:
            self.ends[topic, queue_id] = self.ends.get((topic, queue_id), 0) + 1
            self.count += 1
            self.changed.notify_all()


async def _with_arrivals(source: _Source) -> Arrivals:
    arrivals = Arrivals(source, asyncio.get_running_loop())
    arrivals.start()
    return arrivals


def test_arrival_wakes_those_who_wait_for_it_and_no_others() -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = await _with_arrivals(source)
        with arrivals.watch(("a", 0, 0)) as mine, arrivals.watch(("b", 0, 0)) as other:
            source.put("a", 0)
            await asyncio.wait_for(mine, 30)
            assert not other.done()
        assert len(arrivals) == 0
        arrivals.stop()

    asyncio.run(scenario())


def test_what_is_there_already_wakes_at_once() -> None:
    async def scenario() -> None:
        source = _Source()
        source.put("a", 0)
        arrivals = await _with_arrivals(source)
        with arrivals.watch(("a", 0, 0)) as mine:
            await asyncio.wait_for(mine, 30)
        arrivals.stop()

    asyncio.run(scenario())


def test_what_came_before_the_watch_wakes_although_the_thread_has_counted_it() -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = Arrivals(source, asyncio.get_running_loop())  # its thread sleeps
        source.put("a", 0)
        with arrivals.watch(("a", 0, 0)) as mine, arrivals.watch(("a", 0, 1)) as later:
            assert (mine.done(), later.done()) == (True, False)

    asyncio.run(scenario())


def test_interrupt_wakes_all_polls_and_lets_no_further_one_wait() -> None:
    async def scenario() -> None:
        arrivals = await _with_arrivals(_Source())
        with arrivals.watch(("a", 0, 0)) as first:
            arrivals.interrupt()
            assert first.done()
        with arrivals.watch(("a", 0, 0)) as later:
            assert later.done()
        arrivals.stop()

    asyncio.run(scenario())


def test_failed_look_does_not_end_the_waiting() -> None:
    async def scenario() -> None:
        source = _Source()
        source.broken = True
        arrivals = await _with_arrivals(source)
        with arrivals.watch(("a", 0, 0)) as mine:
            source.put("a", 0)
            await asyncio.wait_for(mine, 30)
        arrivals.stop()

    asyncio.run(scenario())


def test_stop_before_start_is_fine() -> None:
    async def scenario() -> None:
        Arrivals(_Source(), asyncio.get_running_loop()).stop()

    asyncio.run(scenario())


def test_arrival_in_any_of_several_queues_wakes() -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = await _with_arrivals(source)
        for queue_id in range(3):
            ends = [("a", each, source.end_of("a", each)) for each in range(3)]
            with arrivals.watch(*ends) as mine:
                source.put("a", queue_id)
                await asyncio.wait_for(mine, 30)
        arrivals.stop()

    asyncio.run(scenario())


def test_thousands_wait_for_one_queue_and_for_one_each() -> None:
    async def scenario() -> None:
        source = _Source()
        arrivals = await _with_arrivals(source)
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
