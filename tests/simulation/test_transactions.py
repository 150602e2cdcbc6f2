"""Transactions over crashes: nothing lost, doubled or forgotten, wherever a process was killed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long_runs import examples, few_first
from tests.simulation.transactions import TransactionLife

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", few_first(range(6), 2, others=pytest.mark.nightly))
def test_after_any_crash_each_transaction_comes_to_its_end(seed: int) -> None:
    life = TransactionLife(seed, examined=0.1)
    life.live(60)
    assert life.states > 0


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_each_transaction_comes_to_its_end(seed: int) -> None:
    TransactionLife(seed).live(80)


@pytest.mark.parametrize("part", few_first(range(2), others=pytest.mark.nightly))
def test_hundreds_of_crash_states_come_to_their_end(part: int) -> None:
    examine(first_seed=part * 1_000, states=100)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_crash_states_come_to_their_end(part: int) -> None:
    examine(first_seed=part * 1_000, states=1_000)


def examine(first_seed: int, states: int) -> None:
    """Live one life after another until so many states were brought to their end."""
    for seed in itertools.count(first_seed):
        life = TransactionLife(seed, examined=0.2)
        life.live(80)
        states -= life.states
        if states <= 0:
            return
