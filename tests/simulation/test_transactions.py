"""Transactions over crashes: nothing lost, doubled or forgotten, wherever a process was killed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.transactions import TransactionLife


@pytest.mark.parametrize("seed", range(6))
def test_after_any_crash_each_transaction_comes_to_its_end(seed: int) -> None:
    life = TransactionLife(seed, examined=0.1)
    life.live(60)
    assert life.states > 0


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_each_transaction_comes_to_its_end(seed: int) -> None:
    TransactionLife(seed).live(80)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_ten_thousand_crash_states_come_to_their_end(part: int) -> None:
    states = 0
    for seed in itertools.count(part * 1_000):
        life = TransactionLife(seed, examined=0.2)
        life.live(80)
        states += life.states
        if states >= 1_250:
            return
