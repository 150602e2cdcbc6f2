"""What is known of topics, shard by shard."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

from mqstore.client import Client, Topic
from mqstore.coordinator.topics import Topics


class Writer:
    """In a ``Client``'s place."""

    def __init__(self, answers: threading.Event) -> None:
        self.answers = answers

    def topic(self, name: str) -> Topic:
        self.answers.wait()
        return Topic(topic=name, queues=1, read_queues=1, write_queues=1, perm=6, order=False)


def test_a_shard_that_does_not_answer_keeps_nobody_from_asking_another() -> None:
    hangs, answers = threading.Event(), threading.Event()
    answers.set()

    async def ask() -> None:
        away, there = (Topics(cast(Client, Writer(each))) for each in (hangs, answers))
        waiting = [asyncio.ensure_future(away.writable(f"t{number}")) for number in range(100)]
        await asyncio.sleep(0)
        try:
            assert (await there.writable("t")).topic == "t"
            assert not any(each.done() for each in waiting)
        finally:
            hangs.set()
        assert len(await asyncio.gather(*waiting)) == 100

    asyncio.run(ask())
