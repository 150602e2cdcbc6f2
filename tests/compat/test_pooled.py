"""Real RocketMQ opens, recovers and reads stores that were written through a TransientStorePool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.compat import ours
from tests.compat.compare import Dump, differences, inconsistencies, lost, script_differences
from tests.compat.examples import copy_of, example_directory, half_way
from tests.compat.referee import Referee
from tests.compat.scripts import Script, expected_messages
from tests.compat.shapes import EVERYTHING, expand

pytestmark = [pytest.mark.referee, pytest.mark.slow]

SHAPE = EVERYTHING
POOL = {"transientStorePoolEnable": True, "transientStorePoolSize": 2, "warmMapedFileEnable": True}


def pooled(script: Script) -> Script:
    return replace(script, config={**script.config, **POOL})


def test_rocketmq_reads_what_went_through_our_pool(referee: Referee) -> None:
    script = expand(21, SHAPE, referee.format)
    with example_directory(script) as directory:
        store = directory / "store"
        answers = ours.write(pooled(script), store, referee.format)
        theirs = Dump.of(referee.dump(copy_of(store), SHAPE.config))
        assert theirs.recovered["path"] == "normal"
        assert script_differences(expected_messages(script, answers, referee.format), theirs) == []
        assert inconsistencies(theirs) == []
        assert differences(Dump.of(ours.dump(store, SHAPE.config)), theirs) == []


def test_rocketmq_recovers_what_a_kill_left_of_our_pool(referee: Referee) -> None:
    script = half_way(expand(22, SHAPE, referee.format))
    with example_directory(script) as directory:
        store = directory / "store"
        answers = ours.write(pooled(script), store, referee.format)
        theirs = Dump.of(referee.dump(copy_of(store), SHAPE.config))
        assert theirs.recovered["path"] == "abnormal"
        assert lost(expected_messages(script, answers, referee.format), theirs) == []


def test_we_go_on_through_our_pool_where_rocketmq_ended(referee: Referee) -> None:
    parts = [expand(seed, SHAPE, referee.format) for seed in (23, 24)]
    with example_directory(parts[0]) as directory:
        store = directory / "store"
        answers = [
            referee.write(parts[0], store),
            ours.append(pooled(parts[1]), store, referee.format),
        ]
        expected = [
            record
            for script, answered in zip(parts, answers, strict=True)
            for record in expected_messages(script, answered, referee.format)
        ]
        theirs = Dump.of(referee.dump(copy_of(store), SHAPE.config))
        assert script_differences(expected, theirs) == []
        assert differences(Dump.of(ours.dump(store, SHAPE.config)), theirs) == []
