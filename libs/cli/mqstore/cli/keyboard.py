"""Keys and size changes of a terminal, for a command that fills the screen."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

RESIZED: Final = "resized"
"""The result of ``Keyboard.wait`` after a change of the terminal's size."""


class Keyboard:
    """Waits for keys and changes of size. Used by the main thread only."""

    def __init__(self, keys_fd: int | None, wake_fd: int) -> None:
        self._keys_fd, self._wake_fd = keys_fd, wake_fd

    def wait(self, seconds: float) -> str | None:
        """Wait for a key, returned in lower case, or RESIZED; None: the time is over."""
        fds = [self._wake_fd] if self._keys_fd is None else [self._wake_fd, self._keys_fd]
        ready, _, _ = select.select(fds, [], [], max(0.0, seconds))
        if self._wake_fd in ready:
            os.read(self._wake_fd, 4096)
            return RESIZED
        if not ready:
            return None
        assert self._keys_fd is not None
        read = os.read(self._keys_fd, 1)
        if not read:  # the terminal is gone
            self._keys_fd = None
        return read.decode("ascii", "replace").lower()

    def presses(self, seconds: float) -> Iterator[str]:
        """Yield keys and RESIZED until the time is over."""
        deadline = time.monotonic() + seconds
        while (key := self.wait(deadline - time.monotonic())) is not None:
            yield key


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys one by one, without their echo; restores the terminal at the end.

    Without a terminal as stdin there are no keys.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # A handler in Python would not run while select waits that began just after the signal.
    wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = signal.signal(signal.SIGWINCH, _do_nothing)
    fd = sys.stdin.fileno() if sys.stdin.isatty() else None
    modes = None if fd is None else termios.tcgetattr(fd)
    try:
        if fd is not None:
            tty.setcbreak(fd)
        yield Keyboard(fd, reading)
    finally:
        if fd is not None and modes is not None:
            termios.tcsetattr(fd, termios.TCSADRAIN, modes)
        signal.signal(signal.SIGWINCH, before)
        signal.set_wakeup_fd(wakeup_before)
        os.close(reading)
        os.close(writing)


def _do_nothing(number: int, frame: Any) -> None:
    """Handle a signal that wakes the wait: without a handler it would be ignored."""
