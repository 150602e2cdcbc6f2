"""Damaged stores: nothing that RocketMQ would keep is lost here, and it reads what we recovered.

What RocketMQ alone loses is counted; `python -m tests.compat.test_damage` prints the table of
docs/reliability.md from a whole run (build/compat/damage/).
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat import ours
from tests.compat.compare import Dump, fingerprint
from tests.compat.damage import (
    QUEUE_FILE_ENTRIES,
    TOGETHER,
    VARIANTS,
    Patient,
    is_in_its_queues,
)
from tests.compat.examples import KEPT, copy_of, openable_copy_of, random_stores
from tests.compat.referee import Referee, RefereeError
from tests.compat.scripts import expected_messages
from tests.compat.shapes import SEEDS, Shape, expand

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("damage"), pytest.mark.slow]

SHAPE = Shape(
    messages=180,
    segment_bytes=16 * 1024,
    queue_file_entries=QUEUE_FILE_ENTRIES,
    index_num=150,
    topics=3,
    queues=2,
    multi_dispatch_percent=8,
    delay_percent=5,
    large_body_percent=0,
)
SEED = 57
"""Seed of a store whose last record has a body of more than half its size."""
APPENDED = Shape(**{**SHAPE.__dict__, "messages": 12})
End = Literal["clean", "crashed"]
ENDS: tuple[End, End] = ("clean", "crashed")
QUICK = {
    "clean": ("flipmid", "lostpage", "onecqgone", "shortfile"),
    "crashed": ("torn", "zeroheadmid", "nocq", "emptycq", "clockback"),
}
UNSEEN = {"nofirstseg", "clockback", "zerocheckpoint", "strangedir", "strangetopic"}
"""Damage that looks like an undamaged store: expiry, a clock step, an early halt, unread files."""
FOUND = KEPT / "damage"
THEIR_TIME_S = 30
"""With a segment missing RocketMQ may wait for ever in its start."""


class Original:
    """A whole store, and what RocketMQ sees in it. Hypothesis would print all of a dataclass."""

    def __init__(self, root: Path, dump: Dump) -> None:
        self.root = root
        self.dump = dump


@pytest.fixture(scope="session")
def originals(
    referee: Referee, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[End, Original]]:
    made = {end: _original(referee, end, tmp_path_factory.mktemp(end)) for end in ENDS}
    yield made
    for original in made.values():
        shutil.rmtree(original.root.parent)


def _original(referee: Referee, end: End, directory: Path) -> Original:
    script = expand(SEED, SHAPE, referee.format)
    if end == "crashed":
        script = script.ending("halt", wait_dispatch=True)
    referee.write(script, directory / "written")
    store = openable_copy_of(directory / "written")
    dump = Dump.of(referee.dump(copy_of(store), SHAPE.config, queries=False))
    return Original(store, dump.without_delivery_times())


def _cells() -> Iterator[Any]:
    """Each kind of damage after each end: ``make test-ci`` takes the quick ones and a quarter of
    the others, after one end, in turn, and ``make nightly`` all."""
    for number, name in enumerate(VARIANTS):
        for end in ENDS:
            is_sampled = number % 4 == 0 and end == ENDS[number // 4 % 2]
            is_nightly = not is_sampled and name not in QUICK[end]
            yield pytest.param(end, name, marks=pytest.mark.nightly if is_nightly else ())


@pytest.mark.parametrize("end, variant", list(_cells()))
def test_damage(referee: Referee, originals: dict[End, Original], end: End, variant: str) -> None:
    _examine(referee, originals[end], end, [variant], seed=1)


def test_a_hole_costs_a_broker_nothing(referee: Referee, originals: dict[End, Original]) -> None:
    """The entry of the rotten record is unknown: its queue gets a filler there."""
    _examine(referee, originals["crashed"], "crashed", ["badheadmid", "nocq"], seed=2)


@pytest.mark.parametrize("end", ENDS)
def test_verify_finds_nothing_in_a_whole_store(
    referee: Referee, originals: dict[End, Original], end: End
) -> None:
    before = fingerprint(originals[end].root)

    findings, summary = ours.verify(originals[end].root, SHAPE.config)

    assert [line for line in findings if line["level"] == "finding"] == []
    assert summary["brokerStarts"]
    assert summary["brokerMaxOffset"] == originals[end].dump.recovered["maxPhyOffset"]
    assert fingerprint(originals[end].root) == before


@pytest.mark.parametrize("end", ENDS)
def test_a_short_segment_inside_the_log_is_only_read(
    referee: Referee, originals: dict[End, Original], end: End
) -> None:
    """A broker refuses such a store; which of the two copies to cut is unknown."""
    store = copy_of(originals[end].root)
    path = store / "commitlog" / f"{SHAPE.segment_bytes:020d}"
    path.write_bytes(path.read_bytes()[:5000])
    segment = range(SHAPE.segment_bytes, 2 * SHAPE.segment_bytes)

    with pytest.raises(RefereeError, match="refuses this store"):
        referee.dump(copy_of(store), SHAPE.config, queries=False)
    findings, summary = ours.verify(store, SHAPE.config)
    found = Dump.of(ours.dump(store, SHAPE.config, queries=False, whole=False))
    with pytest.raises(Exception, match=f"{path.name} has 5000 bytes"):
        ours.append(expand(1, APPENDED, referee.format), store, referee.format)

    assert not summary["brokerStarts"]
    assert "segment-length" in {line["kind"] for line in findings}
    mine = {line["off"]: line for line in found.without_delivery_times().messages}
    outside = [line for line in originals[end].dump.messages if line["off"] not in segment]
    assert [line for line in outside if mine.get(line["off"]) != line] == []
    assert path.stat().st_size == 5000


@random_stores
@given(
    seed=SEEDS,
    end=st.sampled_from(ENDS),
    names=st.lists(st.sampled_from(TOGETHER), min_size=2, max_size=4, unique=True),
)
def test_combined_damage(
    referee: Referee, originals: dict[End, Original], seed: int, end: End, names: list[str]
) -> None:
    _examine(referee, originals[end], end, names, seed)


def _examine(referee: Referee, original: Original, end: End, names: list[str], seed: int) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="damage-", dir=KEPT))
    shutil.copytree(original.root, directory / "store")
    patient = Patient(
        directory / "store",
        SHAPE.segment_bytes,
        original.dump.messages,
        original.dump.recovered["maxPhyOffset"],
        random.Random(seed),
    )
    try:
        for name in names:
            VARIANTS[name](patient)
        theirs = _their_view(referee, patient)
        _note(referee, end, names, patient, theirs)
        _verify_foretells(patient, names, theirs)
        _we_keep_what_they_keep(patient, theirs)
        _they_read_what_we_recovered(referee, end, patient, seed)
    except BaseException as failure:
        failure.add_note(f"{names} with seed {seed} on {original.root}: kept in {directory}")
        raise
    shutil.rmtree(directory)


def _their_view(referee: Referee, patient: Patient) -> Dump | None:
    """RocketMQ's own recovery of the damaged store; None when it refuses to start."""
    try:
        lines = referee.dump(
            copy_of(patient.root), SHAPE.config, queries=False, timeout_s=THEIR_TIME_S
        )
    except RefereeError:
        return None
    return Dump.of(lines).without_delivery_times()


