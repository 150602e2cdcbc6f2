"""RocketMQ's ``checkpoint``: the store times up to which log, queues and index are on disk.

4096 bytes; big-endian longs at 0 physicMsgTimestamp, 8 logicsMsgTimestamp, 16 indexMsgTimestamp
and, written by 5.x only, 24 masterFlushedOffset, 32 confirmPhyOffset. Source: StoreCheckpoint of
4.9.7 and 5.4.0.

The page is mapped and written in place, as in RocketMQ: all five values lie in one disk sector, so
that a torn write cannot mix them, unknown bytes stay as they are, and a flush in every group commit
makes no new file. Only brokers at rest read it.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Final

from mqstore.storage.errors import CheckpointError
from mqstore.storage.layout import CHECKPOINT_SIZE, StoreFormat
from mqstore.storage.seams import MappedBytes, Seams

_TIMES: Final = struct.Struct(">3q")
_OFFSETS: Final = struct.Struct(">2q")
_OFFSETS_AT: Final = _TIMES.size
CLOCK_TOLERANCE_MS: Final = 3_000
"""RocketMQ's recovery starts this much before the recorded time."""


class Checkpoint:
    """The values in memory; ``flush`` writes them to disk. Thread-safe.

    Times are milliseconds since the epoch, 0 for never; offsets are physical, in bytes.
    """

    def __init__(self, mapped: MappedBytes, store_format: StoreFormat) -> None:
        self._mapped = mapped
        self._writes_offsets = store_format is StoreFormat.V5_X
        self._lock = threading.Lock()
        self.physic_ms: int
        self.logics_ms: int
        self.index_ms: int
        self.physic_ms, self.logics_ms, self.index_ms = _TIMES.unpack_from(mapped.view, 0)
        self.master_flushed_offset: int
        self.confirm_offset: int
        self.master_flushed_offset, self.confirm_offset = (
            _OFFSETS.unpack_from(mapped.view, _OFFSETS_AT) if self._writes_offsets else (0, 0)
        )

    @classmethod
    def open(
        cls, path: Path, store_format: StoreFormat, seams: Seams, *, writable: bool = True
    ) -> Checkpoint:
        """Open the checkpoint, creating a zeroed one when there is none.

        Raises CheckpointError for a wrong size (the caller decides: recovery without one is
        correct, only longer) and FileNotFoundError when there is none and ``writable`` is false.
        """
        stat = seams.files.stat(path)
        if stat is None and writable:
            seams.files.make_directories(path.parent)
            seams.files.create(path, CHECKPOINT_SIZE)
            seams.files.sync_directory(path.parent)
        elif stat is None:
            raise FileNotFoundError(path)
        elif stat.size != CHECKPOINT_SIZE:
            raise CheckpointError(
                f"{path.name} is {stat.size} bytes long instead of {CHECKPOINT_SIZE}, "
                "remove it to recover without it"
            )
        elif writable:
            # A broker's file may be sparse: a store to it on a full disk would kill the process.
            seams.files.reserve(path, 0, CHECKPOINT_SIZE)
        return cls(seams.files.map(path, writable=writable), store_format)

    @property
    def min_ms(self) -> int:
        """The store time before which log and queues are certainly on disk."""
        return max(0, min(self.physic_ms, self.logics_ms) - CLOCK_TOLERANCE_MS)

    def set_physic_ms(self, store_timestamp_ms: int) -> None:
        """Note that records up to this store time are on disk; ``flush`` makes it durable."""
        self.physic_ms = store_timestamp_ms

    def flush(self) -> None:
        """Write the values and sync the page. Raises OSError when the disk rejects the write."""
        with self._lock:
            view = self._mapped.view
            _TIMES.pack_into(view, 0, self.physic_ms, self.logics_ms, self.index_ms)
            if self._writes_offsets:
                offsets = self.master_flushed_offset, self.confirm_offset
                _OFFSETS.pack_into(view, _OFFSETS_AT, *offsets)
            self._mapped.sync()

    def close(self) -> None:
        """Unmap the file."""
        self._mapped.unmap()
