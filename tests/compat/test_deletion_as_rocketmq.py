"""Our cleaner deletes the same segments as RocketMQ's from a copy with the same times."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.compat import ours
from tests.compat.compare import Dump, differences, inconsistencies
from tests.compat.referee import Referee
from tests.compat.scripts import Script
from tests.compat.shapes import Shape, expand

pytestmark = [pytest.mark.referee, pytest.mark.slow]

HOUR_S = 3600
SHAPE = Shape(messages=500, segment_bytes=8 << 10, queue_file_entries=10, index_num=32)
RESERVED = {
    "fileReservedTime": 72,
    "deleteWhen": str((time.localtime().tm_hour + 12) % 24),
    "deleteCommitLogFilesInterval": 1,
    "deleteConsumeQueueFilesInterval": 1,
}
"""Nothing goes by itself: only requested rounds delete."""


def _aged(store: Path, name: str, ages_h: list[float]) -> Path:
    """A copy whose oldest segments have these ages, the others none."""
    copy = store.with_name(name)
    shutil.copytree(store, copy)
    now = time.time()
    for path, age_h in zip(sorted((copy / "commitlog").iterdir()), ages_h, strict=False):
        os.utime(path, (now - age_h * HOUR_S,) * 2)
    return copy


def _names(store: Path, *below: str) -> list[str]:
    """Segments, queue files and index files."""
    return sorted(
        str(path.relative_to(store))
        for name in below or ("commitlog", "consumequeue", "index")
        for path in (store / name).rglob("*")
        if path.is_file()
    )


@pytest.fixture(scope="module")
def made(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> tuple[Script, Path]:
    """A store of many small segments, which RocketMQ wrote."""
    script = expand(41, SHAPE, referee.format)
    store = tmp_path_factory.mktemp("retention") / "store"
    referee.write(script, store)
    assert len(_names(store, "commitlog")) > 20
    return script, store


@pytest.mark.parametrize(
    ("rounds", "ages_h"),
    [
        pytest.param(1, [100.0] * 13, id="at most ten a round"),
        pytest.param(2, [100.0] * 13, id="two rounds"),
        pytest.param(2, [100.0] * 3 + [1.0] + [100.0] * 3, id="a young one between"),
        pytest.param(1, [72.1] * 2 + [71.9], id="to the minute"),
        pytest.param(9, [100.0] * 99, id="all but the newest"),
    ],
)
def test_the_same_files_go(
    referee: Referee,
    made: tuple[Script, Path],
    rounds: int,
    ages_h: list[float],
    request: pytest.FixtureRequest,
) -> None:
    script, store = made
    config = {**script.config, **RESERVED}
    case = request.node.callspec.id
    theirs, mine = _aged(store, f"theirs {case}", ages_h), _aged(store, f"mine {case}", ages_h)
    found = referee.clean(theirs, config, rounds=rounds)
    answer = ours.clean(mine, config, referee.format, rounds=rounds)
    assert answer["minPhyOffset"] == found["minPhyOffset"] > 0
    assert _names(mine) == _names(theirs)


def test_a_store_that_we_cleaned_is_whole_to_rocketmq(
    referee: Referee, made: tuple[Script, Path]
) -> None:
    script, store = made
    mine = _aged(store, "cleaned", [100.0] * 13)
    cleaned = ours.clean(mine, {**script.config, **RESERVED}, referee.format, rounds=2)
    theirs = Dump.of(referee.dump(mine, script.config))
    assert theirs.recovered["minPhyOffset"] == cleaned["minPhyOffset"] > 0
    assert inconsistencies(theirs) == []
    assert differences(Dump.of(ours.dump(mine, script.config)), theirs) == []
