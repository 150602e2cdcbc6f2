"""What becomes of a producer's answer to a check."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, cast

import httpx
import pytest

from mqstore.coordinator.asking import Asker
from mqstore.coordinator.callbacks import Caller, CheckAnswer, Wanted
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.errors import CoordinatorError, LogRefused, LogUnavailable
from mqstore.coordinator.halves import Decision, Half, Verdict
from mqstore.coordinator.producers import Producer, Producers
from mqstore.coordinator.shards import Shard, Shards
from mqstore.coordinator.targets import Target
from mqstore.coordinator.transactions import Transaction
from mqstore.coordinator.views import view

HALF = Half("k", "k", 1, "g", "t", 0, 0, 0, 0, None, 0, 0, b"")
TARGET = Target(httpx.URL("https://example.org/"), str(ip_address("10.0.0.1")))


class SureProducer:
    """In a ``Caller``'s place."""

    async def ask(self, producer: Producer, body: bytes) -> CheckAnswer:
        return CheckAnswer(decision=Wanted.COMMIT, reason="the books")


class StoreThatRefuses:
    """In a ``Worker``'s place: checks cannot be counted."""

    trouble = None

    def __init__(self, refusal: CoordinatorError) -> None:
        self.refusal = refusal
        self.decided: list[Decide] = []

    async def ask(self, look: Callable[[Any], Any]) -> Any:
        raise self.refusal

    async def decide(self, asked: Decide) -> Decision:
        self.decided.append(asked)
        return Decision(asked.verdict, 1, asked.why)


@pytest.mark.parametrize(
    ("refusal", "decided"),
    [
        (LogRefused("properties are too long"), [Decide("k", Verdict.COMMIT, "the books")]),
        (LogUnavailable("it may have been done"), []),
    ],
)
def test_an_answer_counts_where_the_check_itself_cannot_be_counted(
    refusal: CoordinatorError, decided: list[Decide]
) -> None:
    worker = StoreThatRefuses(refusal)
    shard = cast(Shard, type("OneShard", (), {"ordinal": 0, "worker": worker}))
    producers = Producers(lambda: 0.0)
    producers.register("g", "one", TARGET, "s" * 32, 90)
    asker = Asker(cast(Shards, [shard]), producers, cast(Caller, SureProducer()))
    due = Transaction("k", HALF)
    due.add(HALF)
    asyncio.run(asker._settle(shard, view(0, due)))
    assert worker.decided == decided
