"""Begins and decisions on the event loop, beside the coordinator's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mqstore.coordinator import coordinator, worker
from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.errors import LogRefused, LogUnavailable, NotLoaded
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.leader_lock import LeaderLock
from mqstore.coordinator.records import Append, Keyed, NewRecord, Placement
from mqstore.coordinator.schedule import Rules
from mqstore.coordinator.worker import Worker
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.system.threads import production_seams
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.store_log import StoreLog

HOUR_S = 3_600
Failing = Callable[[Sequence[NewRecord]], None]


@pytest.fixture(autouse=True)
def _a_thread_that_sleeps_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STEP_MAX_S", HOUR_S)
    monkeypatch.setattr(coordinator, "PROGRESS_INTERVAL_S", HOUR_S)


class SeenLog(StoreLog):
    """Tells by which way how many records were appended."""

    def __init__(self, world: DelayedStore) -> None:
        super().__init__(lambda: world.store)
        self.seen: list[tuple[str, int]] = []
        self.lookups = 0
        self.failing: Failing = lambda _: None

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        self.seen.append(("thread", len(records)))
        return super().append(records)

    async def append_soon(self, append: Append) -> list[Placement]:
        self.failing(append.records)
        self.seen.append(("loop", len(append.records)))
        await asyncio.sleep(0)
        return await super().append_soon(append)

    def by_key(self, topic: str, key: str) -> Keyed:
        self.lookups += 1
        return super().by_key(topic, key)


class SteppedCoordinator(Coordinator):
    steps = 0

    def step(self, now: float) -> float:
        self.steps += 1
        return super().step(now)


class Bench:
    def __init__(self, lock: Path) -> None:
        self.log = SeenLog(DelayedStore())
        seams = production_seams()
        rules = Rules(transaction_timeout_ms=HOUR_S * 1000)
        self.coordinator = SteppedCoordinator(self.log, seams.clock, UniqueKeys(seams), rules)
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        leadership = LeaderLock(lock, "url")
        self.worker = Worker(self.coordinator, self.log, leadership, self.failed.set_result)
        self.now_ms = seams.clock.now_ms()

    def begin(self, key: str, *, may_repeat: bool = False) -> asyncio.Future[Any]:
        table = {"UNIQ_KEY": key}
        message = NewRecord("T", 0, key.encode(), table, "10.0.0.1:99", self.now_ms)
        return self.worker.begin(Begin("g", [message], may_repeat))

    def commit(self, key: str) -> asyncio.Future[Any]:
        return self.worker.decide(Decide(key, Verdict.COMMIT, "producer"))


@asynccontextmanager
async def leading(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "lock")
    bench.worker.start()
    try:
        await loaded(bench)
        yield bench
    finally:
        await asyncio.to_thread(bench.worker.stop)


async def loaded(bench: Bench) -> None:
    """Return when the thread leads, and will have nothing to do for an hour."""
    led = bench.coordinator
    await until(lambda: bench.worker.trouble is None and led.is_loaded)
    steps = led.steps
    await bench.worker.ask(lambda _: None)
    await until(lambda: led.steps > steps)
    await asyncio.to_thread(_hold, bench.worker)


def _hold(worker: Worker) -> None:
    """Returns when the step is over."""
    with worker._floor.held():
        pass


async def until(it_is: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not it_is():  # noqa: ASYNC110  # what a thread does sets no event of the loop
            await asyncio.sleep(0)


def run(tmp_path: Path, test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with leading(tmp_path) as bench:
            await asyncio.wait_for(test(bench), 30)

    asyncio.run(main())


def test_all_that_wait_together_are_one_append_of_the_event_loop(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await asyncio.gather(*(bench.begin(key) for key in "abc"))
        await asyncio.gather(bench.commit("a"), bench.commit("b"), bench.begin("d"))
        assert bench.log.seen == [("loop", 3), ("loop", 5)]

    run(tmp_path, test)


def test_what_comes_while_an_append_is_under_way_is_taken_after_it(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        first = bench.begin("a")
        await until(lambda: bool(bench.log.seen))
        await asyncio.gather(first, bench.begin("b"), bench.begin("c"))
        assert bench.log.seen == [("loop", 1), ("loop", 2)]

    run(tmp_path, test)


def test_begins_under_the_producers_own_keys_are_one_append_and_no_lookup(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        lookups = bench.log.lookups
        begun = [bench.begin(key, may_repeat=True) for key in "abc"]
        again = bench.begin("a", may_repeat=True)
        assert await again is (await asyncio.gather(*begun))[0]
        assert await bench.begin("b", may_repeat=True) is await begun[1]
        assert bench.log.seen == [("loop", 3)]
        assert bench.log.lookups == lookups

    run(tmp_path, test)


def test_a_begin_whose_key_has_a_record_is_looked_up_and_leaves_the_others_alone(
    tmp_path: Path,
) -> None:
    async def test(bench: Bench) -> None:
        first = await bench.begin("a", may_repeat=True)
        await bench.commit("a")
        bench.coordinator.state.history.clear()
        bench.log.seen.clear()
        again, other = bench.begin("a", may_repeat=True), bench.begin("b", may_repeat=True)
        assert (await other).key == "b"
        assert (await again).key == first.key
        assert (await again).decision is not None, "it is the committed one"
        assert bench.log.seen == [("loop", 2), ("loop", 1), ("loop", 1)]

    run(tmp_path, test)


def test_transactions_are_read_back_without_a_lookup_for_each(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await asyncio.gather(*(bench.begin(key) for key in "abcd"))
        await asyncio.gather(bench.commit("a"), bench.commit("b"))
        lookups = bench.log.lookups
        await bench.worker.ask(lambda led: led.forget())
        await loaded(bench)
        assert sorted(bench.coordinator.state.pending) == ["c", "d"]
        assert bench.log.lookups == lookups

    run(tmp_path, test)


def test_a_decision_whose_messages_are_not_in_memory_goes_through_the_thread(
    tmp_path: Path,
) -> None:
    async def test(bench: Bench) -> None:
        await bench.begin("a")
        await bench.worker.ask(lambda led: led.forget())
        await loaded(bench)
        await bench.commit("a")  # its half message was read back, without its body
        assert bench.log.seen[-1] == ("thread", 2)

    run(tmp_path, test)


def test_while_the_thread_has_the_coordinator_it_takes_all(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def look(_: Coordinator) -> None:
            begun.set()
            go_on.wait()

        looking = bench.worker.ask(look)
        await asyncio.to_thread(begun.wait)
        waiting: list[Awaitable[Any]] = [bench.begin("a"), bench.begin("b")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(looking, *waiting)
        assert bench.log.seen == [("thread", 2)]

    run(tmp_path, test)


def test_after_an_unclear_append_the_log_is_read_again(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        def fail(_: Sequence[NewRecord]) -> None:
            bench.log.failing = lambda _: None
            raise LogUnavailable("no answer")

        bench.log.failing = fail
        with pytest.raises(LogUnavailable):
            await bench.begin("a")
        await loaded(bench)
        assert bench.coordinator.counts.loads == 2
        await bench.begin("a")

    run(tmp_path, test)


def test_a_defect_is_told_and_does_not_leave_requests_waiting(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        def fail(_: Sequence[NewRecord]) -> None:
            waiting.append(bench.begin("b"))  # comes while the append is under way
            raise ZeroDivisionError

        waiting: list[Awaitable[Any]] = []
        bench.log.failing = fail
        with pytest.raises(NotLoaded, match="not known"):
            await bench.begin("a")
        with pytest.raises(NotLoaded, match="not known"):
            await waiting[0]
        assert isinstance(await bench.failed, ZeroDivisionError)

    asyncio.run(_ended_by_a_defect(tmp_path, test))


async def _ended_by_a_defect(
    tmp_path: Path, test: Callable[[Bench], Coroutine[Any, Any, None]]
) -> None:
    """The task that failed is told of by nobody else."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with leading(tmp_path) as bench:
        await asyncio.wait_for(test(bench), 30)


def test_one_that_the_store_refuses_leaves_the_others_alone(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        def refuse(records: Sequence[NewRecord]) -> None:
            if any(record.body == b"bad" for record in records):
                raise LogRefused("a bad one")

        bench.log.failing = refuse
        told = await asyncio.gather(
            *(bench.begin(key) for key in ("a", "bad", "b")), return_exceptions=True
        )
        assert [isinstance(each, LogRefused) for each in told] == [False, True, False]
        assert set(bench.coordinator.state.pending) == {"a", "b"}

    run(tmp_path, test)


def test_a_defect_on_the_event_loop_is_told(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        def break_down(_: Sequence[NewRecord]) -> None:
            raise ZeroDivisionError

        bench.log.failing = break_down
        bench.begin("a")
        assert isinstance(await bench.failed, ZeroDivisionError)

    run(tmp_path, test)
