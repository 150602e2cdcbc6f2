"""Forced retention beside processes that map what it deletes, on a disk that counts blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.query.store_watch import StoreWatch
from mqstore.storage.retention.journal import SPACE_NOT_FREED
from mqstore.storage.retention.unlinked_bytes import SHOWN_WITHIN_S
from mqstore.storage.store_reader import StoreReader
from tests.long_runs import examples
from tests.simulation.retention_machine import SEGMENT, Machine

ROOT = Path("/store")
CLEAN_PERCENT = 85
SLACK = SEGMENT // 2
"""Growth of other files during deletions: checkpoints, manifests."""


class ReaderProcess:
    """A process that has mapped the whole store and, if ``drops``, lets go of what is deleted."""

    def __init__(self, machine: Machine, *, drops: bool) -> None:
        self.reader = StoreReader.open(ROOT, machine.machine.seams)
        assert self.reader.lookups.records("T", 0, 0).records
        assert self.reader.lookups.records("T", 1, 0).records
        assert self.reader.lookups.by_key("T", "k1").records
        if drops:
            service = StoreWatch(lambda: self.reader)
            machine.machine.scheduler.start(service, lambda error: pytest.fail(str(error)))


def filled(seed: int, segments: int, percent: float) -> Machine:
    machine = Machine(seed, clean_file_forcibly_min_age=0)
    machine.fill(segments)
    machine.settle()
    machine.use(percent)
    return machine


def needed(machine: Machine) -> int:
    """Segments that must go at most; one of them is that which was made ahead."""
    usage = machine.disk.usage(ROOT)
    too_much = usage.used + SLACK - usage.total * CLEAN_PERCENT / 100
    return int(-(-too_much // SEGMENT))


SEEDS = st.integers(0, 1 << 32)
SEGMENTS = st.integers(6, 24)
PERCENT = st.floats(CLEAN_PERCENT + 0.5, 97)


@settings(max_examples=examples(10))
@given(seed=SEEDS, segments=SEGMENTS, percent=PERCENT)
def test_no_more_goes_than_is_needed_beside_a_reader_that_maps_it_all(
    seed: int, segments: int, percent: float
) -> None:
    machine = filled(seed, segments, percent)
    process = ReaderProcess(machine, drops=True)
    most = needed(machine)
    answer = process.reader.log.select(0, 100)
    assert answer is not None
    whole = bytes(answer)
    gone = machine.run(60)
    assert gone <= most
    assert answer == whole
    del answer
    machine.run(2)
    assert not machine.store.retention.disks.shows_above(CLEAN_PERCENT)
    assert not any(volume.unlinked_bytes for volume in machine.store.retention.disks.volumes)


@settings(max_examples=examples(4))
@given(seed=SEEDS, segments=SEGMENTS, percent=PERCENT)
def test_deletions_that_make_no_room_come_one_by_one_at_ever_longer_intervals(
    seed: int, segments: int, percent: float
) -> None:
    machine = filled(seed, segments, percent)
    process = ReaderProcess(machine, drops=False)
    assert machine.run(2 * SHOWN_WITHIN_S - 1) <= needed(machine)
    assert SPACE_NOT_FREED in [note.kind for note in machine.store.retention.journal.after(0)]
    for minutes in (3, 6):
        assert machine.run(minutes * SHOWN_WITHIN_S) <= 2
    process.reader.close()
