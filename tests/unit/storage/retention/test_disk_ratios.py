from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mqstore.storage.config import StoreConfig
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.disk import DiskWatch
from tests.simulation import SimulatedClock, SimulatedDisk

MIB = 1 << 20
PATHS = StorePaths(Path("/store"))


class Filling:
    """A disk of 100 MiB that is as full as a test says."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(SimulatedClock(), capacity=100 * MIB)
        self.disk.make_directories(PATHS.root)
        self.watch = DiskWatch(self.disk, PATHS, StoreConfig())
        self._path = PATHS.root / "ballast"

    def fill(self, size: int) -> None:
        if self.disk.stat(self._path) is not None:
            self.disk.unlink(self._path)
        self.disk.create(self._path, size)


def test_puts_are_refused_above_the_last_ratio_until_at_most_the_second() -> None:
    filling = Filling()
    found = []
    for percent in (85, 90, 91, 86, 85, 90, 91, 100, 40):
        filling.fill(percent * MIB)
        found.append(filling.watch.measure().refuses)
    assert found == [False, False, True, True, False, False, True, True, False]


def test_one_page_more_is_above_a_ratio() -> None:
    filling = Filling()
    filling.fill(90 * MIB)
    assert not filling.watch.measure().is_above(90)
    filling.fill(90 * MIB + 4096)
    assert filling.watch.measure().is_above(90)


def test_the_refusal_has_the_numbers() -> None:
    filling = Filling()
    filling.fill(93 * MIB)
    refusal = filling.watch.refusal(filling.watch.measure())
    assert refusal.reason == "disk-full"
    assert "93.0 % full" in str(refusal)
    assert refusal.numbers == {
        "volume": "commitlog",
        "path": "/store/commitlog",
        "totalBytes": 100 * MIB,
        "usedBytes": 93 * MIB,
        "freeBytes": 7 * MIB,
        "usedPercent": 93.0,
        "refusedAbovePercent": 90,
        "acceptedAtPercent": 85,
    }


@pytest.mark.parametrize("percent", [50, 95])
def test_disks_that_cannot_be_measured_are_as_before(percent: int) -> None:
    filling = Filling()
    filling.fill(percent * MIB)
    before = filling.watch.measure()
    filling.disk.fail_next("usage", errno.EIO)
    assert filling.watch.measure() == before
