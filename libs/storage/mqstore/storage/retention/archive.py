"""The archive mark: the offset up to which the log is archived (``store/mqstore/archive.json``).

The archive job advances the mark. From its first mark on, retention keeps what is not archived, up
to keepDiskCeilingRatio, until the archive is ended. The file is sealed by a checksum.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mqstore.storage.errors import ArchiveRefused
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.holds import Hold
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import remove_file

log = logging.getLogger(__name__)


class ArchiveMark(StrictValue):
    """The progress of the archive. Offsets are physical, times milliseconds since the epoch."""

    offset: Annotated[int, Field(ge=0)]
    """Physical offset; everything below is archived, or was gone."""
    place: str
    """Place of the archive, as its job says."""
    since_ms: int
    """Time when retention began to wait for the archive."""
    marked_ms: int

    @property
    def hold(self) -> Hold:
        """The hold on the part of the log that is not archived."""
        return Hold(
            kind="archive",
            name=self.place,
            from_offset=self.offset,
            to_offset=None,
            until_ms=None,
        )


def read(files: FileSystem, path: Path) -> ArchiveMark | None:
    """Read the mark from a file; None without one. Raises ValueError, OSError."""
    return sealed_json.read(files, path, ArchiveMark)


class Archive:
    """The archive mark of one store.

    Any thread may read it, one at a time may change it; a change is durable when its call returns.
    """

    def __init__(self, paths: StorePaths, seams: Seams, max_offset: int) -> None:
        """Load the mark; a file that cannot be read is set aside, and retention then waits for no
        archive.

        When the log was cut before the mark, the mark is moved back to its end: new records there
        are not archived. Raises OSError.
        """
        self._path = paths.archive
        self._seams = seams
        self.mark: ArchiveMark | None = self._load(paths)
        if self.mark is not None and self.mark.offset > max_offset:
            self._save(self.mark.model_copy(update={"offset": max_offset}))

    def advance(self, offset: int, place: str, *, max_offset: int) -> ArchiveMark:
        """Set the mark; the same offset again changes only the time.

        ``max_offset`` is the durable end of the log. Raises ArchiveRefused (for an offset beyond it
        or below the mark, or of another archive), OSError.
        """
        now_ms, known = self._seams.clock.now_ms(), self.mark
        if offset > max_offset:
            raise ArchiveRefused(
                f"the log is on disk up to {max_offset}: {offset} is not there yet"
            )
        if known is not None and known.place != place:
            raise ArchiveRefused(
                f"retention waits for the archive at {known.place}: end that first, or go on there"
            )
        if known is not None and offset < known.offset:
            raise ArchiveRefused(f"everything below {known.offset} is archived already")
        since_ms = now_ms if known is None else known.since_ms
        mark = ArchiveMark(offset=offset, place=place, since_ms=since_ms, marked_ms=now_ms)
        self._save(mark)
        return mark

    def end(self) -> None:
        """Remove the mark, if there is one. Raises OSError."""
        remove_file(self._seams.files, self._path)
        self.mark = None

    def _save(self, mark: ArchiveMark) -> None:
        sealed_json.write(self._seams.files, self._path, mark)
        self.mark = mark

    def _load(self, paths: StorePaths) -> ArchiveMark | None:
        files = self._seams.files
        try:
            return read(files, self._path)
        except ValueError as error:
            log.error("how far the archive is cannot be read, so nothing waits for it: %s", error)
        aside = Quarantine(files, self._seams.clock, paths.quarantine, paths.root)
        aside.move_file(self._path, "how far the archive is cannot be read")
        return None
