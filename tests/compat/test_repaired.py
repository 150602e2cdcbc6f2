"""A store of ours that rotted below its durable watermark, repaired, and read by a real broker."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.compat import ours
from tests.compat.compare import Dump
from tests.compat.damage import VARIANTS, Patient, is_in_its_queues
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.scripts import expected_messages
from tests.compat.shapes import expand
from tests.compat.test_damage import APPENDED, SEED, SHAPE

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("damage"), pytest.mark.slow]


@pytest.fixture(scope="module")
def written(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed cleanly: all of it is durable."""
    root = tmp_path_factory.mktemp("rotten") / "store"
    ours.write(expand(SEED, SHAPE, referee.format), root, referee.format)
    return root


def rotten(written: Path, directory: Path, variant: str, *, checksums: bool) -> Patient:
    root = Path(shutil.copytree(written, directory / "store"))
    lines = Dump.of(ours.dump(root, SHAPE.config, queries=False)).without_delivery_times()
    end = lines.recovered["maxPhyOffset"]
    patient = Patient(root, SHAPE.segment_bytes, lines.messages, end, random.Random(1))
    VARIANTS[variant](patient)
    if not checksums:  # as of segments that a broker wrote
        shutil.rmtree(root / "mqstore" / "blocks")
    return patient


def repair(root: Path) -> dict[str, Any]:
    """Run `mqstore store repair --yes` and return its last line."""
    options = ("--yes", "-o", "json", *ours.index_sizes(SHAPE.config))
    found = ours.run_command("store", "repair", str(root), *options)
    assert found.code in (0, 1), found.summary
    return found.lines[-1]


def put_and_open(referee: Referee, root: Path) -> tuple[Dump, list[int]]:
    """More is put and the writer is killed; what a broker then has, and which of these it lacks."""
    script = expand(7, APPENDED, referee.format).ending("halt")
    answers = ours.append(script, root, referee.format)
    lines = referee.dump(copy_of(root), SHAPE.config, queries=False)
    theirs = Dump.of(lines).without_delivery_times()
    there = {line["off"] for line in theirs.messages}
    due = [each.answers["off"] for each in expected_messages(script, answers, referee.format)]
    return theirs, [offset for offset in due if offset not in there]


def dropped(patient: Patient, theirs: Dump) -> list[int]:
    """Untouched messages that are gone from the log or from their queues."""
    there = {line["off"]: line for line in theirs.messages}
    return [
        line["off"]
        for line in patient.untouched()
        if there.get(line["off"]) != line or not is_in_its_queues(theirs, line)
    ]


def test_without_a_repair_a_broker_drops_what_was_put_behind_the_damage(
    referee: Referee, written: Path, tmp_path: Path
) -> None:
    patient = rotten(written, tmp_path, "flipmid", checksums=True)
    theirs, missing = put_and_open(referee, patient.root)
    assert len(dropped(patient, theirs)) > 10
    assert len(missing) >= APPENDED.messages


@pytest.mark.parametrize(
    "variant, checksums", [("flipmid", True), ("flipmid", False), ("lostpage", True)]
)
def test_after_a_repair_a_broker_drops_nothing_but_the_damaged(
    referee: Referee, written: Path, tmp_path: Path, variant: str, checksums: bool
) -> None:
    patient = rotten(written, tmp_path, variant, checksums=checksums)

    found = repair(patient.root)

    is_restored = variant == "flipmid" and checksums
    changes = found["changes"]
    assert changes.get("restore-bytes", 0) == int(is_restored)
    assert ("place-tombstone" in changes) == (not is_restored)
    theirs, missing = put_and_open(referee, patient.root)
    assert missing == []
    assert dropped(patient, theirs) == []
    if is_restored:
        there = {line["off"]: line for line in theirs.messages}
        assert [line for line in patient.messages if there.get(line["off"]) != line] == []
    _, summary = ours.verify(patient.root, SHAPE.config)
    assert summary["brokerStarts"]
