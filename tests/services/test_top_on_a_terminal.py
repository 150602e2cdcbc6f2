"""``mqstore top`` on a pseudo-terminal: drawing, keys, a resize, no service."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from mqstore.client import NewMessage
from tests.services.service_processes import Run, environment, running

PATIENCE_S = 120.0
"""From a change until a test gives up waiting for the screen; less than pytest's own limit."""
SIZE = (24, 100)
OF_A_TERMINAL = {"TERM": "xterm-256color", "LINES": "24", "COLUMNS": "80"}
"""Some shells, and the workers of pytest-xdist, export a size that is not the terminal's."""


class Terminal:
    """A terminal of ``pyte`` that a process has as its own."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self._fd, self._process = fd, process
        self.screen = pyte.Screen(SIZE[1], SIZE[0])
        self._stream = pyte.ByteStream(self.screen)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def shows(self, holds: Callable[[str], bool]) -> str:
        """Draw what the process prints until the screen is so; returns its text."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(self.text):
            self._stream.feed(self._read(deadline))
        return self.text

    def press(self, key: str) -> None:
        os.write(self._fd, key.encode())

    def resize(self, rows: int, columns: int) -> None:
        set_size(self._fd, rows, columns)
        self.screen.resize(rows, columns)
        self._process.send_signal(signal.SIGWINCH)

    def ended(self) -> int:
        """Read the rest and return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        with contextlib.suppress(OSError):  # the process has closed its side
            while self._read(deadline):
                pass
        return self._process.wait(PATIENCE_S)

    def _read(self, deadline: float) -> bytes:
        """Read what the process prints next; fails with the screen when nothing comes in time."""
        ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"the screen after {PATIENCE_S} s:\n{self.text}"
        return os.read(self._fd, 65536)


def set_size(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextlib.contextmanager
def top(system: Run, home: Path, *options: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    set_size(ours, *SIZE)
    urls = ("--writer-url", system.writer_url, "--query-url", system.query_url)
    process = subprocess.Popen(
        [sys.executable, "-m", "mqstore.cli.main", "top", *urls, *options],
        env={**environment(), **OF_A_TERMINAL, "XDG_CONFIG_HOME": str(home)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Services with two groups: ``late`` has the larger lag, ``early`` comes first by name."""
    with running(tmp_path_factory.mktemp("top") / "store") as run:
        with run.client() as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", [NewMessage(body=str(n)) for n in range(9)])
            client.commit("late", "orders", {0: 1})
            client.commit("early", "orders", {0: 7})
        yield run


def order_of(text: str) -> list[str]:
    """The groups in the order of their rows."""
    words = [line.split() for line in text.splitlines()]
    return [line[0] for line in words if line and line[0] in ("late", "early")]


def test_the_screen_shows_the_store_and_the_groups_and_obeys_keys(
    system: Run, tmp_path: Path
) -> None:
    with top(system, tmp_path, "--interval", "60") as terminal:
        text = terminal.shows(lambda shown: "q: quit" in shown)
        assert text.startswith("shard 0 ready   log ")
        assert "GROUP" in text and "OLDEST" in text
        assert order_of(text) == ["late", "early"]
        terminal.press("g")
        terminal.shows(lambda shown: order_of(shown) == ["early", "late"])
        terminal.press("l")
        terminal.shows(lambda shown: order_of(shown) == ["late", "early"])
        terminal.press("q")
        assert terminal.ended() == 0


def test_a_resized_screen_is_drawn_at_once(system: Run, tmp_path: Path) -> None:
    with top(system, tmp_path, "--interval", "60") as terminal:
        terminal.shows(lambda shown: "q: quit" in shown)
        terminal.resize(20, 60)
        terminal.screen.reset()
        terminal.shows(lambda shown: "q: quit" in shown)
        assert order_of(terminal.text) == ["late", "early"]
        terminal.press("Q")
        assert terminal.ended() == 0


def test_a_screen_too_small_for_all_rows_has_the_keys_in_its_last_line(
    system: Run, tmp_path: Path
) -> None:
    with top(system, tmp_path, "--interval", "60") as terminal:
        terminal.shows(lambda shown: "q: quit" in shown)
        terminal.resize(6, 60)
        terminal.screen.reset()
        text = terminal.shows(lambda shown: "q: quit" in shown)
        assert text.startswith("shard 0 ready")
        assert order_of(text) == ["late"]
        assert text.splitlines()[-1].startswith("q: quit")


def test_without_a_first_reply_there_is_no_screen(tmp_path: Path) -> None:
    nothing = Run(None, "http://127.0.0.1:9", "http://127.0.0.1:9", "", "")  # type: ignore[arg-type]
    with top(nothing, tmp_path) as terminal:
        assert terminal.ended() == 3
