"""Real RocketMQ wrote it, we read it: the same messages, queues and look-ups, field by field."""

from __future__ import annotations

import pytest
from hypothesis import example, given

from tests.compat import ours
from tests.compat.compare import Dump, differences, fingerprint, lost, script_differences
from tests.compat.examples import (
    MESSAGES,
    copy_of,
    example_directory,
    half_way,
    openable_copy_of,
    random_stores,
)
from tests.compat.referee import Referee
from tests.compat.scripts import Script, expected_messages
from tests.compat.shapes import EVERYTHING, SEEDS, Shape, expand, shapes
from tests.long_runs import few_first

pytestmark = pytest.mark.referee


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
@example(seed=2, shape=EVERYTHING)
def test_we_read_a_clean_store(referee: Referee, seed: int, shape: Shape) -> None:
    script = expand(seed, shape, referee.format)
    with example_directory(script) as directory:
        store = directory / "store"
        answers = referee.write(script, store)
        before = fingerprint(store)
        found = Dump.of(ours.dump(store, {}))  # every size is found from the files
        assert fingerprint(store) == before, "a dump changed the store"
        assert script_differences(expected_messages(script, answers, referee.format), found) == []
        assert differences(found, Dump.of(referee.dump(copy_of(store), shape.config))) == []


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
@pytest.mark.slow
def test_we_read_a_store_halted_mid_write(referee: Referee, seed: int, shape: Shape) -> None:
    _read_halted(half_way(expand(seed, shape, referee.format)), referee)


@pytest.mark.parametrize("wait_dispatch", few_first([False, True]))
def test_we_read_a_store_halted_after_the_last_put(referee: Referee, wait_dispatch: bool) -> None:
    script = expand(3, EVERYTHING, referee.format)
    _read_halted(script.ending("halt", wait_dispatch=wait_dispatch), referee)


def _read_halted(script: Script, referee: Referee) -> None:
    """Our recovery equals RocketMQ's, apart from queues without delivery times."""
    with example_directory(script) as directory:
        store = directory / "store"
        answers = referee.write(script, store)
        found = Dump.of(ours.dump(store, script.config, whole=False))
        theirs = Dump.of(referee.dump(openable_copy_of(store), script.config))
        assert lost(expected_messages(script, answers, referee.format), found) == []
        if referee.format == "4.9":
            found, theirs = found.without_delivery_times(), theirs.without_delivery_times()
        assert differences(found, theirs) == []
