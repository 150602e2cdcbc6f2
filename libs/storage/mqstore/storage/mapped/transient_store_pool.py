"""Buffers into which records are encoded before they reach the page cache.

Source: TransientStorePool of 4.9.7 and 5.4.0. Called from ``log.commit``.
"""

from __future__ import annotations

from typing import Self

from mqstore.storage.config import StoreConfig
from mqstore.storage.mapped.warm_up import MemoryLocks
from mqstore.storage.seams import FileSystem


class TransientStorePool:
    """A fixed number of locked buffers, each of one segment's size. Thread-safe."""

    def __init__(self, files: FileSystem, buffer_size: int, count: int, locks: MemoryLocks) -> None:
        """Raises OSError when there is no memory; buffers that cannot be locked are used
        unlocked."""
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
        """Number of free buffers."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Take a buffer, which still has its last content; None when all are in use."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer."""
        self._free.append(buffer)

    def close(self) -> None:
        """Unlock the buffers; their memory is freed with the last reference. Idempotent."""
        for mapping in self._memory:
            mapping.unlock()
            mapping.unmap()
        self._memory, self._free = [], []
