"""Buffers that records are encoded into before they reach the page cache.

Source: TransientStorePool of 4.9.7 and 5.4.0. Called from ``log.commit``.
"""

from __future__ import annotations

from typing import Self

from mqstore.storage.config import StoreConfig
from mqstore.storage.mapped.warm_up import MemoryLocks
from mqstore.storage.seams import FileSystem


class TransientStorePool:
    """A fixed number of locked buffers, each of one segment's size. Any thread."""

    def __init__(self, files: FileSystem, buffer_size: int, count: int, locks: MemoryLocks) -> None:
        """OSError when there is no such memory; where it cannot be locked, it is used unlocked."""
        self._memory = [files.map_memory(buffer_size) for _ in range(count)]
        for mapping in self._memory:
            locks.lock(mapping)
        self._free = [mapping.view for mapping in self._memory]

    @classmethod
    def of(cls, config: StoreConfig, files: FileSystem, locks: MemoryLocks) -> Self | None:
        """The pool that a store's settings want; None where they want none. Raises OSError."""
        if not config.uses_transient_store_pool:
            return None
        size, count = config.mapped_file_size_commit_log, config.transient_store_pool_size
        return cls(files, size, count, locks)

    @property
    def available(self) -> int:
        """Buffers that nobody has borrowed."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """A buffer with whatever was last in it; None when all are out."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def give_back(self, buffer: memoryview) -> None:
        self._free.append(buffer)

    def close(self) -> None:
        """Unlock; the memory goes with its last user. Idempotent."""
        for mapping in self._memory:
            mapping.unlock()
            mapping.unmap()
        self._memory, self._free = [], []
