from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mqstore.storage.errors import FlushTimeout, StoreFailed
from mqstore.writer.durability import DurabilityWaiter


class _Request:
    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.error: StoreFailed | None = None
        self.call: Callable[[_Request], None] | None = None

    def add_done_callback(self, call: Callable[[_Request], None]) -> None:
        self.call = call

    def finish(self, error: StoreFailed | None = None) -> None:
        self.error = error
        assert self.call is not None
        self.call(self)


class _Flush:
    """A flush service whose syncs end when the test says so."""

    def __init__(self) -> None:
        self.requests: list[_Request] = []
        self.reached_offset = 0

    def request(self, offset: int) -> _Request:
        self.requests.append(_Request(offset))
        return self.requests[-1]


def _waiter(flush: _Flush, timeout_s: float = 60, **options: str) -> DurabilityWaiter:
    return DurabilityWaiter(flush, timeout_s, **options)  # type: ignore[arg-type]  # what it uses


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _note(done: list[int], end: int, error: Exception | None) -> None:
    assert error is None
    done.append(end)


def test_one_request_serves_a_turn_and_what_its_sync_covered() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush)
        done: list[int] = []
        for end in (10, 30, 20):
            waiter.add(end, partial(_note, done, end))
        await _turn()
        assert [request.offset for request in flush.requests] == [30]
        waiter.add(40, partial(_note, done, 40))  # written before the sync began
        flush.reached_offset = 40
        flush.requests[0].finish()
        await _turn()
        assert done == [10, 30, 20, 40]
        assert len(flush.requests) == 1

    asyncio.run(scenario())


def test_those_who_come_during_a_sync_share_the_next() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush)
        first = asyncio.create_task(waiter.wait(10))
        await _turn()
        later = [asyncio.create_task(waiter.wait(end)) for end in (20, 30, 25)]
        await _turn()
        assert [request.offset for request in flush.requests] == [10]
        flush.reached_offset = 10
        flush.requests[0].finish()
        await first
        await _turn()
        assert [request.offset for request in flush.requests] == [10, 30]
        assert not any(task.done() for task in later)
        flush.reached_offset = 30
        flush.requests[1].finish()
        await asyncio.gather(*later)

    asyncio.run(scenario())


def test_failed_sync_acknowledges_no_request() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush)
        tasks = [asyncio.create_task(waiter.wait(end)) for end in (10, 20)]
        await _turn()
        flush.requests[0].finish(StoreFailed("disk"))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, StoreFailed) for result in results)

    asyncio.run(scenario())


def test_late_sync_is_a_flush_timeout() -> None:
    async def scenario() -> None:
        with pytest.raises(FlushTimeout):
            await _waiter(_Flush(), timeout_s=0.001).wait(10)

    asyncio.run(scenario())


def test_a_late_commit_is_a_timeout_that_names_the_page_cache() -> None:
    async def scenario() -> None:
        waiter = _waiter(_Flush(), timeout_s=0.001, place="in the page cache")
        with pytest.raises(FlushTimeout, match="not known to be in the page cache after"):
            await waiter.wait(10)

    asyncio.run(scenario())


def test_waiter_that_went_away_does_not_disturb_the_others() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush)
        gone, kept = (asyncio.create_task(waiter.wait(10)) for _ in range(2))
        await _turn()
        gone.cancel()
        await _turn()
        flush.reached_offset = 10
        flush.requests[0].finish()
        await kept

    asyncio.run(scenario())


def test_the_next_sync_is_requested_before_the_replies_to_the_last() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush)
        requested: list[int] = []
        waiter.add(10, lambda _: requested.append(len(flush.requests)))
        await _turn()
        waiter.add(20, lambda _: None)
        flush.reached_offset = 10
        flush.requests[0].finish()
        await _turn()
        assert requested == [2]

    asyncio.run(scenario())


def test_an_error_of_a_callback_is_reported_and_the_others_are_called() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush)
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, each: reported.append(each))
        done: list[int] = []
        waiter.add(10, partial(_note, done, 10))
        waiter.add(20, lambda _: 1 / 0)
        waiter.add(30, partial(_note, done, 30))
        await _turn()
        flush.reached_offset = 30
        flush.requests[0].finish()
        await _turn()
        assert done == [10, 30]
        assert [type(each["exception"]) for each in reported] == [ZeroDivisionError]

    asyncio.run(scenario())


def test_a_wait_that_a_callback_adds_is_served_by_the_next_sync() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush)
        done: list[int] = []

        def again(error: Exception | None) -> None:
            _note(done, 10, error)
            waiter.add(20, partial(_note, done, 20))

        waiter.add(10, again)
        waiter.add(15, partial(_note, done, 15))
        await _turn()
        for number, reached in enumerate((15, 20)):
            flush.reached_offset = reached
            flush.requests[number].finish()
            await _turn()
        assert done == [10, 15, 20]
        assert [request.offset for request in flush.requests] == [15, 20]

    asyncio.run(scenario())


def test_each_wait_has_its_own_deadline() -> None:
    async def scenario() -> None:
        flush = _Flush()
        waiter = _waiter(flush, timeout_s=0.001)
        late = [asyncio.create_task(waiter.wait(end)) for end in (10, 20)]
        await asyncio.wait(late)
        with pytest.raises(FlushTimeout):
            await waiter.wait(30)  # the timer is set again
        assert all(isinstance(task.exception(), FlushTimeout) for task in late)

    asyncio.run(scenario())