def _we_keep_what_they_keep(patient: Patient, theirs: Dump | None) -> None:
    before = fingerprint(patient.root)
    found = Dump.of(ours.dump(patient.root, SHAPE.config, queries=False, whole=False))
    assert fingerprint(patient.root) == before, "a dump changed the store"
    assert found.recovered, "no dump"
    if theirs is None:
        return
    mine = {line["off"]: line for line in found.without_delivery_times().messages}
    whole = {line["off"]: line for line in patient.messages}
    kept = [line for line in theirs.messages if line == whole.get(line["off"])]
    assert [line for line in kept if mine.get(line["off"]) != line] == []


def _verify_foretells(patient: Patient, names: list[str], theirs: Dump | None) -> None:
    """``verify`` finds the damage, and says what the real broker just did with it."""
    before = fingerprint(patient.root)
    findings, summary = ours.verify(patient.root, SHAPE.config)
    assert fingerprint(patient.root) == before, "a verify changed the store"
    assert summary["findings"] or set(names) <= UNSEEN
    assert summary["brokerStarts"] == (theirs is not None), findings
    if theirs is not None:
        assert summary["brokerMaxOffset"] == theirs.recovered["maxPhyOffset"], findings
    for line in findings:
        assert line["file"] and line["what"] and line["broker"]
        if line["kind"].startswith(("record-", "log-", "entry-")):
            assert {"offset", "phys"} <= line.keys(), line
        if line["kind"].startswith(("entry-", "queue-")):
            assert {"offset", "topic", "q"} <= line.keys(), line


def _they_read_what_we_recovered(referee: Referee, end: End, patient: Patient, seed: int) -> None:
    script = expand(seed, APPENDED, referee.format)
    if end == "crashed":
        script = script.ending("halt")
    size = ("--segment-size", str(SHAPE.segment_bytes))
    ours.accept_loss(patient.root, *size, is_sure=False)  # after a clean end some are refused
    answers = ours.append(script, patient.root, referee.format)
    patient.take_strays_away()
    dump = Dump.of(
        referee.dump(copy_of(patient.root), SHAPE.config, queries=False, timeout_s=THEIR_TIME_S)
    )
    theirs = dump.without_delivery_times()
    there = {line["off"]: line for line in theirs.messages}
    for line in patient.untouched():
        assert there.get(line["off"]) == line
        assert is_in_its_queues(theirs, line), line
    for record in expected_messages(script, answers, referee.format):
        line = there[record.answers["off"]]
        assert record.props_fit(line["props"])
        assert {**line, **record.fields, **record.answers} == line
        assert is_in_its_queues(theirs, line), line


# the table ------------------------------------------------------------------------------------


def _note(
    referee: Referee, end: End, names: list[str], patient: Patient, theirs: Dump | None
) -> None:
    """Count the untouched messages that RocketMQ alone would have lost."""
    if len(names) > 1:
        return
    untouched = patient.untouched()
    lost = unreachable = len(untouched)
    if theirs is not None:
        there = {line["off"]: line for line in theirs.messages}
        lost = sum(there.get(line["off"]) != line for line in untouched)
        unreachable = sum(not is_in_its_queues(theirs, line) for line in untouched)
    counted = {
        "untouched": len(untouched),
        "lost": lost,
        "unreachable": unreachable,
        "refused": theirs is None,
    }
    FOUND.mkdir(exist_ok=True)
    (FOUND / f"{names[0]} {referee.format} {end}.json").write_text(json.dumps(counted))


def _table() -> str:
    found = {path.stem: json.loads(path.read_text()) for path in FOUND.iterdir()}
    lines = ["| damage | untouched | 4.9.7 clean | 4.9.7 crashed | 5.4.0 clean | 5.4.0 crashed |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name in VARIANTS:
        cells = [found[f"{name} {form} {end}"] for form in ("4.9", "5.x") for end in ENDS]
        untouched = sorted({cell["untouched"] for cell in cells})
        texts = [_cell(cell) for cell in cells]
        lines.append(f"| {name} | {' / '.join(map(str, untouched))} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any]) -> str:
    if cell["refused"]:
        return "does not start"
    return f"{cell['lost']} / {cell['unreachable']}"


if __name__ == "__main__":
    print(_table())
