"""store-writer on a disk whose syncs do what the file FAILING_DISK_MARKER says.

Without it they work; while it says ``stall`` they wait until it goes or changes; anything else is
an I/O error.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

marker = Path(os.environ["FAILING_DISK_MARKER"])
POLL_S = 0.005


def _mode() -> str | None:
    try:
        return marker.read_text()
    except FileNotFoundError:
        return None


def _failing(real: Callable[[int], None]) -> Callable[[int], None]:
    def sync(descriptor: int) -> None:
        while (mode := _mode()) == "stall":
            time.sleep(POLL_S)
        if mode is not None:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    return sync


os.fdatasync = _failing(os.fdatasync)  # type: ignore[assignment]  # by descriptor only
os.fsync = _failing(os.fsync)  # type: ignore[assignment]  # likewise
sys.argv = ["mqstore.writer"]

from mqstore.service.server import run  # noqa: E402 (after the disk is made to fail)
from mqstore.writer.__main__ import build  # noqa: E402

run(build, "store-writer", lambda settings: settings.writer_port)
