"""Figures of Spark's work for a job, from Spark's status; also shown while the job runs."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mqstore.jobs.progress import Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOK_INTERVAL_S: Final = 0.5
_numbers: Final = itertools.count(1)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SparkFigures:
    """Sums over all stages of a run."""

    application_id: str | None = None
    master: str | None = None
    stages: int = 0
    tasks: int = 0
    running: set[str] = field(default_factory=set)
    """The groups of Spark's jobs that run now."""
    executors: int = 0
    """The most that were there at a stage's end; Spark's own process is one, where it is alone."""

    def add(self, context: SparkContext, group: str) -> None:
        """Add the stages of one group of Spark jobs."""
        self.application_id, self.master = context.applicationId, context.master
        for _, tasks in _stages(context, group):
            self.stages += 1
            self.tasks += tasks
        self.executors = max(self.executors, _executors(context), 1)

    def report(self) -> dict[str, Any] | None:
        """None where Spark was not needed."""
        if self.application_id is None:
            return None
        return {
            "applicationId": self.application_id,
            "master": self.master,
            "stages": self.stages,
            "tasks": self.tasks,
            "executors": self.executors,
        }


@contextmanager
def watched(
    spark: SparkSession, name: str, what: str, progress: Progress, figures: SparkFigures
) -> Iterator[None]:
    """Show the tasks of Spark's jobs in this context, and add their figures."""
    context, group = spark.sparkContext, f"{name} {next(_numbers)}"
    context.setJobGroup(group, what)
    ended = threading.Event()
    figures.running.add(group)

    def look() -> None:
        """Show the progress of the stages until the work ends."""
        while not ended.wait(LOOK_INTERVAL_S):
            stages = _stages(context, group)
            done, tasks = sum(done for done, _ in stages), sum(tasks for _, tasks in stages)
            if tasks and not done:
                progress(f"{what}, {_executors(context)} executors", done, tasks)
            else:
                progress(what, done, tasks)

    watcher = threading.Thread(target=look, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        figures.running.discard(group)
        ended.set()
        watcher.join()
        try:
            figures.add(context, group)
        except Exception as error:  # Spark's Java has died; the error of the stage is reported
            log.warning("Spark's figures are unavailable: %s", error)


def _executors(context: SparkContext) -> int:
    """Executors that are there now, without Spark's own process."""
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def _stages(context: SparkContext, group: str) -> list[tuple[int, int]]:
    """Tasks done and tasks of each stage that ran."""
    tracker = context.statusTracker()
    found = []
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for number in info.stageIds if info is not None else ():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                found.append((stage.numCompletedTasks, stage.numTasks))
    return found
