"""The index of a store rebuilt by Spark, where queues and index are gone, until all is published.

Warm: in a session that stands ready; cold: the command, with Java's and Spark's start. The peer
rebuilds queues and index of the same store as a broker's start does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqstore.storage.paths import StorePaths
from tests.bench.bench_rebuild import SEGMENT, drop_derived, peers_rebuild
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.memory import PeakMemory
from tests.bench.stores import Filled, filled_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY_SIZES: Final = (1024, 100)
CORES: Final = (1, 2)
MIB: Final = 1 << 20


def benches(setting: Setting) -> Iterator[Bench]:
    if importlib.util.find_spec("pyspark") is None:
        print("index-rebuild is left out: make lint installs Spark", file=sys.stderr)
        return
    for body_size in BODY_SIZES:
        size = setting.log_mib << 20
        with filled_store(setting.directory, SEGMENT, size, body_size) as filled:
            what = f"index rebuilt by Spark, {setting.log_mib} MiB of {body_size} B bodies"
            for cores in CORES:
                with _session(cores) as spark:
                    metrics = [
                        Metric("rate", f"{what}, {cores} cores, warm", "MiB/s"),
                        Metric("memory", f"{what}, {cores} cores, peak memory", "MiB", False),
                    ]
                    peer = partial(peers_rebuild, setting, filled, drop_derived)
                    ours = partial(_warm, spark, filled)
                    yield Bench(metrics, ours, peer if setting.peer else None, processes={})
            cold = Metric("rate", f"{what}, {CORES[-1]} cores, cold", "MiB/s")
            yield Bench([cold], partial(_cold, filled), processes={})


@contextlib.contextmanager
def _session(cores: int) -> Iterator[SparkSession]:
    from mqstore.jobs.rebuild.spark_build import SPARK_SETTINGS
    from mqstore.jobs.session import spark_session

    spark = spark_session(
        "bench",
        spark_master=f"local[{cores}]",
        spark_ui_enabled="false",
        spark_ui_showConsoleProgress="false",
        **SPARK_SETTINGS,
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _warm(spark: SparkSession, filled: Filled) -> Figures:
    from mqstore.jobs.job_run import JobRun
    from mqstore.jobs.rebuild.settings import RebuildSettings
    from mqstore.jobs.rebuild.shard import rebuild_shard

    drop_derived(StorePaths(filled.ours))
    work = partial(rebuild_shard, RebuildSettings(disk_ratio=100))
    context = spark.sparkContext
    context.parallelize(range(2 * context.defaultParallelism)).map(lambda n: n + 1).collect()
    said = io.StringIO()
    with PeakMemory(_processes(spark)) as memory, contextlib.redirect_stdout(said):
        began = time.perf_counter()
        JobRun("index-rebuild", spark).over([str(filled.ours)], work)
        seconds = time.perf_counter() - began
    _check(json.loads(said.getvalue()), filled)
    return {"rate": filled.log_bytes / seconds / MIB, "memory": memory.peak_mib}


def _processes(spark: SparkSession) -> list[int]:
    """The driver, Spark's JVM, and its Python workers as they stand ready."""
    gateway: Any = spark.sparkContext._gateway
    found, children = [os.getpid()], [gateway.proc.pid]
    while children:
        each = children.pop()
        found.append(each)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                children += map(int, (task / "children").read_text().split())
    return found


def _cold(filled: Filled) -> Figures:
    drop_derived(StorePaths(filled.ours))
    command = [sys.executable, "-m", "mqstore.jobs.index_rebuild", str(filled.ours)]
    command += ["--disk-max-used-space-ratio", "100"]
    submit = f"--master local[{CORES[-1]}] pyspark-shell"
    began = time.perf_counter()
    done = subprocess.run(
        command,
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": submit},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - began
    summary = json.loads(done.stdout)
    assert summary["spark"]["master"] == f"local[{CORES[-1]}]"
    _check(summary, filled)
    return {"rate": filled.log_bytes / seconds / MIB}


def _check(summary: dict[str, Any], filled: Filled) -> None:
    (shard,) = summary["shards"]
    if shard.get("records") != filled.records:
        raise SideError(f"of {filled.records} records: {shard}")
