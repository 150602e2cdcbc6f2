"""What is asked of a shard's coordinator, and how whoever asked is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.errors import CoordinatorError

BATCH_MAX: Final = 64
"""Begins and decisions of one append."""

Ask = Begin | Decide | Callable[[Coordinator], Any]


class Job(msgspec.Struct, frozen=True):
    ask: Ask
    told: asyncio.Future[Any]


Results = list[tuple[Job, Any]]
"""What each job's asker is told: a result or a CoordinatorError."""


def begins_of(jobs: list[Job]) -> list[tuple[Job, Begin]]:
    return [(job, job.ask) for job in jobs if isinstance(job.ask, Begin)]


def decisions_of(jobs: list[Job]) -> list[tuple[Job, Decide]]:
    return [(job, job.ask) for job in jobs if isinstance(job.ask, Decide)]


def deliver(results: Results) -> None:
    """On the event loop."""
    for job, result in results:
        if job.told.done():  # nobody waits any more
            continue
        if isinstance(result, CoordinatorError):
            job.told.set_exception(result)
        else:
            job.told.set_result(result)
