"""Runs schedules by their seeds."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from tests.simulation.shard.memory_log import MemoryLog
from tests.simulation.shard.schedule import Schedule
from tests.simulation.shard.store_log import StoreLog

_STORES: Final = " STORES=1"


class ScheduleBroken(AssertionError):
    """A schedule broke a promise; the text says how to see it again."""


def run_all(seeds: Iterable[int], kind: type[MemoryLog] | type[StoreLog] = MemoryLog) -> int:
    """Run schedules, and return how many messages they acknowledged. Raises ScheduleBroken."""
    logging.disable(logging.CRITICAL)
    acknowledged = 0
    for seed in seeds:
        schedule = Schedule(seed, kind)
        try:
            schedule.run()
        except Exception as error:
            raise ScheduleBroken(
                f"schedule {seed}: {error or type(error).__name__}; "
                f"make simulate-shard SEED={seed}{_STORES if kind is StoreLog else ''} shows it"
            ) from error
        acknowledged += len(schedule.ledger.replicated)
    return acknowledged
