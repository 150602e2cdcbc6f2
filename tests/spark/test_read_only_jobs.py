"""Every job that only looks leaves a store directory untouched, as the commands do in
tests/unit/cli/test_read_only_commands.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from mqstore.jobs.commitlog import commitlog
from mqstore.jobs.expiry_report import Options, report_shard
from mqstore.jobs.job_run import JobRun
from mqstore.jobs.output import Output
from mqstore.jobs.rebuild.settings import Mode, RebuildSettings
from mqstore.jobs.rebuild.shard import rebuild_shard
from tests.unit.storage.stores import CONFIG
from tests.unit.untouched import MESSAGES, STORES, entries_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


def _rebuild(spark: SparkSession, root: Path, mode: Mode) -> int:
    settings = RebuildSettings(
        mode=mode,
        hash_slots=CONFIG.max_hash_slot_num,
        index_num=CONFIG.max_index_num,
        disk_ratio=100,
    )
    job = JobRun("index-rebuild", spark)
    return job.over([str(root)], partial(rebuild_shard, settings))


def _verify(spark: SparkSession, root: Path) -> None:
    assert _rebuild(spark, root, Mode.VERIFY) in (0, 1)


def _dry_run(spark: SparkSession, root: Path) -> None:
    assert _rebuild(spark, root, Mode.DRY_RUN) == 0


def _read(spark: SparkSession, root: Path) -> None:
    assert commitlog(spark, str(root)).count() >= MESSAGES


def _report(spark: SparkSession, root: Path) -> None:
    output = Output(str(root.with_name("report")))
    options = Options(output, (1, 24), (24,), None, None, None, dry_run=False)
    assert report_shard(JobRun("expiry-report", spark), str(root), options=options).exit_code < 2


LOOKING_JOBS: Final[dict[str, Callable[[SparkSession, Path], None]]] = {
    "index-rebuild --verify": _verify,
    "index-rebuild --dry-run": _dry_run,
    "data source": _read,
    "expiry report": _report,
}
"""A new job that only looks is a row here."""


@pytest.mark.parametrize("state", STORES)
def test_a_job_that_looks_changes_nothing(spark: SparkSession, tmp_path: Path, state: str) -> None:
    root = tmp_path / "store"
    STORES[state](root)
    before = entries_of(root)
    for name, look in LOOKING_JOBS.items():
        look(spark, root)
        assert entries_of(root) == before, name
