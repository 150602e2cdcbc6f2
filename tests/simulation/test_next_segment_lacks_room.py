"""Retention where the next segment does not fit although the volume is below every ratio."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.query.store_watch import StoreWatch
from mqstore.storage.errors import SegmentCreationFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.message_store import Durability
from mqstore.storage.put_refusal import PutRefusal
from mqstore.storage.retention.journal import FORCED_DELETION
from mqstore.storage.retention.plan import Trigger, Why
from mqstore.storage.store_reader import StoreReader
from tests.long_runs import examples
from tests.simulation.retention_machine import HOUR_S, Machine
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message

ROOT = Path("/store")
RATIOS = ("max_used_space", "space_clean_forcibly", "space_warning_level")
MIN_AGE_S = HOUR_S
SEGMENT = 128 << 10
"""Large beside the queue and index files of its messages."""
BODY = b"x" * 2_000


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    """A log record keeps its error, whose frames keep maps alive."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def machine_without_room(seed: int, old: int, young: int) -> Machine:
    """Its log has so many segments that are old enough to go, and then ``young`` ones; its volume
    has room for the segment that is made ahead, and for nearly one more."""
    settings = {f"disk_{name}_ratio": 100 for name in RATIOS}
    settings |= {"mapped_file_size_commit_log": SEGMENT}
    machine = Machine(seed, **settings, clean_file_forcibly_min_age=int(MIN_AGE_S * 1000))
    fill(machine, old + 1)  # the last one is written to once more, later
    machine.age(2 * MIN_AGE_S / HOUR_S)
    fill(machine, old + young)
    machine.disk.capacity = machine.disk.usage(ROOT).used + SEGMENT - PAGE_SIZE
    return machine


def put(machine: Machine) -> None:
    put_message(machine.store, message(machine.store, 0).replace(body=BODY), Durability.ASYNC)


def fill(machine: Machine, segments: int) -> None:
    """As ``Machine.fill``, with larger messages; then all is on disk."""
    while len(machine.store.log.files.files) < segments:
        put(machine)
    machine.run(0.001)
    machine.store.retention.plan()
    machine.settle()


def put_until_refused(machine: Machine) -> PutRefusal:
    """In no time: nothing is deleted meanwhile. No traceback is kept, whose frames keep maps."""
    said = None
    while said is None:
        try:
            put(machine)
        except SegmentCreationFailed as error:
            said = PutRefusal.of(error)
    assert machine.store.put_refusal == said
    return said


def test_a_put_that_needs_the_next_segment_is_said_to_be_rejected_while_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readiness was 200 from the room that a blank record found to the failure of the segment."""
    machine = machine_without_room(1, 1, 2)
    before = put_until_refused(machine)
    seen = []
    next_segment = machine.store.log.next_segment
    get = next_segment.get

    def look(offset: int) -> MappedFile:
        seen.append(machine.store.put_refusal)
        return get(offset)

    monkeypatch.setattr(next_segment, "get", look)
    with pytest.raises(SegmentCreationFailed):
        put(machine)
    assert seen == [before]


@pytest.mark.slow
@settings(max_examples=examples(5))
@given(seed=st.integers(0, 1 << 32), old=st.integers(1, 4), young=st.integers(2, 4))
def test_old_segments_go_one_at_a_time_until_the_next_one_fits(
    seed: int, old: int, young: int
) -> None:
    machine = machine_without_room(seed, old, young)
    reader = StoreReader.open(ROOT, machine.machine.seams)
    assert reader.lookups.records("T", 0, 0).records, "it maps what is to go"
    watch = StoreWatch(lambda: reader)
    machine.machine.scheduler.start(watch, lambda error: pytest.fail(str(error)))
    retention = machine.store.retention
    for _ in range(old):
        refusal = put_until_refused(machine)
        assert (refusal.reason, refusal.is_for_room) == ("no-room", True)
        assert Trigger.NO_SEGMENT in retention.plan().triggers
        assert machine.run(60) == 1
        assert machine.store.put_refusal is None

    put_until_refused(machine)
    assert machine.run(MIN_AGE_S / 4) == 0
    assert retention.plan().puts_refused
    assert retention.plan().segments[0].why is Why.YOUNG
    assert retention.deleted[Why.FORCED] == old
    notes = [note.figures for note in retention.journal.after(0) if note.kind == FORCED_DELETION]
    assert [note["trigger"] for note in notes] == [Trigger.NO_SEGMENT] * len(notes)
    ages_ms = [age for note in notes if isinstance(age := note["ageMs"], int)]
    assert len(ages_ms) == old
    assert min(ages_ms) >= MIN_AGE_S * 1000

    machine.age(MIN_AGE_S / HOUR_S)
    assert machine.run(60) == 1
    assert machine.store.put_refusal is None
    put(machine)
    reader.close()
