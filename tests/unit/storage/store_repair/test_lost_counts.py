"""One run ends a repair, and says how many messages are lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.storage.accept_loss import accept as accept_loss
from mqstore.storage.accept_loss import plan as plan_loss
from mqstore.storage.layout import QUEUE_ENTRY_SIZE
from mqstore.storage.system.threads import production_seams
from tests.long_runs import few_first
from tests.unit.storage.store_repair.damages import (
    ENTRY,
    RECORDS,
    SEGMENT,
    Patient,
    healthy,
    lose_a_segment_of_a_broker,
    not_closed,
)
from tests.unit.storage.store_repair.test_remedies import set_of_bodies
from tests.unit.storage.stores import open_store


def require_truth(patient: Patient) -> None:
    """Repair the store in one run, which does what its plan says and counts what is gone."""
    plan, done = patient.repair().plan(), patient.repair().run()

    assert (done.left, plan.left) == ({}, {})
    assert plan.changes.lost == done.changes.lost
    healthy(patient)
    assert not patient.repair().plan().is_needed
    assert done.changes.lost == RECORDS - len(set_of_bodies(patient))


CUTS = [
    *(
        (3, 4096, False, True),
        (2, 4096, True, True),
        (3, 200, True, False),
        (0, 40_000, True, True),
    ),
    *((3, 4096, True, True), (3, 19_000, True, True), (2, SEGMENT - 1, False, False)),
    *((3, 1, False, True), (3, 1, True, False), (1, 0, True, True), (3, 0, True, True)),
    *((3, 0, False, True), (2, 200, False, False), (3, 32_768, False, False)),
]
"""Number of the segment that is cut, its length, whether a blank one follows the last, and whether
the store was closed."""


@pytest.mark.parametrize("cut", few_first(CUTS, count=4), ids=str)
def test_a_segment_cut_short_is_repaired_in_one_run(
    patient: Patient, cut: tuple[int, int, bool, bool]
) -> None:
    number, length, premade, closed = cut
    if not closed:
        not_closed(patient)
    if premade and not patient.segment(4).exists():
        patient.segment(4).write_bytes(bytes(SEGMENT))
    os.truncate(patient.segment(number), length)
    require_truth(patient)


def test_the_messages_of_a_lost_segment_of_a_broker_are_counted(patient: Patient) -> None:
    lose_a_segment_of_a_broker(patient)
    require_truth(patient)


def test_a_gap_that_was_counted_once_is_not_counted_again(patient: Patient) -> None:
    """The loss was accepted before; the repair fills the gap."""
    patient.segment(1).unlink()
    accept(patient.root)
    open_store(patient.root).close()

    done = patient.repair().run()

    assert (done.left, done.changes.lost) == ({}, 0)


def test_fillers_of_a_wrong_entry_go_with_it(patient: Patient) -> None:
    """Blanked one in each round, they would outlast the rounds of a repair."""
    wrong = ENTRY.pack(patient.record(10) + 1, 200, 97)
    patient.poke(patient.queue(), 20 * QUEUE_ENTRY_SIZE, wrong * 30)
    require_truth(patient)


@pytest.mark.parametrize("length", [4096, 0])
def test_a_store_whose_last_segment_was_cut_short_goes_on_once_the_loss_is_accepted(
    patient: Patient, length: int
) -> None:
    os.truncate(patient.segment(3), length)
    accept(patient.root)

    with open_store(patient.root) as store:
        assert store.read_only_reason is None


def accept(root: Path) -> None:
    seams = production_seams()
    loss = plan_loss(root, Patient(root).config, seams.files, seams.clock).loss
    accept_loss(root, Patient(root).config, seams.files, seams.clock, loss.confirmation)
