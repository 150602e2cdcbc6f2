"""When a process that leads lets another one lead: over a log that hangs, fails or answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqstore.coordinator import lead_watch
from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.errors import LogUnavailable, NotLoaded
from mqstore.coordinator.lead_watch import LeadWatch, StandsStill
from mqstore.coordinator.leader_lock import LeaderLock
from mqstore.coordinator.leadership import NotLeading
from mqstore.coordinator.log import Standing
from mqstore.coordinator.records import NewRecord, Placement
from mqstore.coordinator.schedule import Rules
from mqstore.coordinator.worker import Worker
from mqstore.storage.codec.message_id import UniqueKeys
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.store_log import StoreLog

LOOK_S = 0.005
LOOKS = 10
PATIENCE_S = LOOKS * LOOK_S


@pytest.fixture(autouse=True)
def _a_watch_that_looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead_watch, "LOOK_S", LOOK_S)


class AnyLog(StoreLog):
    """Begins a take-over with ``first``; may be told to take no appends."""

    def __init__(self, world: DelayedStore, first: Callable[[], None]) -> None:
        super().__init__(lambda: world.store)
        self.world = world
        self.takes_appends = True
        self._first = first

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        self.world.machine.clock.advance(PATIENCE_S / 2)
        if not self.takes_appends:
            raise LogUnavailable("no answer to an append")
        return super().append(records)

    def take_over(self) -> Standing:
        self.answers += 1
        self._first()
        return super().take_over()


@dataclass
class Bench:
    log: AnyLog
    watch: LeadWatch
    worker: Worker
    own: LeaderLock
    other: LeaderLock
    failed: asyncio.Future[BaseException]

    async def look(self, times: int) -> None:
        for _ in range(times):
            self.watch.look()
            await asyncio.sleep(0)

    async def turn(self) -> None:
        """The worker has come by, and made a step before or does so now."""
        with suppress(NotLoaded):
            await self.worker.ask(lambda _: None)

    async def begin(self, key: str) -> None:
        message = NewRecord("T", 0, b"x", {"UNIQ_KEY": key}, "10.0.0.1:99", 0)
        with suppress(NotLoaded, LogUnavailable):
            await self.worker.begin(Begin("g", [message], may_repeat=False))

    def was_given_up(self) -> bool:
        """Then another one leads, at once, and this one leaves it the lead."""
        try:
            self.other.term()
        except NotLeading:
            return False
        with pytest.raises(NotLeading, match="given up"):
            self.own.term()
        return True


@asynccontextmanager
async def bench(tmp_path: Path, first: Callable[[], None]) -> AsyncIterator[Bench]:
    world = DelayedStore()
    seams = world.machine.seams
    log = AnyLog(world, first)
    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    own, other = (LeaderLock(tmp_path / "lock", url) for url in ("own", "other"))
    own.start()
    coordinator = Coordinator(log, seams.clock, UniqueKeys(seams), Rules())
    worker = Worker(coordinator, log, own, failed.set_result)
    watch = LeadWatch(own, [worker], PATIENCE_S, failed.set_result)
    worker.start()
    try:
        yield Bench(log, watch, worker, own, other, failed)
    finally:
        await asyncio.to_thread(worker.stop)
        own.stop()
        other.stop()


def test_one_that_works_keeps_the_lead(tmp_path: Path) -> None:
    async def lead() -> None:
        async with bench(tmp_path, lambda: None) as found:
            await found.turn()
            await found.look(3 * LOOKS)
            assert not found.was_given_up()

    asyncio.run(lead())


def test_one_whose_steps_all_fail_gives_it_up(tmp_path: Path) -> None:
    def unreachable() -> None:
        raise LogUnavailable("no route to the store")

    async def lead() -> None:
        async with bench(tmp_path, unreachable) as found:
            while found.worker.failing_s < PATIENCE_S:
                assert not found.was_given_up()
                await found.turn()
            await found.look(1)
            assert found.was_given_up()
            assert found.watch.given_up == 1
            while found.worker.failing_s > 0:
                await found.turn()
            await found.look(1)
            assert found.watch.given_up == 1, "it does not lead"
            assert not found.failed.done()

    asyncio.run(lead())


def test_one_whose_appends_alone_all_fail_gives_it_up(tmp_path: Path) -> None:
    async def lead() -> None:
        async with bench(tmp_path, lambda: None) as found:
            await found.turn()
            for key, takes_appends in (("a", False), ("b", True), ("c", False)):
                found.log.takes_appends = takes_appends
                await found.begin(key)
                await found.turn()
                await found.look(1)
                assert not found.was_given_up()
            while found.worker.failing_s < PATIENCE_S:
                assert not found.was_given_up()
                await found.begin("d")
            await found.look(1)
            assert found.was_given_up()
            while found.worker.failing_s > 0:
                await found.turn()

    asyncio.run(lead())


def test_one_that_waits_for_the_store_itself_keeps_it(tmp_path: Path) -> None:
    """Another coordinator would wait for the same."""

    def rebuilding() -> None:
        raise NotLoaded("the store's index is being rebuilt")

    async def lead() -> None:
        async with bench(tmp_path, rebuilding) as found:
            for _ in range(3 * LOOKS):
                await found.turn()
                await found.look(1)
            assert found.worker.failing_s == 0
            assert not found.was_given_up()

    asyncio.run(lead())


def test_one_whose_event_loop_stands_still_gives_it_up(tmp_path: Path) -> None:
    async def lead() -> None:
        async with bench(tmp_path, lambda: None) as found:
            await found.turn()
            for _ in range(LOOKS):
                found.watch.look()
            assert not found.was_given_up()
            found.watch.look()
            assert found.was_given_up()

    asyncio.run(lead())


def test_one_whose_thread_hangs_gives_it_up_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lead_watch, "STALL_S", 3 * LOOKS * LOOK_S)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        goes_on.wait()

    async def lead() -> None:
        async with bench(tmp_path, hang) as found:
            try:
                await asyncio.to_thread(hangs.wait)
                await found.look(3 * LOOKS)
                assert not found.was_given_up(), "what takes its time may take it"
                await found.look(1)
                assert found.was_given_up()
                assert isinstance(await found.failed, StandsStill)
            finally:
                goes_on.set()

    asyncio.run(lead())
