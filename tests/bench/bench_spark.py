"""The index of a store rebuilt by Spark, where queues and index are gone, until all is published.

Warm: in a session that stands ready; cold: the command, with Java's and Spark's start. Without
Spark: the same functions of the engine over the same ranges in one process; what the rows with one
core cost more is Spark's own cost. The peer rebuilds queues and index of the same store as a
broker's start does. The log is not in the page cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore.storage.paths import StorePaths
from tests.bench import harness, log_reads, spark_runs
from tests.bench.bench_rebuild import SEGMENT, drop_derived, peers_rebuild
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.memory import MIB
from tests.bench.spark_runs import CORES
from tests.bench.stores import Filled, filled_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY_SIZES = (1024, 100)


def benches(setting: Setting) -> Iterator[Bench]:
    if not spark_runs.is_installed("index-rebuild"):
        return
    for body_size in BODY_SIZES:
        size = setting.log_mib << 20
        with filled_store(setting.directory, SEGMENT, size, body_size) as filled:
            what = f"index rebuilt by Spark, {setting.log_mib} MiB of {body_size} B bodies"
            disk = partial(log_reads.from_disk, filled)
            peer = partial(peers_rebuild, setting, filled, _spoil) if setting.peer else None
            for cores in CORES:
                name = f"{what}, {cores} cores, warm" if cores > 1 else f"{what}, 1 core, warm"
                with spark_runs.session(cores) as spark:
                    ours = partial(_warm, spark, filled)
                    yield Bench(spark_runs.metrics(name), ours, peer, disk, processes={})
            cold = Metric("rate", f"{what}, {CORES[-1]} cores, cold", "MiB/s")
            yield Bench([cold], partial(_cold, filled), processes={})
            name = f"{what.replace('by Spark', 'without Spark')}, one process"
            metrics = [Metric("rate", name, "MiB/s"), harness.cost(name)]
            yield Bench(metrics, partial(_without_spark, filled), processes={})


def _spoil(paths: StorePaths) -> None:
    drop_derived(paths)
    log_reads.evict(paths.commit_log)


def _warm(spark: SparkSession, filled: Filled) -> Figures:
    from mqstore.jobs.rebuild.settings import RebuildSettings
    from mqstore.jobs.rebuild.shard import rebuild_shard

    _spoil(StorePaths(filled.ours))
    work = partial(rebuild_shard, RebuildSettings(disk_ratio=100))
    report, figures = spark_runs.measure(spark, "index-rebuild", filled, work)
    _check(report, filled)
    return figures


def _cold(filled: Filled) -> Figures:
    _spoil(StorePaths(filled.ours))
    command = [sys.executable, "-m", "mqstore.jobs.index_rebuild", str(filled.ours)]
    command += ["--disk-max-used-space-ratio", "100"]
    submit = f"--master local[{CORES[-1]}] pyspark-shell"
    began = time.perf_counter()
    done = subprocess.run(
        command,
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": submit},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SideError(f"the command ended with {done.returncode}: {done.stderr[-2000:]}")
    summary = json.loads(done.stdout)
    assert summary["spark"]["master"] == f"local[{CORES[-1]}]"
    (report,) = summary["shards"]
    _check(report, filled)
    return {"rate": filled.log_bytes / seconds / MIB}


def _without_spark(filled: Filled) -> Figures:
    from mqstore.jobs.log.ranges import plan as plan_ranges
    from mqstore.jobs.rebuild import at_rest
    from mqstore.jobs.rebuild.gathered import SpillTask, items_of
    from mqstore.jobs.rebuild.settings import RebuildSettings
    from mqstore.jobs.rebuild.spark_build import RANGE_SIZE
    from mqstore.jobs.rebuild.tasks import Extraction, build_part
    from mqstore.storage.host import PosixFileSystem
    from mqstore.storage.index import BuildPlan, IndexPlan, Layout, finish_files, make_files
    from mqstore.storage.status import RecoveredLog

    _spoil(StorePaths(filled.ours))
    cpu, began = time.process_time(), time.perf_counter()
    config, recovered = RebuildSettings().config(), list[RecoveredLog]()
    with at_rest.held(filled.ours, config, lambda *_: None, recovered.append, dry=False) as store:
        log, segments = at_rest.log_of(*recovered)
        sizes = store.config
        layout = Layout(sizes.max_hash_slot_num, sizes.max_index_num, store.format.indexes_tags)
        extraction = Extraction(log, layout, 1)
        with log.opened() as reader:
            ranges = list(plan_ranges(reader, segments, RANGE_SIZE, 0, 1 << 62))
        found = list(SpillTask(extraction).spill(ranges))
        plan = IndexPlan([chunk for (_, chunk), _ in found], layout)
        build = BuildPlan.of(plan, plan.files(partial(extraction.item, segments)))
        files, directory = PosixFileSystem(), store.paths.index_staging
        make_files(files, directory, build)
        items = items_of(0, [(chunk.start, run) for (_, chunk), run in found])
        staged = finish_files(files, directory, build, list(build_part(directory, build, items)))
        end_ms = build.files[-1].end[1]
        store.index.publish(staged, layout.slots, layout.index_num, store.store_id, end_ms)
        for path in {run.path for _, run in found}:
            Path(path).unlink()
    cost = (time.process_time() - cpu) / filled.records * 1e6
    if plan.records != filled.records:
        raise SideError(f"{plan.records} of {filled.records} records")
    return {"rate": filled.log_bytes / (time.perf_counter() - began) / MIB, "cost": cost}


def _check(report: dict[str, Any], filled: Filled) -> None:
    if report.get("records") != filled.records:
        raise SideError(f"of {filled.records} records: {report}")
