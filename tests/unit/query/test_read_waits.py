"""Reads that wait for an offset: until it is there, for a limited time, in a limited number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mqstore.query import read_waits
from mqstore.query.read_waits import ReadWaits
from mqstore.service.limits import Budget
from mqstore.service.problems import OFFSET_NOT_REACHED, OVERLOADED, Problem


class _Store:
    def __init__(self, end: int) -> None:
        self.end = end

    def readable_end(self) -> int:
        return self.end


def _scope(value: bytes) -> dict[str, Any]:
    return {"headers": [(b"x-mqstore-at-least", value)], "client": ("10.0.0.1", 1)}


def test_a_read_waits_until_the_offset_is_readable() -> None:
    async def scenario() -> None:
        store = _Store(10)
        waits = ReadWaits(store.readable_end, 0, Budget("polls", 1, 100))
        await waits.wait(_scope(b"0:10"))
        await waits.wait(_scope(b"1:99"))
        waiting = asyncio.create_task(waits.wait(_scope(b"0:11")))
        await asyncio.sleep(0)
        assert not waiting.done()
        with pytest.raises(Problem) as refused:
            await waits.wait(_scope(b"0:12"))
        assert refused.value.kind is OVERLOADED
        store.end = 11
        await waiting

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_read_that_waits_too_long_learns_how_far_the_log_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_waits, "WAIT_MAX_S", 0.01)

    async def scenario() -> None:
        waits = ReadWaits(_Store(10).readable_end, 0, Budget("polls", 1, 100))
        for _ in range(2):
            with pytest.raises(Problem) as refused:
                await waits.wait(_scope(b"0:30"))
            assert refused.value.kind is OFFSET_NOT_REACHED
            assert refused.value.extra == {"readableOffset": 10, "behindBytes": 20}

    asyncio.run(asyncio.wait_for(scenario(), 60))
