"""store-writer that notes the syncs which its event loop makes, and delays syncs.

Each sync adds ``loop PATH`` or ``thread PATH`` to the file WATCHED_SYNCS; those of the event loop
after the service is ready are mistakes. While the file WATCHED_SYNCS.hold exists, syncs of paths
that contain its text wait.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

noted = Path(os.environ["WATCHED_SYNCS"])
held = noted.with_suffix(".hold")
POLL_S = 0.005


def _watched(real: Callable[[int], None]) -> Callable[[int], None]:
    def sync(descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        is_loop = threading.current_thread() is threading.main_thread()
        with noted.open("a") as file:
            file.write(f"{'loop' if is_loop else 'thread'} {path}\n")
        while held.exists() and held.read_text() in path:
            time.sleep(POLL_S)
        real(descriptor)

    return sync


os.fdatasync = _watched(os.fdatasync)  # type: ignore[assignment]  # by descriptor only
os.fsync = _watched(os.fsync)  # type: ignore[assignment]  # likewise
sys.argv = ["mqstore.writer"]

from mqstore.service.server import run  # noqa: E402 (after syncs are watched)
from mqstore.writer.__main__ import build  # noqa: E402

run(build, "store-writer", lambda settings: settings.writer_port)
