"""One mapped file with its positions and its holders.

Positions are relative to the file's first byte. The one thread that appends moves
``wrote_position`` after the bytes are in the page cache; any thread may read up to it (with a
buffer of the TransientStorePool it is RocketMQ's committedPosition: ``log.commit``). Only ``flush``
moves ``flushed_position``, after a successful sync. Holders delay removal (RocketMQ's
ReferenceResource); memory is safe without them, as a slice keeps its mapping alive.

A file at ``rest`` has no mapping, and gets one with the next use of ``view``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from mqstore.storage._kernel import FilePositions
from mqstore.storage.errors import RecordExpired, StoreFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.mapped.warm_up import WarmUp
from mqstore.storage.seams import FileSystem, MappedBytes
from mqstore.storage.system.sparse import SMALL_CHUNK, data_chunks

RESERVE_CHUNK_SIZE: Final = 256 << 10
"""Maximum bytes of disk blocks reserved at a time in files that are not reserved whole: a file
begins with one page, and each reservation doubles what it has."""
_NOTHING: Final = -1
"""A flushed position below all others."""


class _ViewAtRest:
    """``view`` of a file that has none, which hides this while the file is mapped."""

    def __get__(self, file: MappedFile, _: type[MappedFile]) -> memoryview:
        return file.map_again()[1]


class MappedFile(FilePositions):
    """A file of fixed size, mapped whole. Any number of readers and flushers, one appender."""

    view = _ViewAtRest()
    """The file's bytes; readable through this object, even after removal. Raises as
    ``map_again``."""

    def __init__(
        self,
        path: Path,
        mapping: MappedBytes,
        files: FileSystem,
        *,
        base_offset: int = 0,
        reserved: int = 0,
        writable: bool = True,
    ) -> None:
        """``reserved``: bytes from the start that are known to have disk blocks. ``writable``: as
        it is mapped."""
        self.path = path
        self.base_offset = base_offset
        self.size = mapping.size
        self.view = mapping.view
        self.wrote_position = 0
        self.flushed_position = 0
        self.populate_at = self.size
        """``wrote_position`` from which ``populate_ahead`` is worth a call."""
        self._mapping: MappedBytes | None = mapping
        """None at rest."""
        self._map_lock = Lock()
        self._place: tuple[int, tuple[int, int]] | None = None
        """Size and place of the file, noted at rest."""
        self._writable = writable
        self._files = files
        self._reserved = reserved
        self._populated = 0
        self._loaded = 0
        self._locked = False
        self._holders = 0
        self._holders_lock = Lock()
        self._removal_began: float | None = None
        self._removed = False
        self._closed = False
        self._sync_lock = Lock()
        self._sync_error: OSError | None = None

    @classmethod
    def create(
        cls,
        files: FileSystem,
        path: Path,
        size: int,
        *,
        staged: Path,
        base_offset: int = 0,
        reserve: int | None = None,
        is_derived: bool = False,
        is_durable: bool = True,
    ) -> MappedFile:
        """Create a zero-filled file, durable under its name at return if ``is_durable`` and not
        ``is_derived``.

        It is made at ``staged`` (same file system; an old file there is removed) and renamed.
        ``reserve`` bytes from its start get disk blocks, by default all. Raises OSError when there
        is no room, FileExistsError when ``path`` exists; nothing is left behind.
        """
        if files.stat(path) is not None:
            raise FileExistsError(f"{path} is there already")
        if files.stat(staged) is not None:
            files.unlink(staged)
        is_durable = is_durable and not is_derived
        files.create(staged, size, reserve=reserve, sync=is_durable)
        files.rename(staged, path)
        try:
            if is_durable:
                files.sync_directory(path.parent)
            mapping = files.map(path, writable=True, sparse=is_derived)
        except OSError:
            files.unlink(path)
            raise
        reserved = size if reserve is None else reserve
        return cls(path, mapping, files, base_offset=base_offset, reserved=reserved)

    @classmethod
    def open(
        cls,
        files: FileSystem,
        path: Path,
        *,
        base_offset: int = 0,
        writable: bool = True,
        is_derived: bool = False,
    ) -> MappedFile:
        """Map an existing file as wholly written and not known to be durable."""
        mapping = files.map(path, writable=writable, sparse=is_derived)
        file = cls(path, mapping, files, base_offset=base_offset, writable=writable)
        file.wrote_position = file.size
        return file

    def __repr__(self) -> str:
        return f"MappedFile({str(self.path)!r}, wrote {self.wrote_position} of {self.size})"

    @property
    def end_offset(self) -> int:
        """The logical offset after its last byte."""
        return self.base_offset + self.size

    @property
    def is_full(self) -> bool:
        """Whether all of its bytes are written."""
        return self.wrote_position == self.size

    @property
    def reserved(self) -> int:
        """Bytes from the start that are known to have disk blocks."""
        return self._reserved

    @property
    def is_locked(self) -> bool:
        """Whether the file was warmed up, so that its pages stay in memory until ``unlock``."""
        return self._locked

    @property
    def is_removed(self) -> bool:
        """Whether the file was unlinked."""
        return self._removed

    @property
    def is_available(self) -> bool:
        """Whether the file may get new holders; false from the first attempt to remove it."""
        return self._removal_began is None

    # reading

    def next_data(self, position: int) -> int | None:
        """The first byte at or after ``position`` that may be non-zero (``FileSystem``)."""
        return self._files.next_data(self.path, position)

    def slice(self, position: int, length: int) -> memoryview | None:
        """A read-only view of written bytes; None when they are not all written."""
        if position < 0 or length < 0 or position + length > self.wrote_position:
            return None
        return self.view[position : position + length].toreadonly()

    def acquire(self) -> bool:
        """Delay removal until ``release``; False when removal has begun."""
        with self._holders_lock:
            if self._removal_began is not None:
                return False
            self._holders += 1
            return True

    def release(self) -> None:
        """End one ``acquire``."""
        with self._holders_lock:
            if self._holders == 0:
                raise ValueError(f"{self.path} released more often than acquired")
            self._holders -= 1

    @contextmanager
    def hold(self) -> Iterator[MappedFile]:
        """Hold the file in a block; raises RecordExpired when removal has begun."""
        if not self.acquire():
            raise RecordExpired(f"{self.path.name} is being removed; its messages have expired")
        try:
            yield self
        finally:
            self.release()

    # writing

    def ensure_reserved(self, end: int) -> None:
        """Reserve disk blocks for everything below ``end``, before bytes are stored there.

        A store into a hole of a full disk kills the process (SIGBUS); this raises OSError (ENOSPC,
        EDQUOT) instead. It costs a comparison unless a new chunk is needed. Appender only.
        """
        if end > self._reserved:
            self._reserve(end)

    def _reserve(self, end: int) -> None:
        if end > self.size:
            raise ValueError(f"{self.path} has {self.size} bytes; {end} cannot be reserved")
        goal = min(self.size, _reservation(end))
        self._files.reserve(self.path, self._reserved, goal - self._reserved)
        self._reserved = goal

    def populate_ahead(self, window: int, load_window: int = 0, load_step: int = 0) -> None:
        """Fault in ``window`` bytes ahead of the write position, and load up to ``load_step`` of
        the ``load_window`` bytes ahead, without the GIL.

        All of them if the writer comes near the end of the loaded ones.
        """
        start = max(self._populated, self.wrote_position)
        end = min(self.wrote_position + window, self._reserved)
        if start < end:
            self._mapped().populate(start, end - start)
            self._populated = end
        self.populate_at = self.size if end == self._reserved else end - window // 2
        self._load_ahead(load_window, load_step)

    def _load_ahead(self, window: int, step: int) -> None:
        start = max(self._loaded, self._populated)
        end = min(self.wrote_position + window, self._reserved)
        is_late = 0 < self._loaded < self.wrote_position + step
        if not is_late:
            end = min(end, start + step)
        if start < end:
            self._mapped().load(start, end - start)
            self._loaded = end

    def warm_up(self, how: WarmUp) -> None:
        """Load every page of a new file into memory, to stay there. Raises OSError of a sync."""
        self._locked = True
        how.run(self._mapped())
        self._populated = self.size

    def unlock(self) -> None:
        """Unlock the pages of a file that was warmed up. Idempotent."""
        if self._locked:
            self._locked = False
            self._mapped().unlock()

    def append(self, data: memoryview) -> None:
        """Copy into the page cache at ``wrote_position``, and move it. Raises OSError."""
        self._mapped().write(self.wrote_position, data)
        self.wrote_position += len(data)

    def set_end(self, position: int) -> None:
        """Set the end of the written bytes, as recovery found it; never raises
        ``flushed_position``."""
        if not 0 <= position <= self.size:
            raise ValueError(f"{self.path} has {self.size} bytes; {position} is not inside")
        self.wrote_position = position
        self.flushed_position = min(self.flushed_position, position)

    def mark_dirty(self, position: int, length: int) -> None:
        """Make the next flush write a range that an earlier process may have failed to sync."""
        # A lost page may be a hole: a store to it on a full disk would kill the process.
        self.ensure_reserved(position + length)
        self._mapped().rewrite(position, length)
        self.flushed_position = min(self.flushed_position, position)

    def mark_rest_dirty(self, position: int) -> None:
        """Mark everything from a position on, except holes, as ``mark_dirty``."""
        for start, stop in data_chunks(position, self.size, self.next_data, SMALL_CHUNK):
            self.mark_dirty(start, stop - start)

    def force_sync(self) -> None:
        """Make the next flush sync the file, whatever its positions."""
        self.flushed_position = _NOTHING

    def mark_flushed(self, position: int) -> None:
        """Note that everything below ``position`` is known to be on disk."""
        self.flushed_position = min(position, self.wrote_position)

    def flush(self) -> int:
        """Sync the bytes written before the call; returns the flushed position. Thread-safe.

        Raises StoreFailed when the disk fails, then and at every later call, and moves nothing:
        after a failed sync the kernel marks the pages clean, so that a second one would prove
        nothing.
        """
        wrote = self.wrote_position
        with self._sync_lock:  # one at a time: only one caller of fdatasync gets an error
            if self._sync_error is not None:
                raise self._fail(self._sync_error)
            if wrote > self.flushed_position and not self._removed:
                self._sync()
                self.flushed_position = wrote
            return self.flushed_position

    def _sync(self) -> None:
        if self._closed:
            raise ValueError(f"{self.path} is closed with unflushed bytes; flush before closing")
        try:
            self._mapped().sync()
        except OSError as error:
            self._sync_error = error
            raise self._fail(error) from error

    def _fail(self, error: OSError) -> StoreFailed:
        return StoreFailed(
            f"sync of {self.path} failed ({error.strerror or error}); "
            "nothing after its flushed position is known to be on disk: replace or repair the disk"
        )

    # rest

    @property
    def is_mapped(self) -> bool:
        """Whether the file does not ``rest``."""
        return self._mapping is not None

    def rest(self) -> None:
        """Drop the mapping until the next use; slices that are held keep the previous mapping.

        For derived files, when nothing writes and everything is flushed.
        """
        with self._holders_lock, self._map_lock:
            mapping = self._mapping
            if mapping is not None and self.is_available and not self._closed:
                self._place = self._here()
                self._mapping = None
                del self.view
                mapping.unmap()

    def map_again(self) -> tuple[MappedBytes, memoryview]:
        """End the rest; returns the mapping and its view.

        Raises StoreFailed when the file was removed or replaced meanwhile, OSError.
        """
        with self._map_lock:
            mapping = self._mapping
            if mapping is None:
                if self._here() != self._place:
                    raise StoreFailed(
                        f"{self.path} was removed or replaced while the store is open; the next "
                        "opening makes its entries again"
                    )
                mapping = self._files.map(self.path, writable=self._writable, sparse=True)
                self.view = mapping.view
                self._mapping = mapping
            return mapping, self.view

    def _here(self) -> tuple[int, tuple[int, int]] | None:
        """Size and place of the file at the path."""
        found = self._files.stat(self.path)
        return None if found is None else (found.size, found.place)

    def _mapped(self) -> MappedBytes:
        mapping = self._mapping
        return self.map_again()[0] if mapping is None else mapping

    # removal

    def destroy(self, now: float, force_after_s: float) -> bool:
        """Unlink the file if it has no holders, or ``force_after_s`` after the first attempt.

        ``now`` is in monotonic seconds. False: try again later. The memory is freed with the last
        reference to this object and its slices. Raises OSError when the file cannot be unlinked.
        """
        with self._holders_lock:
            if self._removal_began is None:
                self._removal_began = now
            if self._holders > 0 and now - self._removal_began < force_after_s:
                return False
            if not self._removed:
                self._unlink()
        return True

    def _unlink(self) -> None:
        if self._files.stat(self.path) is not None:
            self._mapped()  # it cannot be mapped later
            self._files.unlink(self.path)
        self._removed = True
        self._unmap()

    def close(self) -> None:
        """Close the descriptor; the file stays. Idempotent; flush before."""
        self._closed = True
        self._unmap()

    def _unmap(self) -> None:
        self.unlock()
        if (mapping := self._mapping) is not None:
            mapping.unmap()


def _reservation(end: int) -> int:
    """The bytes from a file's start that are reserved when ``end`` of them are needed."""
    if end <= RESERVE_CHUNK_SIZE:
        return max(PAGE_SIZE, 1 << (end - 1).bit_length())
    return -(-end // RESERVE_CHUNK_SIZE) * RESERVE_CHUNK_SIZE
