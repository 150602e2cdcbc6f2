"""Stores with random damages, each verified, repaired in one run, verified again, opened, and
continued by a real broker."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from mqstore.storage.layout import StoreFormat
from mqstore.storage.store_repair import Action, RepairOutcome
from tests.compat import ours
from tests.compat.compare import Dump
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.test_repaired_damages import APPENDED, changed, continues, missing
from tests.long_runs import nightly_examples
from tests.unit.storage.store_repair.damages import (
    RECORDS,
    Patient,
    healthy,
    make_store,
    not_closed,
)
from tests.unit.storage.store_repair.test_remedies import set_of_bodies
from tests.unit.storage.stores import open_store

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("damage"), pytest.mark.slow]

EXAMPLES: Final = nightly_examples(200)
KEPT: Final = ("lock", "mqstore/lock", "config/topics.json", "config/topics.json.bak")
"""Files that are left alone: locks, and the only copies of what an operator configured."""


def flip(path: Path, chance: random.Random) -> None:
    """Change up to 20 bytes in one place."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data)) if data else 0
    for place in range(at, min(at + chance.randint(1, 20), len(data))):
        data[place] ^= chance.randint(1, 255)
    path.write_bytes(data)


def zero(path: Path, chance: random.Random) -> None:
    """Zero a sector, a page, or a part."""
    data = bytearray(path.read_bytes())
    length = chance.choice([512, 4096, max(1, len(data) // 3)])
    at = chance.randrange(0, max(1, len(data)), 512)
    stop = min(at + length, len(data))
    data[at:stop] = bytes(max(0, stop - at))
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(max(1, path.stat().st_size)))


def lengthen(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.choice([1, 20, 4096])))


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


HURTS: Final[tuple[Callable[[Path, random.Random], None], ...]] = (
    *(flip, flip, zero, cut, lengthen, remove),
)


def hurt(patient: Patient, chance: random.Random) -> list[str]:
    """Damage one to three files; returns what was done."""
    root = patient.root
    if chance.random() < 0.3:
        not_closed(patient)
    if chance.random() < 0.3:
        shutil.rmtree(patient.paths.blocks)
    done = []
    for _ in range(chance.randint(1, 3)):
        found = sorted(each for each in root.rglob("*") if each.is_file())
        names = [str(each.relative_to(root)) for each in found]
        names = [each for each in names if each not in KEPT and "quarantine" not in each]
        of_log = [each for each in names if each.startswith("commitlog")]
        name = chance.choice(of_log if of_log and chance.random() < 0.4 else names)
        way = chance.choice(HURTS)
        way(root / name, chance)
        done.append(f"{way.__name__} {name}")
    return done


@pytest.fixture(scope="module")
def written(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("random-damages") / "store"
    make_store(root, StoreFormat(referee.format))
    return root


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_a_random_damage_is_repaired_in_one_run(
    referee: Referee, written: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    patient = Patient(Path(shutil.copytree(written, tmp_path / "store")))
    messages = Dump.of(ours.dump(written, APPENDED.config, queries=False)).messages
    done = hurt(patient, chance)
    touched = changed(written, patient.root, messages)
    list(patient.findings())

    plan, outcome = patient.repair().plan(), patient.repair().run()

    assert outcome.left == {}, done
    assert plan.changes.lost == outcome.changes.lost, done
    healthy(patient)
    lost = changed(written, patient.root, messages)
    assert lost <= touched, f"messages without damage were changed: {done}"
    require_truth(patient, outcome, done)
    theirs = Dump.of(referee.dump(copy_of(patient.root), APPENDED.config))
    assert missing(theirs, [line for line in messages if line["off"] not in lost]) == [], done
    with open_store(patient.root) as store:
        assert store.read_only_reason is None
    continues(referee, patient.root, theirs)


def require_truth(patient: Patient, outcome: RepairOutcome, done: list[str]) -> None:
    """The count is that of the messages which are gone.

    Of a stretch without evidence of what was in it, one message is counted; where segments are gone
    together with queue entries, each queue offset that may have been in them.
    """
    gone = RECORDS - len(set_of_bodies(patient))
    counted, listed = outcome.changes.lost, outcome.changes.listed
    may_be_less = any(each.lost and each.topic is None for each in listed)
    may_be_more = any(each.action is Action.LOSE_MESSAGES for each in listed)
    assert (
        counted == gone or (may_be_less and counted <= gone) or (may_be_more and counted >= gone)
    ), (counted, gone, done)
