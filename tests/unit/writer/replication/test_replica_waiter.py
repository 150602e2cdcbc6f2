"""Waits for slaves: acknowledged, too late, no slave, slaves that are far behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mqstore.service.slave_errors import SlaveNotAvailable, SlaveTimeout
from mqstore.storage.errors import FlushTimeout, StoreFailed
from mqstore.writer.replication.replica_waiter import ReplicaWaiter
from mqstore.writer.waits import Callback, Waiter, WaiterForBoth, WaitError


class _Server:
    """Slaves whose acknowledgements the test makes."""

    def __init__(self, acknowledged: int | None = 0) -> None:
        self.acknowledged = acknowledged
        self.listeners: list[Callable[[], object]] = []
        self.sends = 0

    def send_now(self) -> None:
        self.sends += 1

    def report(self, offset: int) -> None:
        self.acknowledged = offset
        for each in self.listeners:
            each()


def _run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def _waiter(server: _Server | None, timeout_s: float = 60, behind_max: int = 1000) -> ReplicaWaiter:
    given: Any = server
    return ReplicaWaiter(
        given, timeout_s, behind_max, lambda: None if server is None else server.acknowledged
    )


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_waits_end_when_a_slave_has_their_bytes() -> None:
    async def scenario() -> None:
        server = _Server()
        waiter = _waiter(server)
        done: list[tuple[int, WaitError | None]] = []
        for end in (30, 10, 20):
            waiter.add(end, lambda error, end=end: done.append((end, error)))  # type: ignore[misc]
        assert server.sends == 0
        await _turns()
        assert (server.sends, done) == (1, [])
        server.report(20)
        assert done == [(10, None), (20, None)]
        server.report(30)
        assert done[2:] == [(30, None)]

    _run(scenario)


def test_what_a_slave_has_already_is_called_back_later() -> None:
    async def scenario() -> None:
        waiter = _waiter(_Server(acknowledged=10))
        done: list[WaitError | None] = []
        waiter.add(10, done.append)
        assert done == []
        await waiter.wait(10)
        assert done == [None]

    _run(scenario)


def test_a_wait_without_an_acknowledgement_times_out() -> None:
    async def scenario() -> None:
        server = _Server()
        waiter = _waiter(server, timeout_s=0.01)
        late = [asyncio.create_task(waiter.wait(end)) for end in (20, 10)]
        for each in late:
            with pytest.raises(SlaveTimeout, match=r"0\.01 s"):
                await each
        again = asyncio.create_task(waiter.wait(20))
        await _turns()
        server.report(20)
        await again

    _run(scenario)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (None, "haAllowedSlaves"),
        (_Server(acknowledged=None), "too few slaves"),
        (_Server(acknowledged=0), "1000 bytes behind"),
    ],
)
def test_without_a_slave_that_is_near_there_is_no_wait(server: _Server | None, why: str) -> None:
    async def scenario() -> None:
        with pytest.raises(SlaveNotAvailable, match=why):
            await _waiter(server).wait(1000)

    _run(scenario)


class _ByHand(Waiter):
    def __init__(self) -> None:
        self.callback: Callback = lambda _: None

    def add(self, end: int, callback: Callback) -> None:
        self.callback = callback


LATE, SLAVE_LATE, FAILED = FlushTimeout("disk"), SlaveTimeout("slave"), StoreFailed("failed")


@pytest.mark.parametrize(
    ("disk", "slave", "both"),
    [
        (None, None, None),
        (LATE, None, LATE),
        (None, SLAVE_LATE, SLAVE_LATE),
        (LATE, SLAVE_LATE, SLAVE_LATE),
        (FAILED, SLAVE_LATE, FAILED),
    ],
)
@pytest.mark.parametrize("is_disk_first", [True, False])
def test_a_wait_for_both_ends_with_the_later_and_reports_the_graver_error(
    disk: WaitError | None, slave: WaitError | None, both: WaitError | None, is_disk_first: bool
) -> None:
    of_disk, of_slave = _ByHand(), _ByHand()
    done: list[WaitError | None] = []
    WaiterForBoth(of_disk, of_slave).add(1, done.append)
    ends = [(of_disk, disk), (of_slave, slave)]
    for waiter, error in ends if is_disk_first else reversed(ends):
        assert done == []
        waiter.callback(error)
    assert done == [both]


def test_a_defect_of_a_callback_is_reported_and_others_go_on() -> None:
    async def scenario() -> None:
        server, found = _Server(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: found.append(what))
        waiter = _waiter(server)
        waiter.add(1, lambda _: 1 // 0)
        other = asyncio.create_task(waiter.wait(2))
        await _turns()
        server.report(2)
        await other
        assert isinstance(found[0]["exception"], ZeroDivisionError)

    _run(scenario)
