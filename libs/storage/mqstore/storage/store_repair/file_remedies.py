"""Remedies for files that the opening of a store cannot judge, applied while its lock is held.

Each step keeps the bytes that it changes in quarantine first, and replaces whole files by a rename.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mqstore.storage import own_files
from mqstore.storage.codec.record import write_blank
from mqstore.storage.config import StoreConfig
from mqstore.storage.lost_data import ByteRange
from mqstore.storage.metadata import index_loss
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.paths import StorePaths, segment_name, segment_offset
from mqstore.storage.recovery.loss import missing_ranges
from mqstore.storage.recovery.view import Segment, Segments, find_segments
from mqstore.storage.seams import Seams
from mqstore.storage.store_repair.changes import Action, Change, ChangeList
from mqstore.storage.system.atomic_file import remove_file, replace_file
from mqstore.storage.system.open_map import open_map
from mqstore.storage.tables import table_text

GAP_SEGMENTS_MAX: Final = 1_000
"""Maximum number of missing segments that are made again; a wider gap is no lost file."""
_BACKUP_SUFFIX: Final = ".bak"


class FileRemedies:
    """Changes the files of one store whose lock is held. Every method raises OSError."""

    def __init__(
        self, seams: Seams, paths: StorePaths, config: StoreConfig, changes: ChangeList
    ) -> None:
        """``config`` has the sizes of the store's files."""
        self._files = seams.files
        self._paths = paths
        self._config = config
        self._changes = changes
        self.quarantine = Quarantine(seams.files, seams.clock, paths.quarantine, paths.root)

    # the log --------------------------------------------------------------------------------

    def refit_segments(self) -> bool:
        """Give every segment the length of the others; returns whether one had another.

        The last one too: once a loss is accepted, another one follows it.
        """
        size, found = self._config.mapped_file_size_commit_log, self._segments()
        odd = [each for each in (*found.misfits, *found.usable[-1:]) if each.length != size]
        for segment in odd:
            self._refit(segment)
        return bool(odd)

    def _refit(self, segment: Segment) -> None:
        size, path = self._config.mapped_file_size_commit_log, segment.path
        reason = f"{segment.length} bytes where {size} are due"
        if segment.length > size:
            self.quarantine.keep_range(path, size, segment.length - size, reason)
        elif segment.length:
            self.quarantine.keep_file(path, reason)
        staged = self._staged(f"refit-{path.name}")
        self._files.copy(path, staged, 0, min(segment.length, size))
        self._files.extend(staged, size)
        self._put_in_place(staged, path)
        what = f"{segment.length} bytes become {size}"
        self._note(Action.REFIT_SEGMENT, path, what, offset=segment.base, length=size)

    def fill_gaps(self) -> Sequence[ByteRange]:
        """Make the missing segments between others again, each with one blank record; returns the
        ranges that were missing."""
        size, segments = self._config.mapped_file_size_commit_log, self._segments()
        if not segments.usable:
            return ()
        missing = missing_ranges(segments, size, segments.usable[0].base)
        bases = [base for lost in missing for base in range(lost.start, lost.stop, size)]
        if len(bases) > GAP_SEGMENTS_MAX or any(
            (lost.stop - lost.start) % size for lost in missing
        ):
            return ()
        for base in bases:
            self._fill(base, size)
        return missing

    def _fill(self, base: int, size: int) -> None:
        path = self._paths.commit_log / segment_name(base)
        staged = self._staged(f"fill-{path.name}")
        self._files.create(staged, size)
        with open_map(self._files, staged, writable=True) as mapped:
            write_blank(mapped.view, 0, size)
            mapped.sync()
        self._put_in_place(staged, path)
        what = "the segment is missing; one of the same name with a blank record replaces it"
        self._note(Action.FILL_GAP, path, what, offset=base, length=size)

    def forget_checksums(self, offset: int) -> None:
        """Set the block checksums of the segment at a physical offset aside."""
        base = offset - offset % self._config.mapped_file_size_commit_log
        path = self._paths.blocks / segment_name(base)
        if self._files.stat(path) is None:
            return
        self.quarantine.move_file(path, "the log does not match these block checksums")
        what = "no checksum proves which record of the block changed: all of them stay"
        self._note(Action.FORGET_CHECKSUMS, path, what, offset=offset)

    # RocketMQ's small files -----------------------------------------------------------------

    def lose_index(self) -> None:
        """Note that the index is lost: the opening sets its files aside and makes it again."""
        names = [name for name in self._files.list(self._paths.index) if name.isdigit()]
        self._files.make_directories(self._paths.ours)
        index_loss.put(self._files, self._paths, names)
        what = f"{len(names)} index files are set aside, and made again from the log"
        self._note(Action.REMAKE_INDEX, self._paths.index, what)

    def set_checkpoint_aside(self) -> None:
        """Set the checkpoint aside."""
        if self._files.stat(self._paths.checkpoint) is not None:
            self.set_aside(self._paths.checkpoint, "its times are not those of the log")

    def restore_table(self, path: Path) -> None:
        """Restore a config file, or its ``.bak``, from the other of the two."""
        is_backup = path.name.endswith(_BACKUP_SUFFIX)
        name = path.name.removesuffix(_BACKUP_SUFFIX)
        other = path.with_name(name if is_backup else name + _BACKUP_SUFFIX)
        if self._files.stat(path) is None or self._is_readable(path):
            return
        if self._is_readable(other):
            self._keep(path, "it cannot be read")
            replace_file(self._files, path, self._files.read(other))
            self._note(Action.RESTORE_TABLE, path, f"it gets the content of {other.name}")
            return
        for each in (path, other):
            if self._files.stat(each) is not None:
                self._keep(each, "it cannot be read")
                remove_file(self._files, each)
        self._note(Action.RESET_TABLE, path, f"nor can {other.name}: its entries are lost")

    def _is_readable(self, path: Path) -> bool:
        try:
            return table_text.load(self._files, path) is not None
        except ValueError:
            return False

    # ours -----------------------------------------------------------------------------------

    def settle_metadata(self, path: Path, *, is_left: bool) -> None:
        """Keep a copy of a file of ours, for the opening to make it again; set it aside where an
        opening left it as it was (``is_left``)."""
        known = own_files.BY_NAME.get(path.name)
        if path.is_relative_to(self._paths.quarantine):
            self._settle_entry(path)
        elif is_left and self._files.stat(path) is not None:
            self.set_aside(path, "it cannot be used")
        elif not (known and known.stops_opening):
            if not (known and known.is_derived):
                self._keep(path, "it cannot be used")
            self._note(Action.REMAKE_FILE, path, "it cannot be used; the opening makes it again")

    def _settle_entry(self, path: Path) -> None:
        name = path.relative_to(self._paths.quarantine).parts[0]
        stat = self._files.stat(self._paths.quarantine / name)
        if stat is not None and not stat.is_directory:
            self.quarantine.move_file(path, "a file of the quarantine without a description")
        else:
            self.quarantine.describe(name)
        what = "its description is made again from the bytes that are there"
        self._note(Action.DESCRIBE_ENTRY, self._paths.quarantine / name, what)

    def forget_last_run(self) -> None:
        """Remove the notes that the queues are complete: the opening makes missing entries of the
        whole log again."""
        for path in (self._paths.manifest, self._paths.running):
            remove_file(self._files, path)

    def set_aside(self, path: Path, reason: str) -> None:
        """Move a file, or all files of a directory, to quarantine."""
        for each in self._files_of(path):
            self.quarantine.move_file(each, reason)
            self._note(Action.SET_ASIDE, each, reason)
        self._remove_directories(path)

    def set_queue_file_aside(self, path: Path, *, is_left: bool) -> None:
        """Set a queue file aside whose name is no multiple of the file size, or that an opening
        left as it was (``is_left``); another one is refitted by the opening."""
        stat, base = self._files.stat(path), segment_offset(path.name)
        if stat is None or stat.is_directory:
            return
        if is_left or base is None or base % self._config.queue_file_size:
            self.set_aside(path, "a queue file of a wrong name or length")

    def _files_of(self, path: Path) -> Iterator[Path]:
        stat = self._files.stat(path)
        if stat is not None and not stat.is_directory:
            yield path
            return
        for name in self._files.list(path):
            yield from self._files_of(path / name)

    def _remove_directories(self, path: Path) -> None:
        stat = self._files.stat(path)
        if stat is None or not stat.is_directory:
            return
        for name in self._files.list(path):
            self._remove_directories(path / name)
        self._files.remove_directory(path)
        self._files.sync_directory(path.parent)

    # helpers --------------------------------------------------------------------------------

    def _segments(self) -> Segments:
        size = self._config.mapped_file_size_commit_log
        return find_segments(self._files, self._paths, size)

    def _staged(self, name: str) -> Path:
        """A path of the log's file system where no file is."""
        self._files.make_directories(self._paths.staging)
        staged = self._paths.staging / name
        if self._files.stat(staged) is not None:
            self._files.unlink(staged)
        return staged

    def _put_in_place(self, staged: Path, path: Path) -> None:
        self._files.rename(staged, path)
        self._files.sync_directory(path.parent)

    def _keep(self, path: Path, reason: str) -> None:
        stat = self._files.stat(path)
        if stat is not None and stat.size:
            self.quarantine.keep_file(path, reason)

    def _note(
        self,
        action: Action,
        path: Path,
        what: str,
        *,
        offset: int | None = None,
        length: int | None = None,
    ) -> None:
        root = self._paths.root
        name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        self._changes.add(
            Change(action=action, what=what, file=name, physical_offset=offset, length=length)
        )
