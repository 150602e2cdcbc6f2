"""Progress display of a command on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PROGRESS_INTERVAL_S: Final = 0.2
LINE_INTERVAL_S: Final = 10.0
"""Between two lines of a log."""

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the amount done and the total."""


@contextmanager
def show_progress(*, in_lines: bool = False) -> Iterator[Progress]:
    """Show progress on stderr if it is a terminal; yields the function that updates it.

    With ``in_lines`` a log gets a line from time to time instead.
    """
    if not sys.stderr.isatty():
        yield _line_printer() if in_lines else lambda stage, done, total: None
        return
    from rich.console import Console  # slow to import, and mostly not needed

    shown_at = 0.0
    with Console(stderr=True).status("opening") as status:

        def show(stage: str, done: int, total: int) -> None:
            """Update the line, at most once each PROGRESS_INTERVAL_S."""
            nonlocal shown_at
            if time.monotonic() - shown_at >= PROGRESS_INTERVAL_S:
                shown_at = time.monotonic()
                status.update(f"{stage}: {100 * done // max(total, 1)} %")

        yield show


def _line_printer() -> Progress:
    printed_at = time.monotonic()

    def print_line(stage: str, done: int, total: int) -> None:
        """Print a line, at most once each LINE_INTERVAL_S."""
        nonlocal printed_at
        if time.monotonic() - printed_at >= LINE_INTERVAL_S:
            printed_at = time.monotonic()
            print(f"{stage}: {100 * done // max(total, 1)} %", file=sys.stderr, flush=True)

    return print_line
