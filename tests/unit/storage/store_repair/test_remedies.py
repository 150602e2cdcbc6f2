"""Each kind of finding: a store damaged in that way is repaired, and verified without findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mqstore.storage.errors import StorageError, StoreLocked
from mqstore.storage.store_repair import REMEDIES, Action, Remedy
from mqstore.storage.verify import Finding, Kind
from tests.unit.storage.store_repair.damages import (
    DAMAGES,
    RECORDS,
    SEGMENT,
    Damage,
    Patient,
    change_born_times,
    damage_two_words,
    healthy,
    kept,
    lose_a_segment,
    misplaced_queue_file,
    take_a_queue_offset,
    torn_table,
)
from tests.unit.storage.stores import open_store, put_some
from tests.unit.storage.test_subscribed_pulls import WITH_UNITS
from tests.unit.untouched import entries_of

WITH_OTHER_STORES = frozenset({Kind.ENTRY_UNIT})
"""Kinds that need another store than ``Patient``'s."""


def cases() -> Iterator[object]:
    """One damage of each kind for ``make test``, the others for ``make test-ci``."""
    for kind, damages in DAMAGES.items():
        for number, damage in enumerate(damages):
            marks = pytest.mark.slow if number else ()
            yield pytest.param(kind, damage, id=f"{kind.value}-{damage.__name__}", marks=marks)


def test_every_kind_of_finding_has_a_remedy_and_every_repaired_kind_a_damage_here() -> None:
    assert set(REMEDIES) == set(Kind)
    repaired = {kind for kind, remedy in REMEDIES.items() if remedy is not Remedy.NOTHING}
    assert repaired == {*DAMAGES, *WITH_OTHER_STORES}
    for kind in set(Kind) - repaired - {Kind.STATE_REFUSED}:  # which a broker converts
        finding = Finding(kind, "file", "what", "broker")
        assert finding.level.value == "note", kind


@pytest.mark.parametrize(("kind", "damage"), list(cases()))
def test_a_damaged_store_is_repaired_as_planned_and_verified_clean(
    patient: Patient, kind: Kind, damage: Damage
) -> None:
    damage(patient)
    assert kind in {finding.kind for finding in patient.findings()}
    before = entries_of(patient.root)

    plan = patient.repair().plan()

    assert entries_of(patient.root) == before, "the plan changed the store"
    assert plan.found[kind]
    assert not plan.left
    assert plan.changes.listed
    done = patient.repair().run()
    assert not done.left
    healthy(patient)
    assert (done.changes.lost, done.changes.moved) == (plan.changes.lost, plan.changes.moved)
    again = patient.repair().plan()
    assert (again.is_needed, again.changes.listed) == (False, [])


def test_a_misplaced_queue_file_does_not_keep_the_log_from_being_repaired(patient: Patient) -> None:
    for damage in (change_born_times, misplaced_queue_file):
        damage(patient)

    plan, done = patient.repair().plan(), patient.repair().run()

    assert (plan.changes.listed, plan.left) == (done.changes.listed, done.left)
    healthy(patient)


def test_a_unit_of_another_message_is_made_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, WITH_UNITS) as store:
        store.create_topic("T", queues=3)
        store.subscriptions.put("g", "T", "a > 5")
        put_some(store, 30)
    patient = Patient(root, WITH_UNITS)
    (units,) = (root / "consumequeue_ext" / "T" / "0").iterdir()
    patient.flip(units, 9, 1)
    assert {each.kind for each in patient.findings()} == {Kind.ENTRY_UNIT}

    assert not patient.repair().plan().left
    assert not patient.repair().run().left

    healthy(patient)


def test_a_lost_message_is_named_and_its_bytes_are_kept(patient: Patient) -> None:
    damage_two_words(patient)
    offset, size, _ = patient.entry(50)
    damaged = patient.segment().read_bytes()[offset : offset + size]

    plan = patient.repair().plan()
    (lost,) = [each for each in plan.changes.listed if each.lost]

    assert plan.changes.lost == 1
    assert (lost.action, lost.physical_offset) == (Action.PLACE_TOMBSTONE, offset)
    assert (lost.topic, lost.queue_id, lost.queue_offset) == ("T", 0, 50)
    assert (lost.unique_key, lost.keys) == (f"U{150:031d}", "k150")
    patient.repair().run()
    assert damaged in kept(patient)
    assert others(patient, {150})


def test_a_message_without_a_queue_offset_of_its_own_is_moved_once(patient: Patient) -> None:
    take_a_queue_offset(patient)
    repair = patient.repair()

    plan = repair.plan()

    assert (plan.changes.moved, plan.changes.lost) == (1, 0)
    (moved,) = [each for each in plan.changes.listed if each.action is Action.MOVE_MESSAGE]
    assert moved.keys == "k153"
    assert repair.run().changes.moved == 1
    assert others(patient, set())
    with open_store(patient.root) as store:
        queue = store.queues.get("T", 0)
        assert queue is not None
        assert queue.max_index == RECORDS // 3 + 1


def test_a_filled_gap_keeps_the_messages_behind_it(patient: Patient) -> None:
    before = set_of_bodies(patient)
    gone = {
        body for body in before if body in patient.segment(1).read_bytes() and body.endswith(b" ")
    }
    lose_a_segment(patient)

    outcome = patient.repair().run()

    assert outcome.changes.lost == pytest.approx(len(gone), abs=2)
    assert outcome.summary.broker_starts
    assert before - gone <= set_of_bodies(patient)
    assert patient.segment(1).stat().st_size == SEGMENT


def test_a_table_comes_back_from_its_backup(patient: Patient) -> None:
    torn_table(patient)

    patient.repair().run()

    with open_store(patient.root) as store:
        assert store.topic("T").write_queues == 3


def test_a_store_that_a_writer_has_is_refused(patient: Patient) -> None:
    with open_store(patient.root):
        for act in (patient.repair().plan, patient.repair().run):
            with pytest.raises(StoreLocked, match="is in use"):
                act()


def set_of_bodies(patient: Patient) -> set[bytes]:
    """The bodies of all readable messages of the queues."""
    found = set()
    with open_store(patient.root) as store:
        for state in store.queues.states():
            queue = store.queues.get(state.topic, state.queue_id)
            assert queue is not None
            for _, entry in queue.entries(state.first, state.end):
                with suppress(StorageError):
                    found.add(store.log.record_at(entry.physical_offset).body)
    return found


def others(patient: Patient, lost: set[int]) -> bool:
    """Whether every message but the lost ones is in its queue."""
    due = {b"body %d " % number * 10 for number in range(RECORDS) if number not in lost}
    return due <= set_of_bodies(patient)
