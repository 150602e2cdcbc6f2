"""Recovery of one opened directory: its log, checkpoint, index and queues are made whole in turn.

The plan is made and logged before anything changes; the log is made whole and durable before the
queues are touched; the queues are complete before the next queue offsets are given out; the index
may catch up afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mqstore.storage import opening
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import CheckpointError, DiskRefuses, StoreFailed
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import CHECKPOINT_SIZE
from mqstore.storage.log_lines import bounded_json
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue, StrayFile, StrayReason
from mqstore.storage.mapped.warm_up import MemoryLocks, WarmUp
from mqstore.storage.metadata import index_loss, truncation
from mqstore.storage.metadata.clock_steps import CLOCK_STEP_MS, StepsView
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.opening import OpenedDirectory
from mqstore.storage.options import NEXT_EPOCH, Progress, RecoveredLog, StoreOptions
from mqstore.storage.paths import how_to_repair
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.recovery import (
    Applier,
    RecoveryPlan,
    RecoveryReport,
    accepted_loss,
    clean_plan,
    plan,
)
from mqstore.storage.recovery.view import QuietQueue
from mqstore.storage.recovery.walk import Run, walk
from mqstore.storage.seams import Seams
from mqstore.storage.system.atomic_file import remove_file
from mqstore.storage.tables.checkpoint import Checkpoint

log = logging.getLogger(__name__)


class DirectoryRecovery:
    """Recovers one opened directory. Used once; its methods are called in the order below.

    Every method raises OSError and StorageError when the disk refuses: the store must not open.
    """

    def __init__(self, directory: OpenedDirectory, seams: Seams, options: StoreOptions) -> None:
        """Make the plan; nothing of the directory changes."""
        self.directory = directory
        self.seams = seams
        self.options = options
        self._began = seams.clock.monotonic()
        self._quarantined: list[str] = list(directory.quarantined)
        self._strays: list[str] = []
        self._dropped_index_files: list[str] = []
        self._segments: tuple[tuple[Path, int, int], ...] = ()
        self._quiet: list[QuietQueue] = []
        """Queues without an entry since the last run noted them; left at rest."""
        paths = directory.paths
        self.quarantine = Quarantine(seams.files, seams.clock, paths.quarantine, paths.root)
        self.plan = self._make_plan()
        self._applier = Applier(
            seams.files,
            paths,
            directory.config,
            directory.format.rocketmq_format,
            self.quarantine,
            directory.blocks,
            directory.state.changing,
            durable=options.in_place,
            resumes=directory.resumes,
        )

    def _make_plan(self) -> RecoveryPlan:
        opened = self.directory
        if opened.clean is not None:
            found = clean_plan(opened.view, opened.clean)
        else:
            found = plan(
                opened.view,
                lambda done, total: self._progress("log", done, total),
                to_append=self.options.services,
                follows=self.options.follows,
                # What an interrupted recovery dropped may be gone from memory only.
                quiet=None if opened.resumes else self._quiet,
            )
        log.info("recovery plan: %s", bounded_json(found))
        if found.read_only is not None:
            log.error("opening read-only: %s", found.read_only)
        if found.damaged_block_count:
            log.error(
                "%d blocks of the log have changed on the disk; their damaged records are refused",
                found.damaged_block_count,
            )
        return found

    # the log ------------------------------------------------------------------------------

    def recover_log(self, locks: MemoryLocks) -> MappedFileQueue:
        """Apply the plan to the log and map its segments; durable up to its end at return.

        ``locks`` is what the process may lock in memory.
        """
        self._apply_to_log()
        return self._map_segments(locks)

    def _map_segments(self, locks: MemoryLocks) -> MappedFileQueue:
        paths, config, found = self.directory.paths, self.directory.config, self.plan
        files = MappedFileQueue(
            paths.commit_log,
            config.mapped_file_size_commit_log,
            self.seams,
            staging=paths.staging,
            writable=found.read_only is None,
            populate_window=0 if config.uses_transient_store_pool else None,
            warm_up=WarmUp.of(config, locks),
            guard=self.directory.lock.require,
        )
        files.load()
        for file in files.files:
            if file.base_offset <= found.max_offset:
                file.set_end(min(file.size, found.max_offset - file.base_offset))
        if found.read_only is not None:  # segments behind the end stay on the disk
            files.leave_out_from(found.max_offset + 1)
        files.mark_flushed(found.max_offset)
        self._segments = tuple((each.path, each.base_offset, each.size) for each in files.files)
        return files

    def _apply_to_log(self) -> None:
        opened, state, found = self.directory, self.directory.state, self.plan
        if found.read_only is None:
            pid = self.options.pid
            opening.write_abort(self.seams.files, opened.paths, opened.format.rocketmq_format, pid)
            self.seams.files.make_directories(opened.paths.commit_log)
            opened.deleted.end_at(found.max_offset)
            self._forget_too_much()
            self._begin_epoch()
        with state.changing():
            # Bounds first: no reader may look at what is about to change.
            state.set_dispatched(min(state.dispatched_offset, found.dispatch_from))
            if found.read_only is None:
                state.set_flushed(min(state.flushed_offset, found.start))
            state.set_max(min(state.max_offset, found.max_offset))
            self._applier.drop_block_checksums(found)
        self._quarantined += self._applier.apply_to_log(found)
        with state.changing():
            state.set_min(found.min_offset)
            state.set_max(found.max_offset)
            if found.read_only is None:
                state.set_flushed(found.max_offset)
                state.set_expired(found.min_offset)
        if opened.view.truncation is not None and found.read_only is None:
            state.sync()  # an older watermark is beyond the log's end
            truncation.finish(self.seams.files, opened.paths)
        if opened.accepted is not None and found.read_only is None:
            state.sync()  # an older watermark may lie inside the replacement of a lost record
            accepted_loss.finish(self.seams.files, opened.paths, opened.accepted)

    def _begin_epoch(self) -> None:
        """Begin the epoch of this opening at the first record that is given up, before the log is
        changed: a follower may have it whole, and gets what this store has in its place."""
        epochs, epoch, start = self.directory.epochs, self.options.epoch, self.plan.first_given_up
        if epoch is not None and start is not None:
            number = epochs.newest + 1 if epoch == NEXT_EPOCH else epoch
            epochs.begin(number, start, self.plan.min_offset, self.directory.format.store_id)

    def _forget_too_much(self) -> None:
        """Remove a note of the queues that reaches beyond the log's end, before the log is cut: new
        records would make it look true while their queue entries are not on disk."""
        if self.directory.queues_noted > self.plan.max_offset:
            remove_file(self.seams.files, self.directory.paths.running)

    def open_checkpoint(self) -> Checkpoint:
        """Open the checkpoint; quarantine one that cannot be read, and start a new one."""
        path = self.directory.paths.checkpoint
        store_format = self.directory.format.rocketmq_format
        try:
            return Checkpoint.open(path, store_format, self.seams)
        except CheckpointError as error:
            log.warning("starting a new checkpoint of %d bytes: %s", CHECKPOINT_SIZE, error)
            self.directory.odd.append(f"a new checkpoint was started: {error}")
            self._quarantined.append(self.quarantine.move_file(path, str(error)).name)
            return Checkpoint.open(path, store_format, self.seams)

    # what is derived ----------------------------------------------------------------------

    def recover_index(self, checkpoint: Checkpoint, steps: StepsView) -> IndexService:
        """Load the index files that can be trusted; quarantine the others.

        ``steps`` are those of the clock. Dispatch makes the missing part again.
        """
        opened, found = self.directory, self.plan
        index = IndexService(
            opened.paths,
            opened.config,
            opened.format.rocketmq_format,
            self.seams,
            checkpoint=checkpoint,
            writable=found.read_only is None,
            on_change=opened.state.bump_index_generation,
        )
        loaded = index.load(
            safe=found.path == "normal",
            index_ms=checkpoint.index_ms,
            log_end=found.max_offset,
            lost=opened.index_lost,
            synced_end=opened.index_synced,
            back=min(steps.back_offsets, default=None),
        )
        self._strays += [str(left_out.path) for left_out in loaded.strays]
        if found.read_only is None:
            self._lower_index_time(index, checkpoint)
            self._forget_old_index_files()
            for left_out in () if self.options.replaces_index else loaded.dropped:
                kept = self.quarantine.move_file(left_out.path, left_out.why)
                self._quarantined.append(kept.name)
                opened.state.bump_index_generation()
            if opened.index_lost and not self.options.replaces_index:
                index_loss.remove(self.seams.files, opened.paths)
        self._dropped_index_files = [left_out.path.name for left_out in loaded.dropped]
        return index

    def _lower_index_time(self, index: IndexService, checkpoint: Checkpoint) -> None:
        """Files that are made again end at other times than those before: until they are synced,
        indexMsgTimestamp must not speak for them."""
        trusted = max((file.header.end_ms for file in index.files), default=0)
        if checkpoint.index_ms > trusted:
            checkpoint.index_ms = trusted
            checkpoint.flush()

    def _forget_old_index_files(self) -> None:
        """Index files that an earlier recovery set aside were made again since: without this, a
        store that is killed often would fill its disk with them."""
        for entry in self.quarantine.entries():
            if entry.source.startswith("index/"):
                self.quarantine.release(entry.name)

    def recover_queues(self, on_damage: Callable[[StoreFailed], None]) -> ConsumeQueues:
        """Apply the plan to the queues and load them; they may end before the log does.

        ``on_damage`` as of ``ConsumeQueues``.
        """
        opened, found, applier = self.directory, self.plan, self._applier
        queues = ConsumeQueues(
            opened.paths,
            opened.config.queue_file_size,
            self.seams,
            ext_file_size=opened.config.mapped_file_size_consume_queue_ext,
            writable=found.read_only is None,
            on_damage=on_damage,
        )
        self._quarantined += applier.apply_to_queue_files(found)
        clean = opened.clean
        strays = queues.load(
            (quiet.state for quiet in self._quiet) if clean is None else clean.queues
        )
        self._set_strays(strays, writable=found.read_only is None)
        self._quarantined += applier.apply_to_queues(found, queues)
        if found.read_only is None:
            with opened.state.changing():
                self._finish_deletions(queues)
        return queues

    def _set_strays(self, strays: list[StrayFile], *, writable: bool) -> None:
        """Note what belongs to no queue. A file of units that was cut short is out of the way of
        the one that comes in its place."""
        units = self.directory.paths.consume_queue_ext
        for stray in strays:
            is_cut = stray.reason is StrayReason.LENGTH and stray.path.is_relative_to(units)
            if is_cut and writable:
                why = f"{stray.size} bytes, a length that no other of its queue has"
                self._quarantined.append(self.quarantine.move_file(stray.path, why).name)
            else:
                self._strays.append(str(stray.path))

    def _finish_deletions(self, queues: ConsumeQueues) -> None:
        """Remove what a halt left of deleted topics' queues."""
        for note in self.directory.deleted.all():
            queues.remove_before(note.topic, note.offset)

    # times --------------------------------------------------------------------------------

    def newest_store_time(self, files: MappedFileQueue, queues: ConsumeQueues) -> int:
        """STORETIMESTAMP of the newest record, also where recovery read none; 0 without one."""
        found = self.plan
        is_known = found.records or self.directory.clean is not None
        if is_known or found.max_offset <= found.min_offset:
            return found.last_store_timestamp_ms
        opened = [_last_offset(queue) for queue in queues.opened()]
        last = max([-1, *opened, *(quiet.last_offset for quiet in self._quiet)])
        return _last_time_from(files, last, found.max_offset) or found.last_store_timestamp_ms

    def newest_derived_time(self, index: IndexService, checkpoint: Checkpoint) -> int:
        """The newest store time that is known of records which may be lost, in ms; 0 without one.

        Times that the clock has not reached are of before it was set back, and left out.
        """
        reached = self.seams.clock.now_ms() + CLOCK_STEP_MS
        times = [checkpoint.physic_ms, *(file.header.end_ms for file in index.files[-1:])]
        return max((each for each in times if each <= reached), default=0)

    # the queues' last records -----------------------------------------------------------------

    def complete_queues(self, dispatcher: Dispatcher, queues: ConsumeQueues) -> None:
        """Bring the queues up to the log's end; the index may catch up later."""
        state, found = self.directory.state, self.plan
        self._report_log(dispatcher.position)
        first, clock = dispatcher.position, self.seams.clock
        while dispatcher.behind:
            before = dispatcher.position
            dispatcher.step(clock.monotonic())
            if dispatcher.position == before:
                raise _queues_refused(before, dispatcher.refusal, self.directory.paths.root)
            done = dispatcher.position - first
            self._progress("queues", done, done + dispatcher.behind)
        if found.read_only is None and found.dispatch_from <= found.min_offset:
            with state.changing():
                dispatcher.counts.holes_filled += sum(queue.fill_holes() for queue in queues.all())
        queues.correct_min(found.min_offset)
        queues.end_recovery()
        state.set_dispatched(dispatcher.position)
        state.end_recovery()

    def _report_log(self, dispatched: int) -> None:
        opened, found = self.directory, self.plan
        if self.options.on_log is None:
            return
        self.options.on_log(
            RecoveredLog(
                opened.paths,
                opened.config,
                opened.format.rocketmq_format,
                self._segments,
                found.min_offset,
                found.max_offset,
                dispatched,
            )
        )

    def report(self, dispatcher: Dispatcher) -> RecoveryReport:
        """Report what recovery found and did; called last."""
        clock, counts, found = self.seams.clock, dispatcher.counts, self.plan
        accepted = self.directory.accepted
        return RecoveryReport(
            plan=found.model_copy(update={"strays": (*found.strays, *self._strays)}),
            quarantined=tuple(self._quarantined),
            dispatched_records=dispatcher.records,
            dispatch_skipped=counts.defects,
            dispatch_lost_bytes=counts.lost_bytes,
            index_files_dropped=tuple(self._dropped_index_files),
            index_from=dispatcher.catch_up.position,
            accepted_loss=None if accepted is None else accepted.loss,
            odd=tuple(self.directory.odd),
            finished_at_ms=clock.now_ms(),
            duration_ms=round((clock.monotonic() - self._began) * 1000),
        )

    def _progress(self, stage: str, done: int, total: int) -> None:
        self.directory.state.set_recovery_progress(done, total)
        if self.options.on_progress is not None:
            self.options.on_progress(Progress(stage, done, total))


