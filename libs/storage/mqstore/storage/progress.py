"""The progress of work on a whole store, for the caller that shows it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the stage, the amount done, and the total."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""
