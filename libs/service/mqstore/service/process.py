"""What a process owes its parent, and what it takes from the system."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from typing import Final

from mqstore.service.configuration_error import ConfigurationError

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a service in order."""
_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent_pid: int) -> None:
    """Get SIGTERM when the parent ends, also by SIGKILL (Linux; elsewhere nothing happens).

    Raises ConfigurationError when the parent is gone already.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            raise ConfigurationError(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        raise ConfigurationError(f"the process {parent_pid} that started this one is gone")


def freeze_heap() -> None:
    """The garbage collector looks no more at what was made for the start, which stays: each of its
    full rounds would hold the event loop up for 50 ms."""
    gc.collect()
    gc.freeze()