def _last_time_from(files: MappedFileQueue, start: int, end: int) -> int:
    """STORETIMESTAMP of the last whole record from ``start``, or from the last segment's begin; 0
    without one."""
    newest = 0
    for file in files.files:
        base, stop = file.base_offset, min(file.size, end - file.base_offset)
        if stop <= 0 or file.end_offset <= start or (start < 0 and file.end_offset < end):
            continue
        for found in walk(file.view, max(0, start - base), stop, base, verify_body=False):
            if isinstance(found, Run):
                newest = found.newest_ms or newest
    return newest


def _queues_refused(reached: int, why: OSError | None, root: Path) -> DiskRefuses:
    """Return the error of queues whose entries cannot be written.

    A misplaced file of a queue stands where a new one is due; other errors are those of the disk.
    """
    is_misplaced = isinstance(why, FileExistsError)
    advice = how_to_repair(root) if is_misplaced else "make room on the disk, or replace it"
    return DiskRefuses(f"queues cannot be rebuilt beyond offset {reached} ({why}): {advice}")


def _last_offset(queue: ConsumeQueue) -> int:
    """The physical offset that a queue's last entry names, or -1."""
    entry = queue.entry(queue.max_index - 1)
    return -1 if entry is None or entry.is_hole else entry.physical_offset
