"""The second half of opening a store: recover it, and put its parts together.

The plan is made and logged before anything changes; the log is made whole and durable before the
queues are touched; the queues are complete before the next queue offsets are given out; the index
may catch up afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.storage import opening
from mqstore.storage._kernel import check_run, find_record
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import CheckpointError, DiskRefuses
from mqstore.storage.filter.bitmaps import FilterBitmaps
from mqstore.storage.filter.bloom import BloomFilter
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import CHECKPOINT_SIZE
from mqstore.storage.log.block_cover import BlockCover
from mqstore.storage.log.clock_watch import ClockWatch
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.log.queue_offsets import QueueOffsets
from mqstore.storage.mapped.allocation import AllocationService
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue, StrayFile, StrayReason
from mqstore.storage.mapped.transient_store_pool import TransientStorePool
from mqstore.storage.mapped.warm_up import MemoryLocks, WarmUp
from mqstore.storage.once.tail import read_tail
from mqstore.storage.once.window import KeyWindow
from mqstore.storage.opening import Opened
from mqstore.storage.options import Progress, StoreOptions
from mqstore.storage.own import index_loss, manifest
from mqstore.storage.own.clock_steps import CLOCK_STEP_MS, ClockSteps, StepsView
from mqstore.storage.own.quarantine import Quarantine
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.queues.queue_flush import QueueFlushService
from mqstore.storage.recovery import (
    Applier,
    RecoveryPlan,
    RecoveryReport,
    accepted_loss,
    clean_plan,
    plan,
)
from mqstore.storage.seams import Seams
from mqstore.storage.system.atomic_file import remove_file
from mqstore.storage.tables.checkpoint import Checkpoint
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData

RUN_RECORDS: Final = 100_000
"""Records walked in one call of the kernel."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Parts:
    """A recovered store's parts; nothing runs in the background yet."""

    opened: Opened
    plan: RecoveryPlan
    report: RecoveryReport
    log: CommitLog
    queues: ConsumeQueues
    index: IndexService
    checkpoint: Checkpoint
    dispatcher: Dispatcher
    queue_flush: QueueFlushService
    allocation: AllocationService
    quarantine: Quarantine
    block_cover: BlockCover | None
    """None where nothing may be written."""
    keys: Callable[[], KeyWindow] | None
    """Finds the unique keys that were put lately, at any time; None where that is switched off, or
    nothing may be put."""
    bitmaps: FilterBitmaps | None
    """None where no entry gets one."""
    watch: ClockWatch

    def adopt(self, topic: str, subscriptions: list[FilterData]) -> int:
        """As ``Subscriptions`` says."""
        if self.bitmaps is not None:
            self.dispatcher.subscribe(topic, partial(self.bitmaps.replace, topic, subscriptions))
        return max(self.log.end.last_store_timestamp_ms, self.watch.steps.view.newest_ms)


