"""A log that Spark reads while the opening completes its queues."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqstore.jobs.job_run import JobRun
from mqstore.jobs.rebuild import shard
from mqstore.jobs.rebuild.settings import RebuildSettings
from mqstore.jobs.rebuild.shard import BEHIND_MIN, Rebuild
from mqstore.storage import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.options import RecoveredLog
from mqstore.storage.paths import StorePaths

pytestmark = pytest.mark.slow


class Run(JobRun):
    """A run whose Spark works until it is cancelled."""

    def __init__(self) -> None:
        super().__init__("index-rebuild")
        self.begun = 0
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        self.cancelled.set()


def recovered(root: Path, behind: int) -> RecoveredLog:
    paths = StorePaths(root)
    return RecoveredLog(paths, StoreConfig(), StoreFormat.V4_9, (), 0, 10 * BEHIND_MIN + behind, 0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    made = Run()

    def make(_: Rebuild, found: RecoveredLog) -> Run:
        return made

    def scan(self: Run) -> None:
        self.begun += 1
        assert self.cancelled.wait(30)

    monkeypatch.setattr(Rebuild, "_made", make)
    monkeypatch.setattr(Run, "scan_beside_queues", scan, raising=False)
    return made


def test_an_opening_that_fails_cancels_spark_and_waits_for_it(run: Run, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no room"), Rebuild(RebuildSettings(), run) as rebuild:
        rebuild.begin(recovered(tmp_path, behind=0))
        raise OSError("no room")
    assert run.begun == 1
    assert run.cancelled.is_set()


def test_queues_that_are_nearly_complete_are_not_worth_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "BEHIND_MIN", 20 * BEHIND_MIN)
    with Rebuild(RebuildSettings(), run) as rebuild:
        rebuild.begin(recovered(tmp_path, behind=0))
    assert run.begun == 0
    assert not run.cancelled.is_set()
