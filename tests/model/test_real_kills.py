"""The same operations on the real disk, by real processes that are killed -9 at any moment."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import pytest

from mqstore.storage.layout import StoreFormat
from mqstore.storage.system.threads import production_seams
from tests.model.killed_writer import Event, open_real, write
from tests.simulation.invariants import Checker
from tests.simulation.model import Model

ROUNDS: Final = 20
ROUNDS_NIGHTLY: Final = 200
EVENTS_MAX: Final = 400
"""Before the kill comes; some four an operation."""
NUMBERS_A_ROUND: Final = 1_000_000
WAIT_S: Final = 60


class Killed:
    """A store directory, the model of it, and one process after another."""

    def __init__(self, root: Path, seed: int) -> None:
        root.mkdir()
        self.root = root
        self.rng = random.Random(seed)
        self.format = self.rng.choice(list(StoreFormat))
        self.model = Model(self.format)
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.model.killed_writer"])

    def round(self, number: int) -> None:
        """Let a process write for a while, kill it, and look at what it left."""
        reader, writer = self._processes.Pipe(duplex=False)
        seed, first = self.rng.getrandbits(32), number * NUMBERS_A_ROUND
        arguments = (self.root, self.format, seed, first, writer)
        process = self._processes.Process(target=write, args=arguments, daemon=True)
        process.start()
        writer.close()
        self._follow(_events(reader, self.rng.randrange(EVENTS_MAX)))
        process.kill()
        self._follow(_events(reader, None))
        process.join(WAIT_S)
        reader.close()
        assert process.exitcode == -signal.SIGKILL, "the writer ended by itself"
        self._check(self.root.with_name(f"copy-{number}"))

    def _follow(self, events: Iterator[Event]) -> None:
        for name, arguments, named in events:
            getattr(self.model, name)(*arguments, **named)

    def _check(self, copy: Path) -> None:
        """On a copy, so that the next process finds what the killed one left."""
        acknowledged = self.model.end
        shutil.copytree(self.root, copy)
        seams = production_seams()
        with open_real(copy, self.format, seams) as store:
            self.model.follow(store.log)
            checker = Checker(store, self.model, seams, self.rng, torn=False)
            checker.check(acknowledged)
            checker.settle()
        shutil.rmtree(copy)


def _events(reader: Connection, most: int | None) -> Iterator[Event]:
    """The events that the process sends: so many, or all until its end."""
    count = 0
    while most is None or count < most:
        if not reader.poll(WAIT_S):
            raise TimeoutError("the writer says nothing")
        try:
            yield reader.recv()
        except (EOFError, OSError):
            return
        count += 1


def kill_again_and_again(root: Path, rounds: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    killed = Killed(root, seed)
    for number in range(rounds):
        killed.round(number)


@pytest.mark.slow
def test_what_real_processes_acknowledged_survives_their_kill(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "store", ROUNDS)


@pytest.mark.nightly
def test_what_real_processes_acknowledged_survives_many_kills(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "store", ROUNDS_NIGHTLY)
