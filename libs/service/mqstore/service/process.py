"""The process of a service: signals, the parent process, the garbage collector."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Final

from mqstore.service.configuration_error import ConfigurationError

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that begin an orderly shutdown."""
_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent_pid: int) -> None:
    """Request SIGTERM for the end of the parent, SIGKILL included. No effect except on Linux.

    Raises ConfigurationError when the parent has ended already.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            raise ConfigurationError(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        raise ConfigurationError(f"the parent process {parent_pid} has ended")


def name_process(name: str) -> None:
    """Set the name that ``top`` and ``pgrep`` show, of which Linux keeps 15 bytes. No effect except
    on Linux."""
    if sys.platform == "linux":
        Path("/proc/self/comm").write_text(name)


def freeze_heap() -> None:
    """Exclude all present objects from garbage collection.

    Call it after the start: a full collection of the start's objects, which stay, would hold up
    the event loop for 50 ms.
    """
    gc.collect()
    gc.freeze()
