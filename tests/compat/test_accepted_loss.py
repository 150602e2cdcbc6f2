"""Real brokers open stores that continued after a loss of durable data was accepted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import ours
from tests.compat.compare import Dump
from tests.compat.damage import (
    Patient,
    is_in_its_queues,
    no_commit_log,
    no_first_segment,
    no_last_segment,
    no_middle_segment,
    places,
)
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.scripts import expected_messages
from tests.compat.shapes import Shape, expand

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("accepted-loss"), pytest.mark.slow]

SHAPE = Shape(
    messages=160,
    segment_bytes=16 * 1024,
    queue_file_entries=16,
    index_num=150,
    topics=2,
    queues=2,
    multi_dispatch_percent=0,
    delay_percent=0,
    large_body_percent=0,
)
APPENDED = Shape(**{**SHAPE.__dict__, "messages": 12})
SEED = 31
THEIR_TIME_S = 60


def older_log(store: Patient) -> None:
    """The log's volume as a snapshot had it: the last two segments are less or not there."""
    no_last_segment(store)
    bases = sorted(int(path.name) for path in store.root.glob("commitlog/0*"))
    line = next(each for each in reversed(store.messages) if each["off"] < bases[-1] + 5_000)
    end = line["off"] + line["size"]
    path = store.segment(bases[-1])
    data = path.read_bytes()
    path.write_bytes(data[: end - bases[-1]].ljust(store.segment_bytes, b"\0"))
    store.touched.append((end, bases[-1] + store.segment_bytes))


LOSSES = {
    "last": no_last_segment,
    "middle": no_middle_segment,
    "first": no_first_segment,
    "all": no_commit_log,
    "older": older_log,
}


@pytest.fixture(scope="module")
def original(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("accepted") / "store"
    ours.write(expand(SEED, SHAPE, referee.format), root, referee.format)
    yield root
    shutil.rmtree(root.parent)


def _when(loss: str, end: str) -> tuple[pytest.MarkDecorator, ...]:
    """The markers of a case: after a clean end only the last segment's loss is for CI."""
    if (loss, end) == ("older", "crashed"):
        return ()
    return (pytest.mark.slow if end == "crashed" or loss == "last" else pytest.mark.nightly,)


@pytest.mark.parametrize(
    "loss, end",
    [
        pytest.param(loss, end, marks=_when(loss, end))
        for loss in LOSSES
        for end in ("clean", "crashed")
    ],
)
def test_a_broker_starts_on_it_and_gives_no_offset_out_again(
    referee: Referee, original: Path, loss: str, end: str, tmp_path: Path
) -> None:
    store = copy_of(original)
    whole = Dump.of(ours.dump(store, SHAPE.config, queries=False))
    patient = Patient(
        store,
        SHAPE.segment_bytes,
        whole.messages,
        whole.recovered["maxPhyOffset"],
        random.Random(1),
    )
    LOSSES[loss](patient)
    ours.accept_loss(store)
    script = expand(SEED + 1, APPENDED, referee.format)
    if end == "crashed":
        script = script.ending("halt", wait_dispatch=True)
    answers = ours.append(script, store, referee.format)

    theirs = Dump.of(
        referee.dump(copy_of(store), SHAPE.config, queries=False, timeout_s=THEIR_TIME_S)
    )
    there = {line["off"]: line for line in theirs.messages}
    for line in patient.untouched():
        assert there.get(line["off"]) == line
        assert is_in_its_queues(theirs, line), line
    ends = _ends(whole)
    for record in expected_messages(script, answers, referee.format):
        line = there[record.answers["off"]]
        assert {**line, **record.fields, **record.answers} == line
        assert is_in_its_queues(theirs, line), line
        assert line["off"] >= patient.end
        for topic, queue_id, offset in places(line):
            assert offset >= ends.get((topic, queue_id), 0)
    for line in referee.append(expand(SEED + 2, APPENDED, referee.format), store):
        if "qoff" in line and "off" in line:
            assert line["off"] >= patient.end


def _ends(whole: Dump) -> dict[tuple[str, int], int]:
    ends: dict[tuple[str, int], int] = {}
    for line in whole.messages:
        for topic, queue_id, offset in places(line):
            ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), offset + 1)
    return ends
