"""Progress of a job: a bar on a terminal, else log lines at the start and the end of each stage and
every ``LINE_INTERVAL_S`` seconds."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LINE_INTERVAL_S: Final = 10.0
"""Seconds between two log lines of one stage."""

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the amount done and the total, by one thread at a time."""

log = logging.getLogger(__name__)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show progress on stderr for the context, since stdout is for the job's summary.

    Yields the function that reports progress.
    """
    if sys.stderr.isatty():
        with _bar() as shown:
            yield shown
    else:
        yield LoggedProgress()


class LoggedProgress:
    """Writes progress as log lines, at most one per interval except at the start and end."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged = "", False
        self._due = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        state = stage, done >= total
        is_new = stage != self._logged[0] or (state[1] and not self._logged[1])
        if not is_new and self._now() < self._due:
            return
        self._logged, self._due = state, self._now() + LINE_INTERVAL_S
        if total:
            log.info("%s: %d of %d", stage, done, total)
        else:
            log.info("%s: Spark plans its tasks", stage)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console  # slow to import, and mostly not needed
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def show(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=max(total, 1))

        yield show
