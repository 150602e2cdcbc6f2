"""Up to where the log is archived: what lies behind is kept (``store/mqstore/archive.json``).

The job that archives says how far it is; from its first word on retention waits for it, up to
keepDiskCeilingRatio, until the archive is ended. The file is sealed by a checksum.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mqstore.storage.errors import ArchiveRefused
from mqstore.storage.own import sealed_json
from mqstore.storage.own.quarantine import Quarantine
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.holds import Hold
from mqstore.storage.retention.value import Value
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import remove_file, replace_file

log = logging.getLogger(__name__)


class ArchiveMark(Value):
    """How far the archive is. Offsets are physical, times milliseconds since the epoch."""

    offset: Annotated[int, Field(ge=0, description="Everything below is archived, or was gone.")]
    place: Annotated[str, Field(description="Where the archive is, as its job says.")]
    since_ms: Annotated[int, Field(description="When retention began to wait for it.")]
    marked_ms: int

    @property
    def hold(self) -> Hold:
        return Hold(
            kind="archive",
            name=self.place,
            from_offset=self.offset,
            to_offset=None,
            until_ms=None,
        )


def read(files: FileSystem, path: Path) -> ArchiveMark | None:
    """What a file says; None without one. ValueError, OSError."""
    if files.stat(path) is None:
        return None
    return ArchiveMark.model_validate_json(sealed_json.unseal(files.read(path)))


class Archive:
    """The mark of one store. Any thread may look, one at a time may change it; a change is durable
    when its call returns."""

    def __init__(self, paths: StorePaths, seams: Seams, max_offset: int) -> None:
        """Reads the file; one that cannot be read is set aside, and retention waits for nobody.

        Where the log ends before the mark, as somebody cut it, what comes there next is not
        archived: the mark then goes back. Raises OSError.
        """
        self._path = paths.archive
        self._seams = seams
        self.mark: ArchiveMark | None = self._load(paths)
        if self.mark is not None and self.mark.offset > max_offset:
            self._save(self.mark.model_copy(update={"offset": max_offset}))

    def advance(self, offset: int, place: str, *, max_offset: int) -> ArchiveMark:
        """Say that everything below is archived; the same offset changes nothing but the time.

        ``max_offset`` is up to where the log is on disk. Raises ArchiveRefused (beyond that, below
        what was said, or another archive's), OSError.
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
        """Wait for it no more; nothing happens where nobody did. OSError."""
        remove_file(self._seams.files, self._path)
        self.mark = None

    def _save(self, mark: ArchiveMark) -> None:
        text = mark.model_dump_json(by_alias=True)
        replace_file(self._seams.files, self._path, sealed_json.seal(text))
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
