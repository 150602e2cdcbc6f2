"""The small state files over crashes: pauses, pins, the archive mark, findings of the scrub.

After any crash each file has its content from before or after the change that was in progress, and
only that from after it once the change was acknowledged.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.config import DamageRepair
from mqstore.storage.layout import BLOCK_SIZE, StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.metadata import sealed_json
from mqstore.storage.scrub.service import ScrubProgress
from tests.long_runs import examples, few_first
from tests.simulation import SimulatedMachine
from tests.simulation.crashes import CRASHES, crashed
from tests.simulation.disk import SimulatedDisk
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.simulation.inode import Loss
from tests.simulation.world import ROOT
from tests.unit.storage.puts import put_message

pytestmark = pytest.mark.slow

FAILING: Final = ("write", "rename", "unlink", "sync_directory")
SCRUBBING: Final = CONFIG.model_copy(
    update={"scrub_bytes_per_second": BLOCK_SIZE, "damage_repair": DamageRepair.MANUAL}
)
LEASE_S: Final = 10**9
FLAG_AT: Final = 16
PINS: Final = ("job", "backup")


def opened(machine: SimulatedMachine) -> MessageStore:
    machine.disk.make_directories(ROOT)
    options = StoreOptions(format=StoreFormat.V4_9, boot_id="0" * 32, pid=1)
    return MessageStore.open(ROOT, SCRUBBING, machine.seams, options)


class Words:
    """A store with pauses, pins and scrubs; now and then one of its bits changes."""

    def __init__(self, seed: int, examined: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.machine = SimulatedMachine(seed)
        self.store = opened(self.machine)
        self.number = self.states = self.findings = 0
        self.rotten: set[int] = set()
        self.pause: set[str | None] = {None}
        """Reasons that may be read back; one only unless a change was cut off."""
        self.pins: dict[str, set[int | None]] = {name: {None} for name in PINS}
        """Beginning of a pin in each state; None without the pin."""
        self.archive: set[int | None] = {None}
        """Up to where it may be archived, likewise."""
        self.scrubs = [self._scrub_file(self.machine.disk)]
        """Contents of the scrub's file, the latest last."""
        self.found: Exception | None = None
        """Kept here: the store takes what a crash point raises for a failing disk."""
        self.machine.disk.before_effect = self._crash_point

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            if self.found is not None:
                raise self.found
        self._restart(None)

    def _step(self) -> None:
        match self.rng.randrange(14):
            case 0:
                self._restart(self.rng.choice(CRASHES))
            case 1 | 2:
                self._say(self._pause)
            case 3:
                self._say(self._let_go)
            case 4 | 5:
                self._say(self._pin)
            case 6:
                self._say(self._unpin)
            case 7:
                self._rot()
            case 8:
                self._scrub()
            case 9:
                self._say(self._mark)
            case 10:
                self._say(self._end_archive)
            case _:
                self._put()

    # what is said

    def _say(self, change: Callable[[], None]) -> None:
        """A disk that refuses a change leaves it open which of the two holds."""
        if self.rng.random() < 0.3:
            self.machine.disk.fail_next(self.rng.choice(FAILING), errno.EIO)
        with suppress(OSError):
            change()
        self.machine.disk.forgive()

    def _pause(self) -> None:
        reason = f"reason {self.rng.randrange(10**6)}"
        self.pause.add(reason)
        self.store.write_pause.begin(reason)
        self.pause = {reason}

    def _let_go(self) -> None:
        self.pause.add(None)
        self.store.write_pause.end()
        self.pause = {None}

    def _pin(self) -> None:
        name, start = self.rng.choice(PINS), self.rng.randrange(self.store.log.max_offset + 1)
        self.pins[name].add(start)
        self.store.retention.put_pin(name, start, None, lease_s=LEASE_S, why="a test")
        self.pins[name] = {start}

    def _unpin(self) -> None:
        for pin in self.store.retention.pins():
            self.pins[pin.name].add(None)
            self.store.retention.remove_pin(pin.name)
            self.pins[pin.name] = {None}

    def _mark(self) -> None:
        retention = self.store.retention
        known = 0 if retention.archive is None else retention.archive.offset
        offset = self.rng.randint(known, self.store.log.flushed_offset)
        self.archive.add(offset)
        retention.advance_archive(offset, "a place")
        self.archive = {offset}

    def _end_archive(self) -> None:
        self.archive.add(None)
        self.store.retention.end_archive()
        self.archive = {None}

    # what is found

    def _rot(self) -> None:
        """A bit of an old segment changes on the disk, once its checksum is there too."""
        store, disk = self.store, self.machine.disk
        old = [file for file in store.log.files.files[:-1] if file.base_offset not in self.rotten]
        if not old or self.rng.random() < 0.5:
            return
        file = self.rng.choice(old)
        disk.before_effect = None
        store.flush.flush_all()
        file.view[FLAG_AT] ^= 0x40
        disk.sync_inode(str(file.path), disk._inode(str(file.path)))
        self.rotten.add(file.base_offset)
        disk.before_effect = self._crash_point

    def _scrub(self) -> None:
        scrub = self.store.scrub
        scrub.request()
        scrub.step(0.0)
        while scrub.progress.position is not None:
            scrub.step(0.0)
        self._note_scrub()
        self.findings += scrub.progress.finding_count

    def _put(self) -> None:
        for _ in range(self.rng.randint(1, 8)):
            self.number += 1
            new = NewMessage(self.number, 400, 0, None)
            message = message_of(self.store, ("T", self.number % 2), new, 1)
            put_message(self.store, message, self.rng.choice(list(Durability)))

    # crashes

    def _restart(self, loss: Loss | None) -> None:
        self._note_scrub()
        disk = crashed(self.machine.disk, loss, self.rng)
        self.machine = self.machine.restart(disk)
        self.store = opened(self.machine)
        self._hold(self.store)
        current = self.store.write_pause.current
        self.pause = {None if current is None else current.reason}
        found = {pin.name: pin.from_offset for pin in self.store.retention.pins()}
        self.pins = {name: {found.get(name)} for name in PINS}
        self.archive = {_archived(self.store)}
        self.scrubs = [self._scrub_file(disk)]
        disk.before_effect = self._crash_point

    def _crash_point(self) -> None:
        self._note_scrub()
        if self.found is not None or self.chance.random() >= self.examined:
            return
        disk = crashed(self.machine.disk, self.chance.choice(CRASHES), self.chance)
        self.states += 1
        try:
            machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
            self._hold(opened(machine))
        except Exception as error:
            self.found = error

    def _note_scrub(self) -> None:
        content = self._scrub_file(self.machine.disk)
        if content != self.scrubs[-1]:
            self.scrubs.append(content)

    def _scrub_file(self, disk: SimulatedDisk) -> bytes | None:
        path = self.store.paths.scrub
        return disk._inode(str(path)).seen if path in disk.paths() else None

    def _hold(self, store: MessageStore) -> None:
        """Nothing that was answered is forgotten, and nothing is read that was not requested."""
        current = store.write_pause.current
        assert (None if current is None else current.reason) in self.pause
        assert _archived(store) in self.archive
        pins = {pin.name: pin.from_offset for pin in store.retention.pins()}
        for name, allowed in self.pins.items():
            assert pins.get(name) in allowed, name
        assert {f.offset for f in store.scrub.progress.findings} <= {
            base + FLAG_AT for base in self.rotten
        }
        assert store.scrub.progress in [_progress(each) for each in self.scrubs[-2:]]


def _archived(store: MessageStore) -> int | None:
    mark = store.retention.archive
    return None if mark is None else mark.offset


def _progress(content: bytes | None) -> ScrubProgress:
    if content is None:
        return ScrubProgress()
    return ScrubProgress.model_validate_json(sealed_json.unseal(content))


@pytest.mark.parametrize("seed", few_first([1, 2, 3], others=pytest.mark.nightly))
def test_after_any_crash_each_file_says_what_was_answered(seed: int) -> None:
    words = Words(seed, examined=0.3)
    words.live(120)
    assert words.states > 30
    assert words.findings > 0


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_nothing_that_was_answered_is_forgotten(seed: int) -> None:
    Words(seed).live(150)


@pytest.mark.nightly
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_long_lives_nothing_that_was_answered_is_forgotten(seed: int) -> None:
    Words(seed, examined=0.05).live(300)
