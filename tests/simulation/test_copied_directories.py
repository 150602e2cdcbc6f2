"""Roots and logs that are copied, moved and brought back while the store lives, over crashes.

The log lies apart from its root. No acknowledged message of the original is lost when another
process opens a copy of the root in between, and no crash makes a store refuse its own log.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage import adoption
from mqstore.storage.errors import StorageError, StoreFailed, StoreLocked, StoreOfAnother
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.seams import Seams
from tests.long_runs import examples, few_first
from tests.simulation import PowerCut, SimulatedMachine
from tests.simulation.crashes import CRASHES, crashed
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.simulation.inode import Loss
from tests.simulation.scheduler import SimulatedScheduler
from tests.unit.storage.puts import put_message

pytestmark = pytest.mark.slow

ROOT: Final = Path("/disk1/store")
LOG: Final = Path("/disk2/log")
OPTIONS: Final = StoreOptions(
    format=StoreFormat.V4_9, boot_id="0" * 32, pid=1, store_path_commit_log=str(LOG)
)


def opened(seams: Seams, root: Path = ROOT, log: Path | None = LOG) -> MessageStore:
    options = replace(OPTIONS, store_path_commit_log=None if log is None else str(log))
    return MessageStore.open(root, CONFIG, seams, options)


def beside(machine: SimulatedMachine) -> Seams:
    """Seams of another process on the same machine."""
    scheduler = SimulatedScheduler(machine.random, machine.clock)
    return Seams(machine.disk, machine.clock, scheduler, machine.random)


def put(store: MessageStore, number: int) -> None:
    message = message_of(store, ("T", 0), NewMessage(number, 300, 0, None), 1)
    put_message(store, message, Durability.SYNC)


def numbers(store: MessageStore) -> list[int]:
    queue = store.queues.get("T", 0)
    if queue is None:
        return []
    entries = queue.entries(0, queue.max_index)
    records = [store.log.record_at(entry.physical_offset) for _, entry in entries]
    return [int((record.body or b"").partition(b":")[0]) for record in records]


class Copies:
    """A store whose root is copied again and again; copies are opened beside it and after it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        for directory in (ROOT, LOG):
            self.machine.disk.make_directories(directory.parent)
        self.promised: list[int] = []
        self.copies: list[Path] = []
        self.refused = self.apart = 0
        self.store: MessageStore | None = opened(self.machine.seams)
        self._put()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            match self.rng.randrange(8):
                case 0:
                    self._restart()
                case 1:
                    self._close()
                case 2:
                    self._copy()
                case 3 | 4:
                    self._open_copy()
                case 5:
                    self._adopt_apart()
                case _:
                    self._put()
        self._restart()

    def _put(self) -> None:
        if self.store is None:
            self.store = opened(self.machine.seams)
        put(self.store, len(self.promised))
        self.promised.append(len(self.promised))

    def _close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    def _restart(self) -> None:
        disk = crashed(self.machine.disk, self.rng.choice(CRASHES), self.rng)
        self.machine = self.machine.restart(disk)
        self.store = opened(self.machine.seams)
        assert numbers(self.store) == self.promised

    def _copy(self) -> None:
        self.copies.append(Path(f"/disk1/copy{len(self.copies)}"))
        keep_times = self.rng.random() < 0.5
        self.machine.disk.copy_tree(ROOT, self.copies[-1], keep_times=keep_times)

    def _open_copy(self) -> None:
        if not self.copies:
            return
        log = self.rng.choice([None, LOG])
        with pytest.raises((StoreOfAnother, StoreLocked)):
            opened(beside(self.machine), self.rng.choice(self.copies), log)
        with pytest.raises((StoreOfAnother, StoreLocked)):
            adoption.adopt(beside(self.machine), self.rng.choice(self.copies), LOG)
        self.refused += 1

    def _adopt_apart(self) -> None:
        """A copy of root and log, taken at rest, is a store of its own."""
        self._close()
        self._copy()
        root = self.copies.pop()
        log = Path(f"/disk3/log{self.apart}")
        self.machine.disk.copy_tree(LOG, log)
        adoption.adopt(beside(self.machine), root, log)
        with opened(beside(self.machine), root, None) as store:
            assert numbers(store) == self.promised
            put(store, 10**6)
        self.apart += 1


@pytest.mark.parametrize("seed", few_first([1, 2, 3], others=pytest.mark.nightly))
def test_nothing_promised_is_lost_while_copies_are_opened(seed: int) -> None:
    copies = Copies(seed)
    copies.live(100)
    assert copies.refused > 5
    assert copies.apart > 2


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_copy_of_a_root_takes_the_log_of_the_original(seed: int) -> None:
    Copies(seed).live(60)


@pytest.mark.parametrize("loss", few_first(CRASHES, 2, others=pytest.mark.nightly))
@pytest.mark.parametrize("openings", [0, 1, 2])
def test_no_crash_while_a_store_opens_makes_it_refuse_its_own_log(
    openings: int, loss: Loss | None
) -> None:
    def life(cut_at: int | None) -> tuple[SimulatedMachine, int, bool]:
        machine = SimulatedMachine(7)
        for directory in (ROOT, LOG):
            machine.disk.make_directories(directory.parent)
        for number in range(openings):
            with opened(machine.seams) as store:
                put(store, number)
        first = len(machine.disk.trace)
        if cut_at is not None:
            machine.disk.cut_at(cut_at)
        with suppress(PowerCut):
            opened(machine.seams)
            return machine, first, False
        return machine, first, True

    machine, first, _ = life(None)
    moments = [number for number in machine.disk.effects if number >= first]
    for number in moments:
        machine, _, was_cut = life(number)
        assert was_cut
        after = machine.restart(crashed(machine.disk, loss, random.Random(number)))
        for again in range(2):
            with opened(after.seams) as store:
                assert numbers(store)[:openings] == list(range(openings))
                put(store, 100 + again)


def test_a_writer_whose_lock_file_was_deleted_fails_and_lets_no_second_one_in() -> None:
    machine = SimulatedMachine(1)
    machine.disk.make_directories(ROOT)
    first = opened(machine.seams, log=None)
    put(first, 0)
    machine.disk.unlink(first.paths.lock)

    with pytest.raises(StoreLocked, match=r"mqstore/lock"):
        opened(beside(machine), log=None)
    machine.scheduler.run_for(2)

    assert isinstance(first.failure, StoreFailed)
    with pytest.raises(StorageError):
        put(first, 1)
    first.close()
    assert machine.disk.stat(first.paths.abort) is not None
    with opened(machine.restart(machine.disk.kill()).seams, log=None) as second:
        assert numbers(second) == [0]


def test_a_store_whose_lock_file_was_replaced_is_not_closed_cleanly_and_makes_no_segment() -> None:
    machine = SimulatedMachine(1)
    machine.disk.make_directories(ROOT)
    store = opened(machine.seams, log=None)
    put(store, 0)
    machine.disk.unlink(store.paths.lock)
    machine.disk.lock(store.paths.lock)

    with pytest.raises(StoreFailed, match="deleted or replaced"):
        store.log.files.create(10 * CONFIG.mapped_file_size_commit_log)
    with pytest.raises(StoreFailed, match="deleted or replaced"):
        store.close()
    assert machine.disk.stat(store.paths.abort) is not None
