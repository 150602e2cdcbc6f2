"""What a process owes its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from mqstore.service.refusal import Refused

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Get SIGTERM when the parent ends, also by SIGKILL (Linux; elsewhere nothing happens).

    Raises Refused when the parent is gone already.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            raise Refused(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        raise Refused(f"the process {parent_pid} that started this one is gone")
