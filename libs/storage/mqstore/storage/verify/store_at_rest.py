"""A store on disk, opened for reading only, for the checks.

Everything is mapped through a copy-on-write overlay, so that repairs by a loader stay in memory.
Beside a living writer, only records that were dispatched at the opening are read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from mqstore.storage import sizes
from mqstore.storage.codec import record
from mqstore.storage.codec.record import Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.errors import DirectoryNotUsable, OffsetOutOfRange
from mqstore.storage.format_detection import find_format
from mqstore.storage.layout import PROPERTY_DELAY, SCHEDULE_TOPIC
from mqstore.storage.loss_check import LossCheck, check_loss
from mqstore.storage.lost_data import ByteRange
from mqstore.storage.metadata import (
    format_file,
    log_owner,
    regular_files,
    store_lock,
    store_settings,
)
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.deleted_topics import DeletedTopics
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.manifest import Manifest, load_both
from mqstore.storage.metadata.state_page import read_state
from mqstore.storage.metadata.state_snapshot import StateSnapshot
from mqstore.storage.paths import StorePaths
from mqstore.storage.progress import Progress
from mqstore.storage.recovery import (
    RecoveryPlan,
    StoreView,
    accepted_loss,
    clean_plan,
    last_run,
    plan,
)
from mqstore.storage.recovery.view import (
    Segment,
    find_segments,
    holds_a_store,
)
from mqstore.storage.seams import Seams
from mqstore.storage.system.overlay_files import OverlayFileSystem, PrivateBase
from mqstore.storage.verify.broker import Broker


class StoreAtRest:
    """One store, opened by ``open``. Not for sharing between threads."""

    def __init__(
        self,
        view: StoreView,
        seams: Seams,
        content: FormatFile | None,
        state: StateSnapshot | None,
        recovery: RecoveryPlan,
        *,
        clean: Manifest | None,
        deleted: DeletedTopics,
        is_live: bool,
        loss_check: LossCheck | None,
        why_no_format: str | None = None,
    ) -> None:
        self.view = view
        self.paths = view.paths
        self.config = view.config
        self.format = view.store_format
        self.seams = seams
        """The seams, with the overlay as file system."""
        self.content = content
        self.why_no_format = why_no_format
        """Why format.json cannot be read; None where it can, or is not there."""
        self.state = state
        self.plan = recovery
        self.clean = clean
        self.deleted = deleted
        self.is_live = is_live
        self.loss_check = loss_check
        """Whether durable data is missing; None beside a writer, which checks it itself."""
        self.min_offset = recovery.min_offset
        self.end = recovery.max_offset
        """The end of the part of the log that is read."""
        if is_live and state is not None:
            self.end = min(max(state.dispatched_offset, self.min_offset), self.end)
        self.broker = Broker(crashed=view.abort)
        """The prediction for a real broker; complete after ``broker.foresee``."""
        self.delays = DelayLevels(self.config.message_delay_level)
        self._open: tuple[Segment, memoryview] | None = None

    @classmethod
    def open(
        cls, root: Path, config: StoreConfig, seams: Seams, base: PrivateBase, progress: Progress
    ) -> StoreAtRest:
        """Open a store.

        Raises DirectoryNotUsable, StoreOfAnother, StoreUnsupported, StoreDamaged, OSError.
        """
        files = OverlayFileSystem(base)
        content, paths, why_no_format = _identify(files, root)
        is_live = files.is_locked(paths.lock)
        known = content.sizes if content is not None else None
        own = store_settings.load_recorded(files, paths, content)
        config = store_settings.apply(config, own, paths)
        config = sizes.adopt(files, paths, config, known, keep_index_sizes=False)
        size = config.mapped_file_size_commit_log
        segments = find_segments(files, paths, size)
        store_format = None if content is None else content.rocketmq_format
        store_format = store_format or find_format(files, paths, segments, None)
        lock = files.stat(paths.lock)
        lock_ms = None if lock is None else lock.modified_ms
        blocks = None
        if content is not None and format_file.has_block_checksums(content, lock_ms):
            blocks = BlockFiles(files, paths.blocks, size, content.store_id)
        view = StoreView.of(files, paths, config, store_format, segments, blocks)
        state = read_state(files, paths.state)
        clean, deleted = None, DeletedTopics(files, paths.deleted_topics)
        found_missing = (
            None if is_live else check_loss(files, paths, config, content, state, lock_ms)
        )
        noted = load_both(files, paths) if found_missing is None else found_missing.manifests
        is_last = content is not None and lock_ms == content.lock_modified_ms
        if content is not None and (is_last or store_lock.has_sign(files, paths)):
            deleted = DeletedTopics.load(files, paths.deleted_topics)
        if content is not None and is_last:
            clean = last_run.clean_close(view, content, deleted, noted.clean)
            if state is not None:
                view = last_run.add_last_run(view, content, state, deleted, noted.running)
        if found_missing is not None and found_missing.blocking is not None:
            view, clean = replace(view, loss=found_missing.blocking), None
        if clean is not None:
            recovery = clean_plan(view, clean)
        else:
            recovery = plan(view, partial(progress, "recovery"))
        overlaid = replace(seams, files=files)
        return cls(
            view,
            overlaid,
            content,
            state,
            recovery,
            clean=clean,
            deleted=deleted,
            is_live=is_live,
            loss_check=found_missing,
            why_no_format=why_no_format,
        )

    def accepted_losses(self) -> list[ByteRange]:
        """The ranges of the log whose loss was accepted."""
        history = accepted_loss.load_history(self.seams.files, self.paths)
        return [lost for each in history for lost in each.loss.missing]

    def name_of(self, path: Path) -> str:
        """The name of a file in findings."""
        root = self.paths.root
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

    def has_offset(self, offset: int) -> bool:
        """Whether the part of the log that is read has a physical offset."""
        return self.min_offset <= offset < self.end and self.view.segments.at(offset) is not None

    def record_at(self, offset: int) -> Record:
        """Decode the record at a physical offset without its body, which is not verified.

        Raises RecordError, OffsetOutOfRange.
        """
        segment = self.view.segments.at(offset)
        if segment is None or not self.min_offset <= offset < self.end:
            raise OffsetOutOfRange(f"offset {offset} is in no segment of the log")
        data = self._bytes_of(segment)
        end = min(len(data), self.end - segment.base)
        return record.decode(
            data,
            offset - segment.base,
            end,
            physical_offset=offset,
            verify_body=False,
            with_body=False,
        )

    def tags_code(self, found: Record) -> int:
        """The code that dispatch writes into the record's queue entry."""
        if found.topic == SCHEDULE_TOPIC:
            delay = (found.properties or {}).get(PROPERTY_DELAY)
            code = self.delays.queue_code(delay, found.store_timestamp_ms)
            if code is not None:
                return code
        return found.tags_code

    def _bytes_of(self, segment: Segment) -> memoryview:
        """The bytes of a segment; the overlay keeps files mapped, so the view stays valid."""
        if self._open is None or self._open[0] != segment:
            with self.view.map_segment(segment) as data:
                self._open = (segment, data)
        return self._open[1]


def _identify(
    files: OverlayFileSystem, root: Path
) -> tuple[FormatFile | None, StorePaths, str | None]:
    """format.json, the paths, and why format.json cannot be read."""
    root = files.real_path(root)
    stat = files.stat(root)
    if stat is None or not stat.is_directory:
        raise DirectoryNotUsable(f"{root} is no directory; name a store directory")
    paths = StorePaths(root)
    regular_files.require(files, paths)
    content, why = format_file.load_or_lose(files, paths)
    if content is not None and content.store_path_commit_log is not None:
        paths = log_owner.locate(files, root, content.store_path_commit_log)
    regular_files.require(files, paths)
    log_owner.check(files, paths, content)
    if content is None and not holds_a_store(files, paths):
        raise DirectoryNotUsable(f"{root} holds no store; name a store directory")
    return content, paths, why
