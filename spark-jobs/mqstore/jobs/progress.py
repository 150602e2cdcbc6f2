"""How far a job is: a bar on a terminal, else a log line at each stage's begin and now and then."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LINE_INTERVAL_S: Final = 10.0
"""Between two log lines of one stage."""

Progress = Callable[[str, int, int], None]
"""Told a stage, how much of it is done, and of how much. Any thread, one at a time."""

log = logging.getLogger(__name__)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """What is told is shown on stderr, as stdout is for the job's summary."""
    if sys.stderr.isatty():
        with _bar() as shown:
            yield shown
    else:
        yield LoggedProgress()


class LoggedProgress:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._told = "", False
        self._due = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        told = stage, done >= total
        is_new = stage != self._told[0] or (told[1] and not self._told[1])
        if not is_new and self._now() < self._due:
            return
        self._told, self._due = told, self._now() + LINE_INTERVAL_S
        log.info("%s: %d of %d", stage, done, total)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console  # slow to import, and mostly not needed
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def show(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=max(total, 1))

        yield show
