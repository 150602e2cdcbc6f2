"""The referee agrees with itself: what it answered to puts is what it sees in the directory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import example, given

from tests.compat.compare import (
    Dump,
    inconsistencies,
    index_file_differences,
    lost,
    queue_file_differences,
    script_differences,
)
from tests.compat.examples import (
    MESSAGES,
    copy_of,
    example_directory,
    half_way,
    openable_copy_of,
    random_stores,
)
from tests.compat.referee import Referee, RefereeError
from tests.compat.scripts import expected_messages
from tests.compat.shapes import EVERYTHING, SEEDS, Shape, expand, shapes

pytestmark = pytest.mark.referee


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
@example(seed=1, shape=EVERYTHING)
def test_a_clean_store_is_what_was_put(referee: Referee, seed: int, shape: Shape) -> None:
    script = expand(seed, shape, referee.format)
    with example_directory(script) as directory:
        store = directory / "store"
        answers = referee.write(script, store)
        dump = Dump.of(referee.dump(copy_of(store), shape.config))
        assert dump.recovered["path"] == "normal"
        assert script_differences(expected_messages(script, answers, referee.format), dump) == []
        assert inconsistencies(dump) == []


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
def test_a_rebuild_gives_the_files_of_the_first_build(
    referee: Referee, seed: int, shape: Shape
) -> None:
    script = expand(seed, shape, referee.format)
    with example_directory(script) as directory:
        store = directory / "store"
        referee.write(script, store)
        rebuilt = copy_of(store)
        referee.rebuild(rebuilt, shape.config)
        assert queue_file_differences(store, rebuilt) == []
        assert index_file_differences(store, rebuilt, shape.hash_slots) == []


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
@pytest.mark.slow
def test_a_halted_store_keeps_what_was_acknowledged(
    referee: Referee, seed: int, shape: Shape
) -> None:
    script = half_way(expand(seed, shape, referee.format))
    with example_directory(script) as directory:
        store = directory / "store"
        answers = referee.write(script, store)
        dump = Dump.of(referee.dump(openable_copy_of(store), shape.config))
        assert dump.recovered["path"] == "abnormal"
        assert lost(expected_messages(script, answers, referee.format), dump) == []
        if referee.format == "4.9":
            dump = dump.without_delivery_times()
        assert inconsistencies(dump) == []


@pytest.mark.slow
def test_a_refusal_says_why(referee: Referee, tmp_path: Path) -> None:
    script = expand(0, Shape(messages=1), referee.format)
    store = tmp_path / "store"
    referee.write(script, store)
    (store / "commitlog" / "notes.txt").write_text("any file here stops a broker")
    with pytest.raises(RefereeError, match="RocketMQ refuses this store"):
        referee.dump(store, script.config)
    referee.write(script, tmp_path / "another")  # a new JVM serves on


def test_a_jvm_that_crashed_fails_one_command_only(referee: Referee) -> None:
    """RocketMQ 4.9.7 may crash its JVM, by a write through a map that is gone."""
    assert referee.parse([b"a=b"]) == [{"a": "b"}]
    assert referee.process_id is not None
    os.kill(referee.process_id, signal.SIGSEGV)

    with pytest.raises(RefereeError, match="SIGSEGV"):
        referee.parse([b"a=b"])
    assert referee.parse([b"a=b"]) == [{"a": "b"}]
