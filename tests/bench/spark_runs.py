"""A job of ours in a Spark session that stands ready, with its time, processors and memory."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench import harness, log_reads, machine
from tests.bench.harness import Figures, Metric
from tests.bench.machine import Use
from tests.bench.memory import MIB, PeakMemory
from tests.bench.stores import Filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqstore.jobs.job_run import JobRun, Outcome

CORES: Final = (1, 2)


def is_installed(row: str) -> bool:
    """Whether Spark is there; says that the row is left out where it is not."""
    if importlib.util.find_spec("pyspark") is None:
        print(f"{row} is left out: make lint installs Spark", file=sys.stderr)
        return False
    return True


@contextlib.contextmanager
def session(cores: int) -> Iterator[SparkSession]:
    """A session of this process, whose processes all run on so many cores."""
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
    whole = os.sched_getaffinity(0)
    try:
        _pin(spark, set(sorted(whole)[:cores]))
        yield spark
    finally:
        _pin(spark, whole)
        spark.stop()


def _pin(spark: SparkSession, cores: set[int]) -> None:
    """Let all threads of the driver, of Java and of the workers run on these cores.

    Spark's own setting bounds the tasks only: driver and Java would use the other cores.
    """
    for process_id in _processes(spark):
        for thread in Path(f"/proc/{process_id}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def metrics(name: str) -> list[Metric]:
    """The rows of a job."""
    return [
        Metric("rate", name, "MiB/s"),
        harness.cost(name),
        Metric("memory", f"{name}, peak memory", "MiB", higher_is_better=False),
    ]


def measure(
    spark: SparkSession, name: str, filled: Filled, work: Callable[[JobRun, str], Outcome]
) -> tuple[dict[str, Any], Figures]:
    """Run a job over a log that is not in the page cache: the report of its shard, and figures."""
    from mqstore.jobs.job_run import JobRun

    context = spark.sparkContext
    context.parallelize(range(2 * context.defaultParallelism)).map(lambda n: n + 1).collect()
    log_reads.evict(filled.ours / "commitlog")
    said = io.StringIO()
    with PeakMemory(_processes(spark)) as memory, contextlib.redirect_stdout(said):
        used, began = Use.now(), time.perf_counter()
        JobRun(name, spark).over([str(filled.ours)], work)
        seconds = time.perf_counter() - began
        cost = Use.now().since(used).ours_s / filled.records * 1e6
    (report,) = json.loads(said.getvalue())["shards"]
    rate = filled.log_bytes / seconds / MIB
    return report, {"rate": rate, "cost": cost, "memory": memory.peak_mib}


def _processes(spark: SparkSession) -> list[int]:
    """The driver, Spark's JVM, and its Python workers as they stand ready."""
    gateway: Any = spark.sparkContext._gateway
    java = gateway.proc.pid
    return [os.getpid(), java, *machine.descendants(java)]
