"""The expiry report and the archive over a whole log, in a Spark session that stands ready.

RocketMQ has no such jobs; the limit is the disk. The log is not in the page cache. The archive
exports all segments that the rule in force deletes within a week, which are all but the last one,
as Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from mqstore.storage.paths import StorePaths
from tests.bench import log_reads, spark_runs
from tests.bench.bench_rebuild import SEGMENT
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Setting
from tests.bench.spark_runs import CORES
from tests.bench.stores import Filled, filled_store, fresh_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HORIZONS = (24, 72, 168)


def benches(setting: Setting) -> Iterator[Bench]:
    if not spark_runs.is_installed("jobs"):
        return
    cores = CORES[-1]
    with (
        filled_store(setting.directory, SEGMENT, setting.log_mib << 20) as filled,
        spark_runs.session(cores) as spark,
    ):
        disk = partial(log_reads.from_disk, filled)
        for what, has_archive in (("expiry report", False), ("expiry report and archive", True)):
            name = f"{what}, {setting.log_mib} MiB, {cores} cores, warm"
            ours = partial(_report, setting, spark, filled, has_archive)
            yield Bench(spark_runs.metrics(name), ours, disk=disk, processes={})


def _report(setting: Setting, spark: SparkSession, filled: Filled, has_archive: bool) -> Figures:
    from mqstore.jobs.expiry_report import Options, report_shard
    from mqstore.jobs.output import Output

    with fresh_directory(setting.directory) as out:
        options = Options(
            out=Output(str(out / "report")),
            horizons=HORIZONS,
            what_if=(),
            settings=None,
            token_file=None,
            ca=None,
            dry_run=False,
            archive=Output(str(out / "archive")) if has_archive else None,
        )
        work = partial(report_shard, options=options)
        report, figures = spark_runs.measure(spark, "expiry-report", filled, work)
        if report.get("messages") != filled.records:
            raise SideError(f"of {filled.records} messages: {report}")
        if has_archive and not report["archive"]["messages"]:
            raise SideError(f"nothing was archived: {report}")
        StorePaths(filled.ours).archive.unlink(missing_ok=True)  # the next archive is another one
    return figures
