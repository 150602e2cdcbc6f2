"""A log's items on one machine: they go from task to task by files of scratch."""

from __future__ import annotations

import gc
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.jobs.errors import JobError, SegmentGone
from mqstore.jobs.log import at_path
from mqstore.jobs.log.at_path import LogAtPath
from mqstore.jobs.log.source import LogRange
from mqstore.jobs.rebuild.gathered import Behind, SpillTask, items_of
from mqstore.jobs.rebuild.tasks import Extraction
from mqstore.storage.index.plan import Layout
from tests.unit.jobs.written import overwrite, written

PARTS = 3


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Spark names it to its workers."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{path},/nowhere")
    monkeypatch.setattr(gc, "freeze", lambda: None)  # this process is no worker
    return path


def looked_at(root: Path) -> tuple[Extraction, list[LogRange]]:
    seen = at_path.look(written(root))
    assert isinstance(seen.log, LogAtPath)
    ranges = [LogRange(each, each.start, each.end) for each in seen.segments]
    return Extraction(seen.log, Layout(1000, 300, tags=False), PARTS), ranges


def test_each_part_gets_its_items_of_all_tasks_in_the_order_of_the_log(
    tmp_path: Path, scratch: Path
) -> None:
    extraction, ranges = looked_at(tmp_path / "store")
    task = SpillTask(extraction)
    found = [*task.spill(ranges[:2]), *task.spill(ranges[2:])]
    runs = [(chunk.start, run) for (_, chunk), run in found]
    assert len({run.path for _, run in runs}) == len(list(scratch.iterdir())) == 2
    due = [each for part in ranges for each in extraction.chunks(part)]
    assert [chunk for (_, chunk), _ in found] == [chunk for chunk, _ in due]
    for part in range(PARTS):
        expected = [(chunk.start, items[part]) for chunk, items in due if items[part]]
        assert list(items_of(part, runs)) == expected
        assert expected


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, scratch: Path) -> None:
    extraction, ranges = looked_at(tmp_path / "store")
    name = ranges[-1].segment.name
    (tmp_path / "store" / "commitlog" / name).unlink()
    with pytest.raises(SegmentGone, match=f"segment {name} was deleted"):
        list(SpillTask(extraction)(ranges))
    assert list(scratch.iterdir()) == []


def test_damage_is_refused_while_the_queues_that_lead_on_are_incomplete(
    tmp_path: Path, scratch: Path
) -> None:
    extraction, ranges = looked_at(tmp_path / "store")
    overwrite(tmp_path / "store", ranges[1].start, bytes(8))
    early = SpillTask(replace(extraction, has_queues=False))
    assert list(early(ranges[:1])) != []
    files = set(scratch.iterdir())
    *_, last = early(ranges)
    assert last == Behind(f"the log is damaged at offset {ranges[1].start}")
    assert set(scratch.iterdir()) == files
    assert list(SpillTask(extraction)(ranges)) != []


def test_scratch_that_takes_no_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    extraction, ranges = looked_at(tmp_path / "store")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
    with pytest.raises(JobError, match=r"No such file.*see that Spark has room"):
        list(SpillTask(extraction)(ranges))


def test_a_worker_that_reads_a_directory_loads_no_http_client() -> None:
    code = "import sys, mqstore.jobs.rebuild.gathered; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"
