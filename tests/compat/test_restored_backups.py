"""Backups of stores of ours, restored and opened by a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat import ours
from tests.compat.compare import Dump
from tests.compat.damage import is_in_its_queues
from tests.compat.examples import copy_of
from tests.compat.referee import Referee
from tests.compat.shapes import expand
from tests.compat.test_damage import SEED, SHAPE

pytestmark = [pytest.mark.referee, pytest.mark.xdist_group("damage"), pytest.mark.slow]


def run(*words: str) -> list[ours.Line]:
    done = ours.run_command(*words, "-o", "json")
    assert done.code == 0, done.summary
    return done.lines


def test_a_broker_has_all_messages_of_a_backup_up_to_its_end(
    referee: Referee, tmp_path: Path
) -> None:
    root, place = tmp_path / "store", str(tmp_path / "backups")
    ours.write(expand(SEED, SHAPE, referee.format), root, referee.format)
    (created,) = run("backup", "create", place, "--store", str(root))
    lines = ours.dump(root, SHAPE.config, queries=False)
    before = Dump.of(lines).without_delivery_times()
    due = [line for line in before.messages if line["off"] < created["end"]]
    for number, end in enumerate((created["end"], created["end"] // 2)):
        target = tmp_path / f"restored-{number}"
        (restored,) = run("restore", place, str(target), "--to-offset", str(end))
        kept = [line for line in due if line["off"] < restored["end"]]
        assert len(kept) > 20

        lines = referee.dump(copy_of(target), SHAPE.config, queries=False)
        theirs = Dump.of(lines).without_delivery_times()

        assert theirs.messages == kept
        assert theirs.recovered["maxPhyOffset"] == restored["end"]
        assert all(is_in_its_queues(theirs, line) for line in kept)
