"""A lock of a file of the simulated disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.inode import Inode

if TYPE_CHECKING:
    from tests.simulation.disk import SimulatedDisk


class SimulatedLock:
    """A lock of a file, whatever its present name."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def release(self) -> None:
        self._disk.locks.discard(self._inode)

    def is_in_place(self) -> bool:
        return self._disk.holds(self._path, self._inode)
