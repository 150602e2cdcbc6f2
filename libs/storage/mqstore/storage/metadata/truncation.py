"""The decision to cut a diverged tail of the log (``store/mqstore/truncation.json``).

A follower whose log has bytes that its leader's lacks notes where they begin, and closes. The next
opening cuts them as recovery cuts a damaged tail: into quarantine, with all that is derived from
them. The note goes once the cut is on disk, so that a crash at any point only repeats it.
"""

from __future__ import annotations

from mqstore.storage.errors import StoreDamaged
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import remove_file


class Truncation(StrictValue):
    """A diverged tail. Physical offsets, in bytes."""

    offset: int
    """First offset of the tail: the end of the log after the cut."""
    end: int
    records: int
    """Number of its records that can be read."""
    leader: str
    epoch: int
    """The newest epoch of that leader."""

    @property
    def reason(self) -> str:
        """The reason that the entry in quarantine states."""
        return (
            f"{self.records} messages from offset {self.offset} to {self.end} that the leader at "
            f"{self.leader}, of epoch {self.epoch}, does not have"
        )


def save(files: FileSystem, paths: StorePaths, truncation: Truncation) -> None:
    """Note a cut for the next opening; durable at return. Raises OSError."""
    sealed_json.write(files, paths.truncation, truncation)


def begin(files: FileSystem, paths: StorePaths) -> Truncation | None:
    """Return the noted cut, with what earlier runs noted of the tail withdrawn: the log then looks
    as if the tail had never been synced. The timer begins anew: of the messages that it has
    finished, copies may be in the tail. Raises StoreDamaged, OSError.
    """
    try:
        found = sealed_json.read(files, paths.truncation, Truncation)
    except ValueError as error:
        raise StoreDamaged(
            f"{paths.truncation} cannot be read ({sealed_json.why_unreadable(error)}): "
            "remove it, and let the store follow its leader again"
        ) from error
    if found is None:
        return None
    if files.stat(paths.state) is not None:
        _lower_bounds(files, paths, found.offset)
    remove_file(files, paths.manifest)
    remove_file(files, paths.timer_check)
    return found


def finish(files: FileSystem, paths: StorePaths) -> None:
    """Forget the cut, which is on disk. Raises OSError."""
    remove_file(files, paths.truncation)


def _lower_bounds(files: FileSystem, paths: StorePaths, offset: int) -> None:
    page = StatePage.reopen(files, paths.state)
    try:
        if page.is_valid:
            with page.changing():
                page.set_dispatched(min(page.dispatched_offset, offset))
                page.set_max(min(page.max_offset, offset))
                page.set_flushed(min(page.flushed_offset, offset))
            page.sync()
    finally:
        page.close()
