"""The run of a job over several shards: Spark session, progress, summary and exit code.

A job is a module with a ``main``: a typer command that makes a ``JobRun`` and calls ``over`` with
the shards and the work on each. The summary reports a shard that fails, and the others finish.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mqstore.jobs import command
from mqstore.jobs.errors import EXIT_FINE, SparkEnded
from mqstore.jobs.progress import Progress, shown_progress
from mqstore.jobs.session import spark_session
from mqstore.jobs.spark_figures import SparkFigures, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report = dict[str, Any]
"""The report of one shard, in JSON."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the work on one shard."""

    report: Report = field(default_factory=dict)
    exit_code: int = EXIT_FINE
    log_bytes: int = 0
    """Bytes of the log that the job read."""


class JobRun:
    """One run of a job. Used once, in one thread."""

    def __init__(self, name: str, spark: SparkSession | None = None, **settings: str) -> None:
        """``settings`` are Spark's, with ``_`` for ``.``. The run does not stop a given session;
        without one the first use of ``spark`` starts one."""
        self.name = name
        self._spark = spark
        self._settings = {"spark_ui_showConsoleProgress": "false"} | settings
        self._is_ours = spark is None
        self._figures = SparkFigures()
        self._progress: Progress = lambda stage, done, total: None

    @property
    def progress(self) -> Progress:
        """The function that shows the progress of the run."""
        return self._progress

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which the first use starts. Raises JavaMissing."""
        if self._spark is None:
            self._progress("starting Spark", 0, 1)
            self._spark = spark_session(f"mqstore {self.name}", **self._settings)
        return self._spark

    @contextmanager
    def stage(self, what: str) -> Iterator[SparkSession]:
        """Count the work of Spark within the context, and show its progress."""
        with watched(self.spark, self.name, what, self._progress, self._figures):
            yield self.spark

    def cancel(self) -> None:
        """Cancel the stages that Spark works on, from another thread; they raise an error."""
        if self._spark is not None:
            for group in tuple(self._figures.running):
                self._spark.sparkContext.cancelJobGroup(group)

    def over(self, shards: Sequence[str], work: Callable[[JobRun, str], Outcome]) -> int:
        """Do the work on each shard and print the summary on stdout; returns the worst exit code.

        An error of a shard is in its report and does not end the others.
        """
        began = time.monotonic()
        with ExitStack() as stack:
            self._progress = stack.enter_context(shown_progress())
            stack.callback(self._stop)
            outcomes = [self._one(shard, work) for shard in shards]
        exit_code = max((each.exit_code for each in outcomes), default=EXIT_FINE)
        summary = {
            "job": self.name,
            "exitCode": exit_code,
            "seconds": round(time.monotonic() - began, 3),
            "bytes": sum(each.log_bytes for each in outcomes),
            "spark": self._figures.report(),
            "shards": [each.report for each in outcomes],
        }
        json.dump(summary, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
        sys.stdout.flush()
        return exit_code

    def _one(self, shard: str, work: Callable[[JobRun, str], Outcome]) -> Outcome:
        began = time.monotonic()
        log.info("%s: %s begins", shard, self.name)
        try:
            outcome = work(self, shard)
        except Exception as error:
            refused = self._spark_error() or command.job_error_of(error)
            log.error("%s: %s", shard, refused)
            outcome = Outcome({"error": str(refused)}, refused.exit_code)
        seconds = round(time.monotonic() - began, 3)
        log.info("%s: %s took %.1f s", shard, self.name, seconds)
        fields = {"shard": shard, "exitCode": outcome.exit_code, "seconds": seconds}
        return Outcome(fields | outcome.report, outcome.exit_code, outcome.log_bytes)

    def _spark_error(self) -> SparkEnded | None:
        """The error of a shard if Spark's Java process has ended; else None."""
        gateway = None if self._spark is None else self._spark.sparkContext._gateway
        process = getattr(gateway, "proc", None)  # None where Python did not start it
        code = None if process is None else process.poll()
        if code is None:
            return None
        why = "was killed, mostly for lack of memory" if code in (-9, 137) else f"ended with {code}"
        return SparkEnded(
            f"Spark's Java process of the driver {why}: its memory is spark.driver.memory, within "
            "jobs.driver.resources.limits.memory of the chart"
        )

    def _stop(self) -> None:
        if not self._is_ours or self._spark is None:
            return
        try:
            self._spark.stop()
        except Exception as error:  # Spark's Java was killed, which has also failed the shards
            log.warning("Spark cannot be stopped: %s", error)
