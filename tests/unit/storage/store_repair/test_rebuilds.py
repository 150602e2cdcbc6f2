"""Parts of a store that are made again whole from its log, also where nothing is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.message_store import Durability
from mqstore.storage.store_repair import DERIVED_PARTS, REMEDIES, Action, Remedy
from tests.unit.storage.puts import put_message
from tests.unit.storage.store_repair.damages import (
    RECORDS,
    Damage,
    Patient,
    damage_two_words,
    entry_of_the_neighbour,
    healthy,
    kept,
    lose_a_queue_file,
    lose_a_segment_of_a_broker,
    lose_an_index_file,
)
from tests.unit.storage.stores import CONFIG, message, open_store, put_some
from tests.unit.untouched import entries_of

QUEUES, INDEX = Remedy.REMAKE_ENTRIES, Remedy.REMAKE_INDEX


def queue_files(patient: Patient) -> dict[str, bytes]:
    found = patient.paths.consume_queue.rglob("*")
    return {str(path): path.read_bytes() for path in found if path.is_file()}


def index_items(patient: Patient) -> set[str]:
    """The keys that the index finds."""
    with open_store(patient.root, services=False) as store:
        keys = [f"k{number}" for number in range(RECORDS)]
        return {key for key in keys if store.lookups.by_key("T", key).records}


def test_queues_of_a_whole_store_are_the_same_files_after_a_rebuild(patient: Patient) -> None:
    before = queue_files(patient)

    done = patient.repair(QUEUES).run()

    assert (done.found, done.left, done.changes.lost) == ({}, {}, 0)
    assert done.changes.counts == {Action.BLANK_ENTRIES: 3, Action.REMAKE_QUEUES: 1}
    assert queue_files(patient) == before
    assert sum(map(len, kept(patient))) >= 3 * 299 * 20, "the old entries are not in quarantine"
    healthy(patient)


def test_the_plan_says_the_same_and_changes_nothing(patient: Patient) -> None:
    before = entries_of(patient.root)

    plan = patient.repair(*DERIVED_PARTS).plan()

    assert entries_of(patient.root) == before
    done = patient.repair(*DERIVED_PARTS).run()
    assert (plan.changes.listed, plan.left) == (done.changes.listed, done.left)
    assert plan.is_needed
    healthy(patient)


def test_an_index_is_made_again_from_the_log_beyond_the_catch_up_of_an_opening(
    patient: Patient,
) -> None:
    for change in (lambda _: None, lose_an_index_file):
        change(patient)
        patient.config = CONFIG.model_copy(update={"index_catch_up_size": 1_000})
        old = set(patient.paths.index.iterdir())

        done = patient.repair(INDEX).run()

        assert not done.left
        assert done.changes.counts[Action.REMAKE_INDEX] == 1
        assert not old & set(patient.paths.index.iterdir())
        assert len(index_items(patient)) == RECORDS


def test_what_is_found_besides_is_repaired_too(patient: Patient) -> None:
    for damage in (damage_two_words, entry_of_the_neighbour, lose_a_queue_file):
        damage(patient)

    plan = patient.repair(QUEUES).plan()
    done = patient.repair(QUEUES).run()

    assert plan.changes.lost == done.changes.lost == 1
    assert not done.left
    healthy(patient)


def test_a_queue_keeps_the_offsets_that_it_has_given_out(patient: Patient) -> None:
    """The last message of a queue is unreadable, and nothing but its entry shows its offset."""
    patient.without_checksums()
    offset, size, _ = patient.entry(99, file=2)
    patient.poke(patient.segment(3), offset % CONFIG.mapped_file_size_commit_log, bytes(size))

    patient.repair(QUEUES).run()

    with open_store(patient.root) as store:
        placed = put_message(store, message(store, 1_000), Durability.SYNC)
        assert placed.queue_offset == RECORDS // 3


def test_entries_of_expired_messages_stay(tmp_path: Path) -> None:
    patient = Patient(tmp_path / "store", CONFIG)
    with open_store(patient.root) as store:
        store.create_topic("T", queues=3)
        put_some(store, 300, queues=1)
        put_some(store, 600, start=300, queues=3)
        put_some(store, 3, start=900, queues=3)
    for number in range(2):
        patient.segment(number).unlink()
    patient.without_us()

    done = patient.repair(QUEUES).run()

    assert not done.left
    with open_store(patient.root, services=False) as store:
        queue = store.queues.get("T", 0)
        assert queue is not None
        assert 0 < queue.min_index < queue.max_index == 501


@pytest.mark.parametrize("damage", [Patient.without_us, lose_a_segment_of_a_broker])
def test_a_store_that_a_broker_wrote_is_rebuilt(patient: Patient, damage: Damage) -> None:
    damage(patient)

    done = patient.repair(*DERIVED_PARTS).run()

    assert not done.left
    assert [each for each in patient.findings() if REMEDIES[each.kind] is not Remedy.NOTHING] == []
