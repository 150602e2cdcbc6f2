"""A script that is killed at its n-th line, for each n given: ``FIRST LAST SCRIPT ARGUMENTS…``.

Each time it runs in a process of its own, as it stands; lines count where its functions run, in
whatever thread. Exit code 0 when each was killed.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn


def _run_until(line: int, script: str) -> NoReturn:
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != script or frame.f_code.co_name == "<module>":
            return None
        if event == "line":
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    runpy.run_path(script, run_name="__main__")
    os._exit(1)


def main(first: int, last: int, script: str) -> int:
    """The exit code."""
    import mqstore.client  # noqa: F401 (once, and not in each process)

    for line in range(first, last + 1):
        pid = os.fork()
        if pid == 0:
            _run_until(line, script)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            return 1
    return 0


if __name__ == "__main__":
    (first, last), sys.argv = map(int, sys.argv[1:3]), sys.argv[3:]
    sys.exit(main(first, last, sys.argv[0]))
