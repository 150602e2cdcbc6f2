"""Thread that lets a candidate renew its lease, or wait until that of another one expires."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mqstore.storage.replication import Candidate, ElectionError

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Return monotonic seconds, of times at which the machine is suspended too where the system
    counts them."""
    return time.clock_gettime(_CLOCK)


class ElectionThread:
    """Steps a candidate until ``stop``."""

    def __init__(self, candidate: Candidate, on_step: Callable[[], object]) -> None:
        """``on_step`` is called by the thread after each step."""
        self._candidate = candidate
        self._on_step = on_step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and release the lease. Blocks for some seconds at most."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(ElectionError):  # the lease then expires
            self._candidate.release()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            pause_s = self._candidate.step()
            self._on_step()
