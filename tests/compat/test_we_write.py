"""We wrote it, real RocketMQ opens, recovers and reads it, and builds the same files from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given

from tests.compat import ours
from tests.compat.compare import (
    Dump,
    differences,
    inconsistencies,
    index_file_differences,
    lost,
    queue_file_differences,
    script_differences,
)
from tests.compat.examples import MESSAGES, copy_of, example_directory, half_way, random_stores
from tests.compat.referee import Referee
from tests.compat.scripts import expected_messages
from tests.compat.shapes import EVERYTHING, SEEDS, Shape, expand, shapes

pytestmark = pytest.mark.referee


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
@example(seed=4, shape=EVERYTHING)
def test_rocketmq_reads_our_clean_store(referee: Referee, seed: int, shape: Shape) -> None:
    script = expand(seed, shape, referee.format)
    with example_directory(script) as directory:
        store = directory / "store"
        answers = ours.write(script, store, referee.format)
        theirs = Dump.of(referee.dump(copy_of(store), shape.config))
        assert theirs.recovered["path"] == "normal"
        assert script_differences(expected_messages(script, answers, referee.format), theirs) == []
        assert inconsistencies(theirs) == []
        assert differences(Dump.of(ours.dump(store, shape.config)), theirs) == []


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
@example(seed=5, shape=EVERYTHING)
def test_rocketmq_builds_the_same_queues_and_index(
    referee: Referee, seed: int, shape: Shape
) -> None:
    script = expand(seed, shape, referee.format)
    with example_directory(script) as directory:
        store = directory / "store"
        ours.write(script, store, referee.format)
        rebuilt = copy_of(store)
        referee.rebuild(rebuilt, shape.config)
        assert queue_file_differences(store, rebuilt) == []
        assert index_file_differences(store, rebuilt, shape.hash_slots) == []


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES))
def test_rocketmq_recovers_our_killed_store(referee: Referee, seed: int, shape: Shape) -> None:
    script = half_way(expand(seed, shape, referee.format))
    with example_directory(script) as directory:
        store = directory / "store"
        answers = ours.write(script, store, referee.format)
        theirs = Dump.of(referee.dump(copy_of(store), shape.config))
        assert theirs.recovered["path"] == "abnormal"
        assert lost(expected_messages(script, answers, referee.format), theirs) == []
        found = Dump.of(ours.dump(store, shape.config, whole=False))
        if referee.format == "4.9":
            found, theirs = found.without_delivery_times(), theirs.without_delivery_times()
        assert differences(found, theirs) == []


@random_stores
@given(seed=SEEDS, shape=shapes(MESSAGES // 2))
def test_a_store_goes_to_and_fro(referee: Referee, seed: int, shape: Shape) -> None:
    """RocketMQ makes it, we go on, RocketMQ goes on: everything put is there, in order."""
    parts = [expand(seed + i, shape, referee.format) for i in range(3)]
    with example_directory(parts[0]) as directory:
        store = directory / "store"
        answers = [
            referee.write(parts[0], store),
            ours.append(parts[1], store, referee.format),
            referee.append(parts[2], store),
        ]
        expected = [
            record
            for script, answered in zip(parts, answers, strict=True)
            for record in expected_messages(script, answered, referee.format)
        ]
        found = Dump.of(ours.dump(store, shape.config))
        assert script_differences(expected, found) == []
        theirs = Dump.of(referee.dump(copy_of(store), shape.config))
        assert differences(found, theirs) == []


@pytest.mark.slow
def test_rocketmq_makes_the_index_that_our_close_left_behind(referee: Referee) -> None:
    shape = replace(EVERYTHING, messages=200)
    script = expand(6, shape, referee.format)
    with example_directory(script) as directory:
        store = directory / "store"
        ours.write(script, store, referee.format)
        whole = Dump.of(ours.dump(store, shape.config)).queries
        ours.close_without_index(store, shape.config, referee.format)
        theirs = Dump.of(referee.dump(copy_of(store), shape.config))
        assert theirs.recovered["path"] == "abnormal"
        assert theirs.queries == whole
        assert any(theirs.queries.values())


@pytest.mark.slow
def test_a_store_that_a_broker_continued_is_verified_without_findings(
    referee: Referee, tmp_path: Path
) -> None:
    shape = replace(EVERYTHING, messages=200)
    store = tmp_path / "store"
    ours.write(expand(1, shape, referee.format), store, referee.format)
    assert (store / "mqstore" / "clean-close.json").exists()
    referee.append(expand(2, shape, referee.format), store)

    findings, _ = ours.verify(store, shape.config)

    assert [line for line in findings if line["level"] == "finding"] == []
