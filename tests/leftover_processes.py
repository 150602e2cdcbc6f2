"""Ends what tests started when their run ends, however it ends.

The process that runs pytest puts a mark into its environment, which every process inherits that it
or an xdist worker starts. A watcher, a process in a session of its own, waits until pytest's end
closes a pipe (SIGKILL closes it, too), and kills the processes with that mark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

MARK = "TESTS_STARTED_BY"
"""Environment variable: identifies a run of pytest."""


def watch() -> None:
    """Start the watcher of this run. Does nothing within a run that has one (xdist workers)."""
    if MARK in os.environ or not Path("/proc/self/environ").exists():
        return
    mark = str(uuid.uuid4())
    # Kept open until this process ends; Popen has no reference to be finalized.
    reading, _ = os.pipe()
    subprocess.Popen(
        [sys.executable, "-S", __file__, mark],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).returncode = 0  # it outlives us: no warning about that
    os.close(reading)
    os.environ[MARK] = mark


def restore_interrupts() -> None:
    """Let processes that are started from here handle SIGINT by default, as from a terminal.

    Shells start background jobs, and nohup its command, with SIGINT ignored, which is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def marked(mark: str) -> list[int]:
    """Ids of the processes with the mark in the environment that they were started with."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            environment = (process / "environ").read_bytes()
        except OSError:  # it ended, or belongs to another user
            continue
        if entry in environment.split(b"\0"):
            found.append(int(process.name))
    return found


def kill_marked(mark: str) -> None:
    """Kill the marked processes, and those that they start meanwhile."""
    while pids := marked(mark):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


if __name__ == "__main__":
    os.read(0, 1)
    kill_marked(sys.argv[1])
