"""Keeps pages in memory: warm-up of new segments, and the locks shared with the pool.

Source: MappedFile.warmMappedFile and LibC.mlock of 4.9.7 (DefaultMappedFile of 5.4.0).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.seams import MappedBytes

log = logging.getLogger(__name__)


class MemoryLocks:
    """Locks mappings if the system allows it, and logs the first rejection. Thread-safe."""

    def __init__(self) -> None:
        self._warned = False

    def lock(self, mapping: MappedBytes) -> None:
        """Keep a mapping in memory; a rejection costs only speed, so the store continues."""
        try:
            mapping.lock()
        except OSError as error:
            if not self._warned:
                self._warned = True
                log.warning(
                    "memory cannot be locked (%s); the store goes on without: raise RLIMIT_MEMLOCK "
                    "(ulimit -l) to the bytes of the log's segments and buffers",
                    error.strerror or error,
                )


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Brings a new segment into memory before its first put."""

    step: int
    """Bytes touched at a time; in sync-flush mode they are synced before the next."""
    sync: bool
    locks: MemoryLocks

    @classmethod
    def of(cls, config: StoreConfig, locks: MemoryLocks) -> WarmUp | None:
        """The warm-up that warmMapedFileEnable requests, or None."""
        if not config.warm_maped_file_enable:
            return None
        step = config.flush_least_pages_when_warm_maped_file * PAGE_SIZE
        return cls(step, config.flush_disk_type is FlushDiskType.SYNC, locks)

    def run(self, mapping: MappedBytes) -> None:
        """Touch every page without the GIL.

        The pages have disk blocks already. Raises OSError of a sync.
        """
        for start in range(0, mapping.size, self.step):
            mapping.populate(start, self.step)
            if self.sync:
                mapping.sync()
        self.locks.lock(mapping)
