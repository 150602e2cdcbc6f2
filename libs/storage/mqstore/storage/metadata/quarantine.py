"""``store/mqstore/quarantine/``: copies of all bytes that recovery cuts, zeroes or replaces.

Each entry is a directory with ``data`` (the bytes) and ``entry.json`` (their source and the
reason). An entry counts once its entry.json exists: the data was synced before. Keeping the same
bytes of the same place again, as after a crash during a recovery, finds the existing entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from crc32c import crc32c

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.seams import Clock, FileSystem
from mqstore.storage.system.open_map import open_map

MAGIC: Final = "mqstore-quarantine"
VERSION: Final = 1
_CHUNK: Final = 4 << 20
_DATA: Final = "data"
_ENTRY: Final = "entry.json"
TOMBSTONE_REASON: Final = "a tombstone"
"""Reason of damaged bytes that a tombstone replaced."""
RESTORED_REASON: Final = "restored bytes"
"""Reason of damaged bytes whose original bytes a repair restored."""


class QuarantineEntry(Value):
    """The description of one entry."""

    magic: Literal["mqstore-quarantine"] = MAGIC
    version: int = VERSION
    name: str
    source: str
    """The file that the bytes come from, relative to the store where it lies inside."""
    position: int
    """Position of the first byte in that file."""
    length: int
    crc32c: int | None
    """None for a file that was moved."""
    reason: str
    kept_at_ms: int


class Quarantine:
    """Copies bytes into the quarantine.

    Not thread-safe; used by the process that holds the lock.
    """

    def __init__(self, files: FileSystem, clock: Clock, directory: Path, root: Path) -> None:
        self._files = files
        self._clock = clock
        self._directory = directory
        self._root = root

    def keep_range(self, source: Path, position: int, length: int, reason: str) -> QuarantineEntry:
        """Copy a range of a file; durable at return. Raises OSError (ENOSPC included)."""
        checksum = self._checksum(source, position, length)
        entry = self._entry(source, position, length, checksum, reason)
        if (kept := self._find(entry.name)) is not None:
            return kept
        target = self._empty(entry.name) / _DATA
        self._files.copy(source, target, position, length)
        return self._seal(entry)

    def keep_file(self, source: Path, reason: str) -> QuarantineEntry:
        """Copy a whole file."""
        stat = self._files.stat(source)
        return self.keep_range(source, 0, 0 if stat is None else stat.size, reason)

    def move_file(self, source: Path, reason: str) -> QuarantineEntry:
        """Move a whole file of the store's own file system, without a copy."""
        stat = self._files.stat(source)
        length = 0 if stat is None else stat.size
        entry = self._entry(source, 0, length, None, reason)
        self._files.rename(source, self._empty(entry.name) / _DATA)
        self._files.sync_directory(source.parent)
        return self._seal(entry)

    def entries(self) -> list[QuarantineEntry]:
        """All complete entries, by name."""
        found = (self._find(name) for name in self._files.list(self._directory))
        return [entry for entry in found if entry is not None]

    def data(self, name: str) -> Path:
        """The path of the file with an entry's bytes."""
        return self._directory / name / _DATA

    def damage(self, entry: QuarantineEntry) -> str | None:
        """Why an entry's bytes are not those that were kept, or None."""
        path = self.data(entry.name)
        stat = self._files.stat(path)
        if stat is None or stat.size != entry.length:
            return f"{entry.length} bytes were kept, and they are not there"
        if entry.crc32c not in (None, self._checksum(path, 0, entry.length)):
            return "its bytes are not those that were kept"
        return None

    def release(self, name: str) -> None:
        """Remove an entry that is no longer needed (derived files that were made again)."""
        folder = self._directory / name
        # The description first: a crash in between then leaves no entry without its bytes.
        for file in sorted(self._files.list(folder), key=_ENTRY.__ne__):
            self._files.unlink(folder / file)
        self._files.remove_directory(folder)
        self._files.sync_directory(self._directory)

    def describe(self, name: str) -> None:
        """Write an entry's description again from the bytes that are there; an entry without bytes
        is removed."""
        stat, before = self._files.stat(self.data(name)), self._find(name)
        if stat is None:
            self.release(name)
            return
        source = "unknown" if before is None else before.source
        reason = "its description was lost" if before is None else before.reason
        if before is not None:
            reason += f"; its bytes changed in quarantine, {before.length} were kept"
        self._seal(
            QuarantineEntry(
                name=name,
                source=source,
                position=0 if before is None else before.position,
                length=stat.size,
                crc32c=self._checksum(self.data(name), 0, stat.size),
                reason=reason,
                kept_at_ms=self._clock.now_ms(),
            )
        )

    def _entry(
        self, source: Path, position: int, length: int, checksum: int | None, reason: str
    ) -> QuarantineEntry:
        relative = source.relative_to(self._root) if source.is_relative_to(self._root) else source
        # The time of the move distinguishes a moved file from an earlier one of its name.
        mark = self._clock.now_ms() if checksum is None else f"{checksum:08x}"
        flat = "-".join(part for part in relative.parts if part != "/")[-100:]
        return QuarantineEntry(
            name=f"{flat}-{position}-{length}-{mark}",
            source=str(relative),
            position=position,
            length=length,
            crc32c=checksum,
            reason=reason,
            kept_at_ms=self._clock.now_ms(),
        )

    def _checksum(self, source: Path, position: int, length: int) -> int:
        if length == 0:
            return 0
        with open_map(self._files, source) as mapped:
            checksum, end = 0, position + length
            for start in range(position, end, _CHUNK):
                checksum = crc32c(mapped.view[start : min(start + _CHUNK, end)], checksum)
            return checksum

    def _find(self, name: str) -> QuarantineEntry | None:
        path = self._directory / name / _ENTRY
        try:
            return sealed_json.read(self._files, path, QuarantineEntry)
        except (ValueError, FileNotFoundError):  # or the entry was removed meanwhile
            return None

    def _empty(self, name: str) -> Path:
        """Make a directory for a new entry, without the files of an interrupted attempt."""
        folder = self._directory / name
        self._files.make_directories(folder)
        for file in self._files.list(folder):
            self._files.unlink(folder / file)
        return folder

    def _seal(self, entry: QuarantineEntry) -> QuarantineEntry:
        folder = self._directory / entry.name
        self._files.sync_directory(folder)
        sealed_json.write(self._files, folder / _ENTRY, entry, in_lines=True)
        return entry