class Assembly:
    """Recovers one opened directory. Used once."""

    def __init__(
        self,
        opened: Opened,
        seams: Seams,
        options: StoreOptions,
        on_failure: Callable[[BaseException], None],
        bitmaps: FilterBitmaps | None = None,
    ) -> None:
        self._opened = opened
        self._bitmaps = bitmaps
        self._seams = seams
        self._options = options
        self._on_failure = on_failure
        self._began = seams.clock.monotonic()
        self._quarantined: list[str] = list(opened.quarantined)
        self._strays: list[str] = []
        self._locks = MemoryLocks()
        paths = opened.paths
        self._quarantine = Quarantine(seams.files, seams.clock, paths.quarantine, paths.root)

    def run(self) -> Parts:
        """Raises OSError and StorageError when the disk refuses: the store must not open then."""
        found = self._plan()
        applier = Applier(
            self._seams.files,
            self._opened.paths,
            self._opened.config,
            self._opened.format.rocketmq_format,
            self._quarantine,
            self._opened.blocks,
            self._opened.state.changing,
            durable=self._options.in_place,
            resumes=self._opened.resumes,
        )
        self._apply_to_log(found, applier)
        files = self._log_files(found)
        cover = None if found.read_only else BlockCover(files, self._opened.blocks)
        checkpoint = self._checkpoint()
        watch = self._clock_watch(found)
        index, dropped = self._index(found, checkpoint, watch.steps.view)
        queues = self._queues(found, applier)
        offsets, allocation = QueueOffsets(), AllocationService(self._seams)
        newest = _newest_store_time(found, files, queues)
        bounds = found.min_offset, found.max_offset
        watch.kept_from = partial(_first_indexed, index)
        newest = max(watch.begin(bounds, newest), self._derived_time(index, checkpoint))
        commit_log = self._commit_log(
            found, files, newest, offsets, allocation, checkpoint, cover, watch
        )
        keys = self._unique_keys(found, commit_log, queues, watch)
        dispatcher = self._dispatch(found, commit_log, queues, index)
        watch.on_step_back = partial(_step_back, commit_log, dispatcher, checkpoint)
        commit_log.look_at_clock()
        offsets.load((q.topic, q.queue_id, q.max_index) for q in queues.all())
        offsets.load_missing(self._opened.deleted.next_offsets())
        flush = QueueFlushService(queues, index, dispatcher, checkpoint, self._opened.config)
        report = self._report(found, dispatcher, dropped)
        return Parts(
            self._opened,
            found,
            report,
            commit_log,
            queues,
            index,
            checkpoint,
            dispatcher,
            flush,
            allocation,
            self._quarantine,
            cover,
            keys,
            self._bitmaps,
            watch,
        )

    # the log ------------------------------------------------------------------------------

    def _plan(self) -> RecoveryPlan:
        opened = self._opened
        if opened.clean is not None:
            found = clean_plan(opened.view, opened.clean)
        else:
            found = plan(
                opened.view,
                lambda done, total: self._progress("log", done, total),
                to_append=self._options.services,
            )
        log.info("recovery plan: %s", found.model_dump_json(by_alias=True))
        if found.read_only is not None:
            log.error("opening read-only: %s", found.read_only)
        if found.damaged_block_count:
            log.error(
                "%d blocks of the log have changed on the disk; their damaged records are refused",
                found.damaged_block_count,
            )
        return found

    def _apply_to_log(self, found: RecoveryPlan, applier: Applier) -> None:
        opened, state = self._opened, self._opened.state
        if found.read_only is None:
            pid = self._options.pid
            opening.write_abort(self._seams.files, opened.paths, opened.format.rocketmq_format, pid)
            self._seams.files.make_directories(opened.paths.commit_log)
            opened.deleted.end_at(found.max_offset)
            self._forget_too_much(found)
        with state.changing():
            # Bounds first: nobody may look at what is about to change.
            state.set_dispatched(min(state.dispatched_offset, found.dispatch_from))
            if found.read_only is None:
                state.set_flushed(min(state.flushed_offset, found.start))
            state.set_max(min(state.max_offset, found.max_offset))
            applier.drop_block_checksums(found)
        self._quarantined += applier.apply_to_log(found)
        with state.changing():
            state.set_min(found.min_offset)
            state.set_max(found.max_offset)
            if found.read_only is None:
                state.set_flushed(found.max_offset)
                state.set_expired(found.min_offset)
        if opened.accepted is not None and found.read_only is None:
            state.sync()  # an older watermark may lie inside the replacement of a lost record
            accepted_loss.finish(self._seams.files, opened.paths, opened.accepted)

    def _forget_too_much(self, found: RecoveryPlan) -> None:
        """Remove a note of the queues that reaches beyond the log's end, before the log is cut: new
        records would make it look true while their queue entries are not on disk."""
        running = manifest.load(self._seams.files, self._opened.paths.running)
        if running is not None and running.derived_offset > found.max_offset:
            remove_file(self._seams.files, self._opened.paths.running)

    def _log_files(self, found: RecoveryPlan) -> MappedFileQueue:
        paths, config = self._opened.paths, self._opened.config
        files = MappedFileQueue(
            paths.commit_log,
            config.mapped_file_size_commit_log,
            self._seams,
            staging=paths.staging,
            writable=found.read_only is None,
            populate_window=0 if config.uses_transient_store_pool else None,
            warm_up=WarmUp.of(config, self._locks),
            guard=self._opened.lock.require,
        )
        files.load()
        for file in files.files:
            if file.base_offset <= found.max_offset:
                file.set_end(min(file.size, found.max_offset - file.base_offset))
        files.mark_flushed(found.max_offset)
        return files

    def _commit_log(
        self,
        found: RecoveryPlan,
        files: MappedFileQueue,
        newest_ms: int,
        offsets: QueueOffsets,
        allocation: AllocationService,
        checkpoint: Checkpoint,
        cover: BlockCover | None,
        watch: ClockWatch,
    ) -> CommitLog:
        def on_flushed(store_timestamp_ms: int) -> None:
            checkpoint.physic_ms = store_timestamp_ms

        return CommitLog(
            files,
            self._opened.config,
            self._opened.format.rocketmq_format,
            self._seams,
            self._opened.state,
            offsets=offsets,
            allocation=allocation,
            pool=self._pool(found),
            watch=watch,
            waits=self._options.waits_for_files,
            last_store_timestamp_ms=newest_ms,
            on_flushed=on_flushed,
            on_synced=(lambda _: None) if cover is None else cover.synced,
            on_failure=self._on_failure,
        )

    def _clock_watch(self, found: RecoveryPlan) -> ClockWatch:
        opened, files = self._opened, self._seams.files
        steps = ClockSteps(files, opened.paths.clock, writable=found.read_only is None)
        return ClockWatch(steps, self._seams.clock, opened.boot_id)

    def _derived_time(self, index: IndexService, checkpoint: Checkpoint) -> int:
        """The newest store time that is known of records which may be lost, as far as the clock
        has come to it: what is later is of before the clock was set back."""
        reached = self._seams.clock.now_ms() + CLOCK_STEP_MS
        times = [checkpoint.physic_ms, *(file.header.end_ms for file in index.files[-1:])]
        return max((each for each in times if each <= reached), default=0)

    def _pool(self, found: RecoveryPlan) -> TransientStorePool | None:
        """Only for a store that takes puts."""
        config = self._opened.config
        takes_puts = self._options.services and found.read_only is None
        if not (takes_puts and config.uses_transient_store_pool):
            return None
        size, count = config.mapped_file_size_commit_log, config.transient_store_pool_size
        return TransientStorePool(self._seams.files, size, count, self._locks)

    def _checkpoint(self) -> Checkpoint:
        path = self._opened.paths.checkpoint
        store_format = self._opened.format.rocketmq_format
        try:
            return Checkpoint.open(path, store_format, self._seams)
        except CheckpointError as error:
            log.warning("starting a new checkpoint of %d bytes: %s", CHECKPOINT_SIZE, error)
            self._opened.odd.append(f"a new checkpoint was started: {error}")
            self._quarantined.append(self._quarantine.move_file(path, str(error)).name)
            return Checkpoint.open(path, store_format, self._seams)

    # what is derived ----------------------------------------------------------------------

    def _index(
        self, found: RecoveryPlan, checkpoint: Checkpoint, steps: StepsView
    ) -> tuple[IndexService, list[str]]:
        opened = self._opened
        index = IndexService(
            opened.paths,
            opened.config,
            opened.format.rocketmq_format,
            self._seams,
            checkpoint=checkpoint,
            writable=found.read_only is None,
            on_change=opened.state.bump_index_generation,
        )
        loaded = index.load(
            safe=found.path == "normal",
            # A file that ends in that very millisecond may be the next one, which was not synced.
            index_ms=checkpoint.index_ms - 1,
            log_end=found.max_offset,
            lost=opened.index_lost,
            synced_end=opened.index_synced,
            back=min(steps.back_offsets, default=None),
        )
        self._strays += [str(left_out.path) for left_out in loaded.strays]
        if found.read_only is None:
            self._lower_index_time(index, checkpoint)
            self._forget_old_index_files()
            for left_out in () if self._options.replaces_index else loaded.dropped:
                kept = self._quarantine.move_file(left_out.path, left_out.why)
                self._quarantined.append(kept.name)
                opened.state.bump_index_generation()
            if opened.index_lost and not self._options.replaces_index:
                index_loss.remove(self._seams.files, opened.paths)
        return index, [left_out.path.name for left_out in loaded.dropped]

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
        for entry in self._quarantine.entries():
            if entry.source.startswith("index/"):
                self._quarantine.release(entry.name)

    def _queues(self, found: RecoveryPlan, applier: Applier) -> ConsumeQueues:
        opened = self._opened
        queues = ConsumeQueues(
            opened.paths,
            opened.config.queue_file_size,
            self._seams,
            ext_file_size=opened.config.mapped_file_size_consume_queue_ext,
            writable=found.read_only is None,
        )
        self._quarantined += applier.apply_to_queue_files(found)
        self._set_strays(queues.load(), writable=found.read_only is None)
        self._quarantined += applier.apply_to_queues(found, queues)
        if found.read_only is None:
            with opened.state.changing():
                self._finish_deletions(queues)
        return queues

    def _set_strays(self, strays: list[StrayFile], *, writable: bool) -> None:
        """Note what belongs to no queue. A file of units that was cut short is out of the way of
        the one that comes in its place."""
        units = self._opened.paths.consume_queue_ext
        for stray in strays:
            is_cut = stray.reason is StrayReason.LENGTH and stray.path.is_relative_to(units)
            if is_cut and writable:
                why = f"{stray.size} bytes, a length that no other of its queue has"
                self._quarantined.append(self._quarantine.move_file(stray.path, why).name)
            else:
                self._strays.append(str(stray.path))

    def _finish_deletions(self, queues: ConsumeQueues) -> None:
        """Unlink what a halt left of deleted topics' queues."""
        for queue in queues.all():
            if queue.files.files and queue.max_physical_end() <= self._opened.deleted.below(
                queue.topic
            ):
                queues.destroy(queue.topic, queue.queue_id)

    def _dispatch(
        self,
        found: RecoveryPlan,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService,
    ) -> Dispatcher:
        """Bring the queues up to the log's end; the index goes on later."""
        config, state = self._opened.config, self._opened.state
        position = found.max_offset if found.read_only else found.dispatch_from
        is_replaced = self._options.replaces_index
        indexed = config.message_index_enable and not found.read_only and not is_replaced
        dispatcher = Dispatcher(
            commit_log,
            queues,
            index if indexed else None,
            config,
            state,
            position=position,
            deleted_below=self._opened.deleted.below,
            bitmaps=self._bitmaps,
        )
        commit_log.end.publish_to(state.words, dispatcher.end)
        first, clock = position, self._seams.clock
        while dispatcher.behind:
            before = dispatcher.position
            dispatcher.step(clock.monotonic())
            if dispatcher.position == before:
                raise DiskRefuses(
                    f"queues cannot be rebuilt beyond offset {before}; make room on the disk, "
                    "or repair it, then open again"
                )
            done = dispatcher.position - first
            self._progress("queues", done, done + dispatcher.behind)
        if found.read_only is None and found.dispatch_from <= found.min_offset:
            with state.changing():
                dispatcher.counts.holes_filled += sum(queue.fill_holes() for queue in queues.all())
        queues.correct_min(found.min_offset)
        queues.end_recovery()
        state.set_dispatched(dispatcher.position)
        return dispatcher

    def _unique_keys(
        self, found: RecoveryPlan, commit_log: CommitLog, queues: ConsumeQueues, watch: ClockWatch
    ) -> Callable[[], KeyWindow] | None:
        config = self._opened.config
        takes_puts = self._options.services and found.read_only is None
        if not (takes_puts and config.unique_key_window_count):
            return None
        clock, steps = self._seams.clock, watch.steps.view
        dispatched = found.dispatch_from
        return read_tail(commit_log, queues, config, dispatched, steps, clock.monotonic)

    # telling ------------------------------------------------------------------------------

    def _report(
        self, found: RecoveryPlan, dispatcher: Dispatcher, dropped: list[str]
    ) -> RecoveryReport:
        clock, counts = self._seams.clock, dispatcher.counts
        return RecoveryReport(
            plan=found.model_copy(update={"strays": (*found.strays, *self._strays)}),
            quarantined=tuple(self._quarantined),
            dispatched_records=dispatcher.records,
            dispatch_skipped=counts.defects,
            dispatch_lost_bytes=counts.lost_bytes,
            index_files_dropped=tuple(dropped),
            index_from=dispatcher.catch_up.position,
            accepted_loss=None if self._opened.accepted is None else self._opened.accepted.loss,
            odd=tuple(self._opened.odd),
            finished_at_ms=clock.now_ms(),
            duration_ms=round((clock.monotonic() - self._began) * 1000),
        )

    def _progress(self, stage: str, done: int, total: int) -> None:
        self._opened.state.set_recovery_progress(done, total)
        if self._options.on_progress is not None:
            self._options.on_progress(Progress(stage, done, total))


