"""Errors that refuse an opening, or open the store for reads only: what each advises mends the
store."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage.errors import StorageError, StoreDamaged
from mqstore.storage.verify import Kind
from tests.unit.storage.store_repair.damages import (
    DAMAGES,
    Damage,
    Patient,
    healthy,
    lengthen_a_segment,
    lose_a_segment,
    lose_a_segment_of_a_broker,
    misplaced_queue_file,
    shorten_a_segment,
    table_without_backup,
)
from tests.unit.storage.stores import open_store

REPAIR = "`mqstore store repair {root}` shows what it would change, and changes it with --yes"
ACCEPT = "`mqstore store accept-loss {root} --dry-run`"


def refusal(root: Path) -> str | None:
    """Why an opening is refused, or is for reads only; None if the store can be written."""
    try:
        with open_store(root) as store:
            return store.read_only_reason
    except StorageError as error:
        return str(error)


def damage_epochs(patient: Patient) -> None:
    patient.paths.epochs.write_bytes(b"{torn")


def damage_follower_note(patient: Patient) -> None:
    patient.paths.follower_note.write_bytes(b"{torn")


def damage_truncation(patient: Patient) -> None:
    patient.paths.truncation.write_bytes(b"{torn")


def repair(patient: Patient) -> None:
    assert not patient.repair().run().left


def remove_the_named_file(patient: Patient) -> None:
    why = refusal(patient.root)
    assert why is not None
    named = re.search(rf"{re.escape(str(patient.root))}\S+", why)
    assert named is not None
    Path(named[0]).unlink()


REFUSING: dict[Damage, tuple[str, Callable[[Patient], None] | None]] = {
    misplaced_queue_file: (REPAIR, repair),
    table_without_backup: (REPAIR, repair),
    lengthen_a_segment: (REPAIR, repair),
    lose_a_segment: (ACCEPT, None),
    lose_a_segment_of_a_broker: (ACCEPT, None),
    shorten_a_segment: (ACCEPT, None),
    damage_epochs: ("restore it from a copy, or remove it", remove_the_named_file),
    damage_follower_note: ("remove it", remove_the_named_file),
    damage_truncation: ("remove it", remove_the_named_file),
}
"""Damages at which an opening stops: the advice, and the act that it names; None: tested by its
own tests."""
OTHERS = [each for damages in DAMAGES.values() for each in damages if each not in REFUSING]


@pytest.mark.parametrize("damage", REFUSING, ids=lambda each: each.__name__)
def test_the_advice_of_a_refused_opening_mends_the_store(patient: Patient, damage: Damage) -> None:
    damage(patient)
    advice, act = REFUSING[damage]

    why = refusal(patient.root)

    assert why is not None
    assert advice.format(root=patient.root) in why
    assert "\n" not in why
    if act is not None:
        act(patient)
        assert refusal(patient.root) is None


@pytest.mark.parametrize("damage", dict.fromkeys(OTHERS), ids=lambda each: each.__name__)
def test_other_damages_do_not_refuse_an_opening(patient: Patient, damage: Damage) -> None:
    damage(patient)
    assert refusal(patient.root) is None


def test_a_damaged_format_json_is_named_with_its_repair(patient: Patient) -> None:
    patient.flip(patient.paths.format, 100, 1)

    (finding,) = [each for each in patient.findings() if each.file == "mqstore/format.json"]

    assert finding.kind is Kind.OURS
    assert REPAIR.format(root=patient.root) in finding.what
    repair(patient)
    healthy(patient)


def test_a_damaged_format_json_may_have_named_another_place_of_the_log(patient: Patient) -> None:
    patient.flip(patient.paths.format, 100, 1)
    shutil.rmtree(patient.root / "commitlog")

    for look in (patient.findings, patient.repair().run):
        with pytest.raises(StoreDamaged, match="MQSTORE_STORE_PATH_COMMIT_LOG"):
            look()
