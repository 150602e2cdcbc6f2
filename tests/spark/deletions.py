"""A segment of the log that is deleted while a job is at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from mqstore.jobs.job_run import JobRun


class DeletingRun(JobRun):
    """A run during which a file goes: before Spark begins with a stage, or behind it."""

    def __init__(
        self, spark: SparkSession, path: Path, *, before: str = "", after: str = ""
    ) -> None:
        """``before`` and ``after`` are how the stage's name begins; one of them is given."""
        super().__init__("a job", spark)
        self._path = path
        self._before, self._after = before, after

    @contextmanager
    def stage(self, what: str) -> Iterator[SparkSession]:
        if self._before and what.startswith(self._before):
            self._path.unlink()
        with super().stage(what) as spark:
            yield spark
        if self._after and what.startswith(self._after):
            self._path.unlink()
