from __future__ import annotations

import asyncio

from mqstore.service.rate import Rate


def test_what_was_taken_is_paid_for_before_more_is_given() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        rate = Rate(100_000)
        begun = loop.time()
        await asyncio.gather(*(rate.take(1_000) for _ in range(6)))
        return loop.time() - begun

    assert asyncio.run(scenario()) >= 5 * 0.01 - 0.001


def test_without_a_limit_no_caller_waits() -> None:
    asyncio.run(asyncio.wait_for(Rate(0).take(1 << 60), 30))


def test_who_takes_last_waits_for_what_was_taken_before() -> None:
    rate = Rate(1_000)
    assert rate.reserve(500, 10.0) == 0
    assert rate.reserve(2_000, 10.0) == 0.5
    assert rate.reserve(100, 10.0) == 2.5
    assert rate.reserve(100, 20.0) == 0
    assert Rate(0).reserve(1 << 60, 0.0) == 0
