"""Steps that a follower runs in threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mqstore.writer.replication.follower import run_to_end


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_for_an_earlier_leader_ends_before_anything_else_is_done(*, fails: bool) -> None:
    began, may_end = threading.Event(), threading.Event()

    def save_tables() -> None:
        began.set()
        may_end.wait(60)
        if fails:
            raise OSError("no space left")

    async def run() -> None:
        task = asyncio.create_task(run_to_end(save_tables))
        await asyncio.to_thread(began.wait, 60)
        for _ in range(3):
            task.cancel()
            await asyncio.wait({task}, timeout=0)
            assert not task.done()
        may_end.set()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(run())


def test_an_error_of_a_step_is_raised() -> None:
    def fail() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        asyncio.run(run_to_end(fail))
