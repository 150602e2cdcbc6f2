"""What the commands that look into a store directory share: lines, progress, how they end."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mqstore.service.process import raise_open_files_limit
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_REFUSED: Final = 2
PROGRESS_INTERVAL_S: Final = 0.2
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

Line = dict[str, Any]
Progress = Callable[[str, int, int], None]
"""Told a stage, how much of it is done, and of how much."""


def end_of(look: Callable[[], int], refuse: Callable[[str], None], *, unread: int) -> int:
    """The exit code of ``look``; ``unread`` when the reader of its lines went away before."""
    raise_open_files_limit()
    try:
        return look()
    except BrokenPipeError:
        # The reader has what it wanted. Nothing may be flushed to it at exit any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return unread
    except (StorageError, OSError, ValueError) as error:
        refuse(str(error))
        return EXIT_REFUSED


def print_line(line: Line) -> None:
    sys.stdout.buffer.write(_JSON.encode(line).encode("utf-8", "replace") + b"\n")


def print_refusal(why: str) -> None:
    print_line({"t": "refused", "why": why})


def index_sizes(hash_slots: int | None, index_num: int | None) -> StoreConfig:
    """RocketMQ's defaults but for what was given: these sizes cannot be found from the files."""
    given = {"max_hash_slot_num": hash_slots, "max_index_num": index_num}
    return StoreConfig.model_validate({k: v for k, v in given.items() if v is not None})


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """How far the work is, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console  # slow to import, and mostly not needed

    shown_at = 0.0
    with Console(stderr=True).status("opening") as status:

        def show(stage: str, done: int, total: int) -> None:
            nonlocal shown_at
            if time.monotonic() - shown_at >= PROGRESS_INTERVAL_S:
                shown_at = time.monotonic()
                status.update(f"{stage}: {100 * done // max(total, 1)} %")

        yield show