def filter_bitmaps(opened: Opened, filters: ConsumerFilters) -> FilterBitmaps | None:
    """Of the subscriptions in a store's table; None where the settings want none."""
    config = opened.config
    if not config.writes_bitmaps:
        return None
    bloom = BloomFilter.of(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    return FilterBitmaps(bloom, opened.format.rocketmq_format, filters.all())


def _step_back(
    commit_log: CommitLog, dispatcher: Dispatcher, checkpoint: Checkpoint, now_ms: int
) -> None:
    """The clock was set back: the checkpoint's times of log and queues are lowered before anything
    is stored under the new time, else a broker's recovery would take that for what was on disk
    before."""
    commit_log.clock_was_set_back(now_ms)
    dispatcher.end.last_store_timestamp_ms = min(dispatcher.end.last_store_timestamp_ms, now_ms)
    checkpoint.physic_ms = min(checkpoint.physic_ms, now_ms)
    checkpoint.logics_ms = min(checkpoint.logics_ms, now_ms)
    try:
        checkpoint.flush()
    except OSError as error:
        log.error("the checkpoint is not saved after a step of the clock: %s", error)


def _first_indexed(index: IndexService, minimum: int) -> int:
    """The physical offset from which on the index has records: files of it outlive the segments of
    their first records, and what they say of times holds while times go forward."""
    return min((minimum, *(file.header.begin_physical for file in index.files[:1])))


def _newest_store_time(found: RecoveryPlan, files: MappedFileQueue, queues: ConsumeQueues) -> int:
    """STORETIMESTAMP of the newest record, also where recovery read none; 0 without one."""
    if found.records or found.max_offset <= found.min_offset:
        return found.last_store_timestamp_ms
    last = max((_last_offset(queue) for queue in queues.all()), default=-1)
    return _last_time_from(files, last, found.max_offset) or found.last_store_timestamp_ms


def _last_time_from(files: MappedFileQueue, start: int, end: int) -> int:
    """STORETIMESTAMP of the last whole record from ``start``, or from the last segment's begin; 0
    without one."""
    newest = 0
    for file in files.files:
        base, stop = file.base_offset, min(file.size, end - file.base_offset)
        if stop <= 0 or file.end_offset <= start or (start < 0 and file.end_offset < end):
            continue
        position = max(0, start - base)
        while (position := find_record(file.view, position, stop, base, False)) >= 0:
            _, position, _, timestamp = check_run(
                file.view, position, stop, base, verify_body=False, max_records=RUN_RECORDS
            )
            newest = timestamp or newest
    return newest


def _last_offset(queue: ConsumeQueue) -> int:
    """The physical offset that a queue's last entry names, or -1."""
    entry = queue.entry(queue.max_index - 1)
    return -1 if entry is None or entry.is_hole else entry.physical_offset
