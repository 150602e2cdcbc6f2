"""The coordinator's thread over a log that has a defect."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.errors import NotLoaded
from mqstore.coordinator.jobs import BATCH_MAX
from mqstore.coordinator.leader_lock import LeaderLock
from mqstore.coordinator.log import Standing
from mqstore.coordinator.schedule import Rules
from mqstore.coordinator.worker import Worker
from mqstore.storage.codec.message_id import UniqueKeys
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.store_log import StoreLog


class DefectiveLog(StoreLog):
    def take_over(self) -> Standing:
        raise ZeroDivisionError


def test_a_defect_in_the_thread_is_told_and_does_not_leave_requests_waiting(
    tmp_path: Path,
) -> None:
    async def lead() -> BaseException:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        seams = world.machine.seams
        log = DefectiveLog(lambda: world.store)
        coordinator = Coordinator(log, seams.clock, UniqueKeys(seams), Rules())
        leadership = LeaderLock(tmp_path / "lock", "url")
        worker = Worker(coordinator, log, leadership, failed.set_result)
        waiting = [worker.ask(lambda _: None) for _ in range(BATCH_MAX + 1)]
        worker.start()
        error = await failed
        waiting.append(worker.ask(lambda _: None))
        await asyncio.to_thread(worker.stop)
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, NotLoaded) for each in told)
        return error

    world = DelayedStore()
    assert isinstance(asyncio.run(lead()), ZeroDivisionError)
