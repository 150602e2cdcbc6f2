"""Schedules of a shard: three replicas that are killed, cut off, stopped and without power.

``make simulate-shard`` runs as many as one likes; a failure names the schedule by its seed.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.long_runs import few_first
from tests.simulation.shard import __main__ as command
from tests.simulation.shard.ledger import Broken, Ledger
from tests.simulation.shard.schedule import Schedule
from tests.simulation.shard.schedules import ScheduleBroken, run_all
from tests.simulation.shard.store_log import StoreLog

FIRST = random.SystemRandom().randrange(10**9) if "MQSTORE_EXPLORE" in os.environ else 0
"""The first seed; ``make nightly`` takes new ones."""
PART = 100
PARTS = 100
"""Parts of 10,000 schedules; each is a test, so that they spread over the cores."""
STORES_PART = 5
STORES_PARTS = 40


@pytest.mark.parametrize("part", few_first(range(PARTS)))
def test_what_is_acknowledged_as_replicated_is_kept_whatever_happens(part: int) -> None:
    start = FIRST + part * PART
    assert run_all(range(start, start + PART)) > PART


@pytest.mark.parametrize("part", few_first(range(STORES_PARTS)))
def test_replicas_with_real_stores_keep_it_and_become_equal(part: int) -> None:
    start = FIRST + part * STORES_PART
    assert run_all(range(start, start + STORES_PART), StoreLog) > STORES_PART


@pytest.mark.parametrize("seed", [3, 1515])
def test_a_schedule_is_the_same_each_time(seed: int) -> None:
    first, second = Schedule(seed), Schedule(seed)
    for each in (first, second):
        each.run()
    assert first.faults == second.faults
    assert first.events.count == second.events.count
    assert first.ledger == second.ledger


def test_a_schedule_that_breaks_a_promise_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Broken("offset 0 was acknowledged")

    monkeypatch.setattr(Ledger, "check_final", fail)
    with pytest.raises(ScheduleBroken, match=r"offset 0 .* make simulate-shard SEED=7 shows it"):
        run_all([7])


def test_the_command_shows_one_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["SCHEDULES=", "SEED=7", "JOBS="]) == 0
    assert "epoch 1: a/0#1" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["SEED=x", "STATES=3", "SEED"])
def test_the_command_rejects_other_arguments(argument: str) -> None:
    assert command.main([argument]) == 2
