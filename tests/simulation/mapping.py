"""Maps of files of the simulated disk, or of memory without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.inode import Inode

if TYPE_CHECKING:
    from tests.simulation.disk import SimulatedDisk


class SimulatedMapping:
    """``seams.MappedBytes``."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode, *, writable: bool) -> None:
        self.size = inode.size
        view = inode.map()
        self.view = view if writable else view.toreadonly()
        self._disk = disk
        self._path = path
        self._inode: Inode | None = inode if writable else None

    def sync(self) -> None:
        if self._inode is not None:
            self._disk.sync_inode(self._path, self._inode)

    def rewrite(self, offset: int, length: int) -> None:
        if self._inode is not None:
            self._disk.rewrite(self._inode, offset, length)

    def write(self, offset: int, data: memoryview) -> None:
        if self._inode is not None:
            self._disk.write_through(self._path, self._inode, offset, data)

    def populate(self, offset: int, length: int) -> None:
        pass

    def load(self, offset: int, length: int) -> None:
        pass

    def lock(self) -> None:
        pass

    def unlock(self) -> None:
        pass

    def unmap(self) -> None:
        inode, self._inode = self._inode, None
        if inode is not None:
            self._disk.unmapped(inode)


class SimulatedMemory:
    """``seams.MappedBytes`` of no file."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.view = memoryview(bytearray(size))

    def sync(self) -> None:
        pass

    def rewrite(self, offset: int, length: int) -> None:
        pass

    def write(self, offset: int, data: memoryview) -> None:
        self.view[offset : offset + len(data)] = data

    def populate(self, offset: int, length: int) -> None:
        pass

    def load(self, offset: int, length: int) -> None:
        pass

    def lock(self) -> None:
        pass

    def unlock(self) -> None:
        pass

    def unmap(self) -> None:
        pass
