"""The real file system with a gate before each fdatasync: tests hold syncs up, or fail them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from mqstore.storage.seams import MappedBytes, Seams
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams

WAIT_S = 30.0
"""How long a test waits for an event that must come."""


class Gate:
    """A gate that every sync passes: open, closed, or broken."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        """Names of the files, in the order of their syncs."""
        self.error: OSError | None = None
        self.arrived = threading.Semaphore(0)
        """Released once for each sync that came to the gate."""
        self._open = threading.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self, name: str) -> None:
        self.arrived.release()
        assert self._open.wait(WAIT_S), "the gate was not opened"
        if self.error is not None:
            raise self.error
        self.synced.append(name)


class GatedMapping:
    def __init__(self, mapping: MappedBytes, name: str, gate: Gate) -> None:
        self._mapping = mapping
        self._name = name
        self._gate = gate

    @property
    def view(self) -> memoryview:
        return self._mapping.view

    @property
    def size(self) -> int:
        return self._mapping.size

    def rewrite(self, offset: int, length: int) -> None:
        self._mapping.rewrite(offset, length)

    def sync(self) -> None:
        self._gate.pass_through(self._name)
        self._mapping.sync()

    def write(self, offset: int, data: memoryview) -> None:
        self._mapping.write(offset, data)

    def populate(self, offset: int, length: int) -> None:
        self._mapping.populate(offset, length)

    def load(self, offset: int, length: int) -> None:
        self._mapping.load(offset, length)

    def lock(self) -> None:
        self._mapping.lock()

    def unlock(self) -> None:
        self._mapping.unlock()

    def unmap(self) -> None:
        self._mapping.unmap()


class GatedFiles(PosixFileSystem):
    def __init__(self) -> None:
        self.gate = Gate()

    def map(self, path: Path, *, writable: bool, sparse: bool = False) -> MappedBytes:
        return GatedMapping(
            super().map(path, writable=writable, sparse=sparse), path.name, self.gate
        )


def gated_seams() -> tuple[Seams, Gate]:
    files = GatedFiles()
    return replace(production_seams(), files=files), files.gate


class Marks:
    """The watermarks as they were published."""

    def __init__(self) -> None:
        self.min: list[int] = []
        self.max: list[int] = []
        self.flushed: list[int] = []
        self.expired: list[int] = []

    def set_min(self, offset: int) -> None:
        self.min.append(offset)

    def note_expiry(self, offset: int) -> None:
        self.expired.append(offset)

    def set_max(self, offset: int) -> None:
        self.max.append(offset)

    def set_flushed(self, offset: int) -> None:
        self.flushed.append(offset)
