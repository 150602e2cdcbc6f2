"""Kill -9 of coordinator and store-writer, at random; the simulation cuts off each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.transaction_kills import live


@pytest.mark.slow
def test_after_kills_each_message_is_there_as_it_was_decided(tmp_path: Path) -> None:
    assert live(tmp_path, seed=1, rounds=3).total() == 3


@pytest.mark.slow
def test_after_more_kills_each_message_is_there_as_it_was_decided(tmp_path: Path) -> None:
    assert live(tmp_path, seed=2, rounds=10).total() == 10


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_after_hundreds_of_kills_each_message_is_there(tmp_path: Path, seed: int) -> None:
    assert live(tmp_path, seed, rounds=30).total() == 30
