"""Maintains the log's block checksums: each block is covered after it was synced.

The thread that synced the log calls ``cover_synced``: the bytes are still in the processor's cache,
and each is read once. A service covers older bytes, as in a store that a broker left: slowly, and
not before the store is ready. If a side file cannot be created, its segment has no checksums.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final

from mqstore.storage._kernel import cover_blocks
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.seams import MappedBytes

CHUNK: Final = 16 << 20
"""Bytes that one step of the service covers."""
PAUSE_S: Final = 0.25
"""Pause after a step: the service reads at most 64 MiB a second from the disk."""

log = logging.getLogger(__name__)


class BlockCover:
    """Writes the side files of one open store. One thread calls ``cover_synced`` at a time."""

    name = "block-checksums"

    def __init__(self, files: MappedFileQueue, blocks: BlockFiles) -> None:
        """``files`` are recovered, and durable up to their end."""
        self._files = files
        self._blocks = blocks
        self._position = _block_start(files)
        """All bytes from ``_old_end`` to here are covered, except where a side file is missing."""
        self._old = files.min_offset
        self._old_end = self._position
        self._base = -1
        self._entries: MappedBytes | None = None
        """The entries of the segment at ``_base``; None without a side file."""
        self._covering = Lock()

    def cover_synced(self, end: int) -> None:
        """Cover the log up to ``end``, which is durable."""
        if end <= self._position:
            return
        with self._covering:
            self._cover_up_to(end)

    def _cover_up_to(self, end: int) -> None:
        for file in self._files.files_from(self._position):
            start = max(self._position, file.base_offset) - file.base_offset
            stop = min(end - file.base_offset, file.size)
            entries = self._entries_of(file) if start < stop else None
            if entries is not None:
                cover_blocks(file.view, entries.view, file.base_offset, start, stop)
        self._position = end

    def step(self, now: float) -> float:
        """Cover a chunk of the bytes that were there when the store was opened."""
        with self._covering:
            return self._step(now)

    @contextmanager
    def pause_for_repair(self, ranges: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Pause covering while the bytes of these ranges change, and cover them again afterwards.

        A range is (first physical offset, end); the changed bytes are durable by the end of the
        block.
        """
        with self._covering:
            yield
            for start, stop in ranges:
                self._recompute(start, stop)

    def _recompute(self, start: int, stop: int) -> None:
        file = self._files.find(start)
        if file is None:
            return
        first = (start - file.base_offset) // BLOCK_SIZE * BLOCK_SIZE
        last = -(-(stop - file.base_offset) // BLOCK_SIZE) * BLOCK_SIZE
        end = min(last, file.size, self._position - file.base_offset)
        if first < end:
            self._cover_old(file, first, end)

    def _step(self, now: float) -> float:
        file = next(iter(self._files.files_from(self._old)), None)
        if file is None or self._old >= self._old_end:
            return math.inf
        self._old = max(self._old, file.base_offset)
        start = self._old - file.base_offset
        stop = min(start + CHUNK, file.size, self._old_end - file.base_offset)
        added = self._cover_old(file, start, stop) if start < stop else 0
        self._old = file.end_offset if stop == file.size else file.base_offset + stop
        return now + PAUSE_S if added else now

    def close(self) -> None:
        """Sync the newest entries. Raises OSError."""
        if self._entries is not None:
            self._entries.sync()
            self._entries.unmap()
            self._entries = None

    def _cover_old(self, file: MappedFile, start: int, stop: int) -> int:
        entries = self._open(file)
        if entries is None:
            return 0
        added = cover_blocks(file.view, entries.view, file.base_offset, start, stop)
        entries.unmap()
        return added

    def _entries_of(self, file: MappedFile) -> MappedBytes | None:
        if file.base_offset != self._base:
            if self._entries is not None:
                self._entries.unmap()
            self._base, self._entries = file.base_offset, self._open(file)
        return self._entries

    def _open(self, file: MappedFile) -> MappedBytes | None:
        if file.is_removed:
            return None
        try:
            return self._blocks.writable(file.base_offset)
        except OSError as error:
            log.warning("segment %s gets no block checksums: %s", file.path.name, error)
            return None


def _block_start(files: MappedFileQueue) -> int:
    """The start of the block that holds the end of the durable bytes."""
    last = files.last
    if last is None:
        return 0
    return last.base_offset + last.flushed_position // BLOCK_SIZE * BLOCK_SIZE
