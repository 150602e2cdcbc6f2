"""Progress of long work on stderr: a bar on a terminal, else a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LINE_INTERVAL_S: Final = 10.0
"""Seconds between two lines; work that ends before the first prints none."""

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the amount done and the total."""


@contextmanager
def show_progress(*, prints: bool = False) -> Iterator[Progress]:
    """Show the progress of some work; yields the function that updates it.

    ``prints``: the work writes to stdout all the time, which on a terminal is its progress.
    """
    if not sys.stderr.isatty():
        yield line_printer()
    elif prints and sys.stdout.isatty():
        yield lambda stage, done, total: None
    else:
        with _bar() as bar:
            yield bar_updater(bar)


def line_printer(clock: Callable[[], float] = time.monotonic) -> Progress:
    """A function that prints a line at most once each LINE_INTERVAL_S."""
    printed_at = clock()

    def print_line(stage: str, done: int, total: int) -> None:
        """Print how much of a stage is done."""
        nonlocal printed_at
        now = clock()
        if now - printed_at >= LINE_INTERVAL_S:
            printed_at = now
            print(f"mqstore: {stage}: {_percent(done, total)} %", file=sys.stderr, flush=True)

    return print_line


def bar_updater(bar: Bar) -> Progress:
    """A function that moves a bar; each stage begins at zero."""
    task = bar.add_task("opening", total=None)
    stage_shown = "opening"

    def move(stage: str, done: int, total: int) -> None:
        """Show how much of a stage is done."""
        nonlocal stage_shown
        if stage != stage_shown:
            stage_shown = stage
            bar.reset(task, description=stage)
        bar.update(task, completed=done, total=max(1, total))

    return move


def _bar() -> Bar:
    from rich.console import Console  # slow to import, and needed on a terminal only
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # a pipe gets what the command prints
        redirect_stderr=True,
    )


def _percent(done: int, total: int) -> int:
    return 100 * done // max(total, 1)
