"""A pause is durable, outlives the process, and is never lost to damage."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mqstore.storage.metadata.write_pause import UNREADABLE, WritePause
from mqstore.storage.system.threads import production_seams
from tests.simulation import Loss, SimulatedMachine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "write-pause.json"


def _again(path: Path) -> WritePause:
    return WritePause(path, production_seams())


def test_pause_is_found_again_until_it_ends(path: Path) -> None:
    assert _again(path).current is None
    begun = _again(path).begin("moving")
    assert _again(path).current == begun
    assert begun.reason == "moving"
    _again(path).end()
    assert _again(path).current is None
    assert not path.exists()


def test_another_reason_is_no_later_pause(path: Path) -> None:
    pause = _again(path)
    first = pause.begin("moving")
    assert pause.begin("copying").since_ms == first.since_ms


def test_file_that_cannot_be_read_counts_as_a_pause(path: Path) -> None:
    _again(path).begin("moving")
    path.write_bytes(path.read_bytes().replace(b"moving", b"roving"))
    damaged = _again(path)
    assert damaged.current is not None
    assert damaged.current.reason == UNREADABLE
    damaged.end()
    assert _again(path).current is None


@pytest.mark.parametrize("change", ["begin", "end"])
def test_what_a_failing_sync_left_open_is_settled_by_letting_writes_go_on(change: str) -> None:
    machine = SimulatedMachine(1)
    path = Path("/ours/write-pause.json")
    machine.disk.make_directories(path.parent)
    pause = WritePause(path, machine.seams)
    if change == "end":
        pause.begin("moving")
    machine.disk.fail_next("sync_directory", errno.EIO)
    with pytest.raises(OSError, match="error"):
        pause.begin("moving") if change == "begin" else pause.end()

    pause.end()

    for disk in (machine.disk.kill(), *(machine.disk.power_cut(1, loss) for loss in Loss)):
        assert WritePause(path, machine.restart(disk).seams).current is None
