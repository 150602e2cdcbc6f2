"""Asks registered producers about the transactions of their groups that nobody has decided."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Final

import msgspec

from mqstore.coordinator.callbacks import Caller, CheckAnswer, NotSent, Unanswered, Wanted
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.errors import CoordinatorError, LogRefused
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.models import TransactionView
from mqstore.coordinator.producers import Producers
from mqstore.coordinator.shards import Shard, Shards
from mqstore.coordinator.views import view
from mqstore.service import logs

INTERVAL_S: Final = 0.25
CALLS_MAX: Final = 64
"""At one time."""
PRODUCERS_OF_A_CHECK: Final = 3
"""One that cannot be reached, or gives no answer, is passed over for another."""

log = logs.get(__name__)


class Asker:
    """Used on the event loop only."""

    def __init__(self, shards: Shards, producers: Producers, caller: Caller) -> None:
        self._shards = shards
        self._producers = producers
        self._caller = caller
        self._running: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        tasks = [*self._calls] if self._running is None else [self._running, *self._calls]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._caller.close()

    async def _run(self) -> None:
        while True:
            for shard in self._shards:
                if shard.worker.trouble is None:
                    with contextlib.suppress(CoordinatorError):  # it comes again
                        await self._begin(shard)
            await asyncio.sleep(INTERVAL_S)

    async def _begin(self, shard: Shard) -> None:
        groups, free = self._producers.able_groups(), CALLS_MAX - len(self._calls)
        if not groups or free <= 0:
            return
        claim = partial(_claim, shard.ordinal, groups, free)
        for due in await shard.worker.ask(claim):
            call = asyncio.get_running_loop().create_task(self._settle(shard, due))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _settle(self, shard: Shard, due: TransactionView) -> None:
        key = due.transaction_id.partition("-")[2]
        by, answer = await self._asked(due)
        try:
            if by is None:
                await shard.worker.ask(lambda c: c.unsent([key]))
                return
            told = "none" if answer is None else answer.decision.value
            with contextlib.suppress(LogRefused):  # it is not counted, and its answer still counts
                await shard.worker.ask(lambda c: c.sent([key], by, told))
            if answer is not None and answer.decision is not Wanted.UNKNOWN:
                why = answer.reason or f"asked: {by}"
                await shard.worker.decide(Decide(key, Verdict(answer.decision.value), why))
        except CoordinatorError as error:
            log.warning("a check comes again", transaction=due.transaction_id, why=str(error))

    async def _asked(self, due: TransactionView) -> tuple[str | None, CheckAnswer | None]:
        """Who was asked last (None: nobody could be reached), and the answer, if there is one."""
        body = msgspec.json.encode(due)
        by = None
        for producer in self._producers.able(due.producer_group)[:PRODUCERS_OF_A_CHECK]:
            try:
                answer = await self._caller.ask(producer, body)
            except NotSent as error:
                self._producers.failed(producer, str(error))
            except Unanswered as error:
                by = producer.name
                self._producers.failed(producer, str(error))
            else:
                self._producers.answered(producer)
                return producer.name, answer
        return by, None


def _claim(
    shard: int, groups: list[str], count: int, coordinator: Coordinator
) -> list[TransactionView]:
    """What is due in these groups; nobody else asks about it meanwhile."""
    found = coordinator.due(groups)[:count]
    coordinator.sending([each.key for each in found])
    return [view(shard, each) for each in found]
