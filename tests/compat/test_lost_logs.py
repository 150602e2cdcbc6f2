"""Stores that real brokers wrote, whose log is on another volume or gone, wholly or in part.

Nothing is changed until that is settled, and the broker continues them after us.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from mqstore.storage.errors import DataMissing
from tests.compat import ours
from tests.compat.compare import Dump
from tests.compat.damage import is_in_its_queues
from tests.compat.referee import Referee
from tests.compat.scripts import expected_messages
from tests.compat.shapes import Shape, expand
from tests.unit.storage.stores import open_store

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("lost-logs"), pytest.mark.slow]

SHAPE: Final = Shape(
    messages=200,
    segment_bytes=16 * 1024,
    queue_file_entries=5,
    index_num=150,
    topics=2,
    queues=2,
    large_body_percent=0,
)
APPENDED: Final = replace(SHAPE, messages=12)
SEED: Final = 57
DAY_S: Final = 24 * 3600
RESERVED: Final = {"fileReservedTime": 72, "deleteConsumeQueueFilesInterval": 1}


@pytest.fixture(scope="module")
def original(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("lost-logs") / "store"
    referee.write(expand(SEED, SHAPE, referee.format), root)
    yield root
    shutil.rmtree(root.parent)


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def segments(root: Path) -> list[Path]:
    return sorted(root.glob("commitlog/0*"))


def everything(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def refused(root: Path, text: str, log: Path | None = None) -> None:
    """The opening is refused for this, and changes nothing but its lock."""
    before = everything(root)
    with pytest.raises(DataMissing, match=text):
        open_store(root, store_path_commit_log=None if log is None else str(log))
    after = everything(root)
    assert {name for name in after if after[name] != before.get(name)} <= {"mqstore/lock"}


def goes_on(referee: Referee, root: Path, before: Dump) -> None:
    """We store messages, and then a broker does; none takes an offset that ``before`` has, and the
    messages of it that are there stay."""
    end = max(line["off"] + line["size"] for line in before.messages)
    for seed in (SEED + 1, SEED + 2):
        script = expand(seed, APPENDED, referee.format)
        if seed == SEED + 1:
            answers = ours.append(script, root, referee.format)
        else:
            answers = referee.append(script, root)
        theirs = Dump.of(referee.dump(copied(root), SHAPE.config, queries=False))
        there = {line["off"]: line for line in theirs.messages}
        for record in expected_messages(script, answers, referee.format):
            line = there[record.answers["off"]]
            assert {**line, **record.fields, **record.answers} == line
            assert is_in_its_queues(theirs, line)
            assert line["off"] >= end
        known = {path.name for path in segments(root)}
        for line in before.messages:
            name = f"{line['off'] - line['off'] % SHAPE.segment_bytes:020d}"
            assert name not in known or there[line["off"]] == line


def copied(root: Path) -> Path:
    """A copy, which the referee may change."""
    copy = root.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(root, copy))


def whole(root: Path) -> Dump:
    return Dump.of(ours.dump(root, SHAPE.config, queries=False))


def test_a_log_on_another_volume_opens_where_it_is(referee: Referee, tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "volume" / "log"
    script = expand(SEED, SHAPE, referee.format)
    config = {**script.config, "storePathCommitLog": str(log)}
    referee.write(replace(script, config=config), root)
    assert segments(root) == []

    refused(root, "queues name records up to offset .* set storePathCommitLog")

    with open_store(root, store_path_commit_log=str(log)) as store:
        assert store.read_only_reason is None
        end = store.log.max_offset
    more = replace(expand(SEED + 1, APPENDED, referee.format), config=config)
    answers = referee.append(more, root)
    assert min(line["off"] for line in answers if "off" in line) >= end


def test_the_loss_of_a_whole_log_is_accepted_with_its_segment_size(
    referee: Referee, root: Path
) -> None:
    before = whole(root)
    shutil.rmtree(root / "commitlog")
    refused(root, "commitlog has no messages")
    lacks = ours.run_command("store", "accept-loss", str(root), "--dry-run")
    assert lacks.code == 2
    assert "--segment-size BYTES" in lacks.summary

    ours.accept_loss(root, "--segment-size", str(SHAPE.segment_bytes))

    goes_on(referee, root, before)


@pytest.mark.parametrize("end", ["shutdown", "halt"])
def test_a_middle_segment_is_missed_however_the_broker_ended(
    referee: Referee, tmp_path: Path, end: str
) -> None:
    root = tmp_path / "store"
    script = expand(SEED, SHAPE, referee.format)
    referee.write(script.ending("halt", wait_dispatch=True) if end == "halt" else script, root)
    assert (root / "abort").exists() == (end == "halt")
    before = whole(root)
    segments(root)[1].unlink()
    refused(root, "no segment has the offsets 16384 to 32768 between others")

    ours.accept_loss(root)

    goes_on(referee, root, before)


def test_first_segments_are_missed_where_a_broker_would_have_deleted_queue_files(
    referee: Referee, root: Path
) -> None:
    before = whole(root)
    for path in segments(root)[:2]:
        path.unlink()
    refused(root, "the log begins at offset 32768, and the first file of topic")
    ours.accept_loss(root)
    goes_on(referee, root, before)


@pytest.mark.parametrize("aged", [1, 2, 4])
def test_a_log_that_a_broker_has_cleaned_opens(referee: Referee, root: Path, aged: int) -> None:
    for path in segments(root)[:aged]:
        age = path.stat().st_mtime - 10 * DAY_S
        os.utime(path, (age, age))
    cleaned = referee.clean(root, SHAPE.config | RESERVED, rounds=1)
    assert cleaned["minPhyOffset"] == aged * SHAPE.segment_bytes
    before = Dump.of(referee.dump(copied(root), SHAPE.config, queries=False))

    with open_store(root) as store:
        assert store.read_only_reason is None

    goes_on(referee, root, before)
