"""How an open store is put together: every part, made once and complete, in the order of opening.

``StoreCore`` is the log with everything that is derived from it, recovered and in step.
``StoreParts`` adds what works on them. Nothing runs in the background yet: ``message_store`` starts
the services, and stops them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from mqstore.storage._kernel import LogWindow
from mqstore.storage.admin.administration import Administration, AdminTables
from mqstore.storage.admin.table_saves import TableSaves
from mqstore.storage.admin.table_texts import TableTexts
from mqstore.storage.appends import Appends
from mqstore.storage.background import BackgroundServices
from mqstore.storage.dedup.puts import DeduplicatedPuts
from mqstore.storage.dedup.tail import read_tail
from mqstore.storage.dedup.window import KeyWindow
from mqstore.storage.delay.delayed_messages import DelayedMessages
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.directory_recovery import DirectoryRecovery
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.dispatch.queue_flush import QueueFlushService
from mqstore.storage.dispatch.running_manifest import RunningManifestService
from mqstore.storage.errors import StoreNotWritable
from mqstore.storage.failure import FailureState
from mqstore.storage.filter.bitmaps import FilterBitmaps
from mqstore.storage.filter.bloom import BloomFilter
from mqstore.storage.index.service import IndexService
from mqstore.storage.log.block_cover import BlockCover
from mqstore.storage.log.clock_watch import ClockWatch
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.log.follower_log import FollowerLog
from mqstore.storage.lookup.bounded_reads import LogBounds, ReadableLog
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.mapped.allocation import AllocationService
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.mapped.transient_store_pool import TransientStorePool
from mqstore.storage.mapped.warm_up import MemoryLocks
from mqstore.storage.metadata.block_guard import BlockGuard
from mqstore.storage.metadata.clock_steps import ClockSteps
from mqstore.storage.metadata.expired_unread import ExpiredUnread
from mqstore.storage.metadata.key_owners import KeyOwnersFile
from mqstore.storage.metadata.quarantine_service import QuarantineService
from mqstore.storage.metadata.write_pause import WritePause
from mqstore.storage.opening import OpenedDirectory
from mqstore.storage.options import StoreOptions
from mqstore.storage.queues.files_ahead import FilesAhead
from mqstore.storage.rebuild.index_rebuilds import IndexRebuilds
from mqstore.storage.recovery import Applier
from mqstore.storage.replication.log_epochs import LogEpochs
from mqstore.storage.replication.receiver import LogReceiver
from mqstore.storage.replication.table_copies import CopiedTables, TableCopies, read_sealed
from mqstore.storage.replication.table_feed import TableFeed, TableName
from mqstore.storage.retention.cleaner import Retention
from mqstore.storage.retention.groups import Groups
from mqstore.storage.retention.removal import Removal
from mqstore.storage.scrub.repairs import LogRepairs
from mqstore.storage.scrub.service import Scrub
from mqstore.storage.seams import Seams
from mqstore.storage.tables.checkpoint import Checkpoint
from mqstore.storage.tables.config_tables import DelayOffsets
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData

log = logging.getLogger(__name__)


class StoreCore:
    """The log, what is derived from it, and what brings both to disk, of one recovered store."""

    def __init__(
        self,
        directory: OpenedDirectory,
        recovery: DirectoryRecovery,
        failure: FailureState,
        services: BackgroundServices,
        bitmaps: FilterBitmaps | None,
    ) -> None:
        """Recover each kind of file, in order. Raises OSError and StorageError when the disk
        refuses: the store must not open then."""
        config, state, plan = directory.config, directory.state, recovery.plan
        seams, options = recovery.seams, recovery.options
        is_writable = plan.read_only is None
        takes_puts = is_writable and options.services and not options.follows
        locks = MemoryLocks()
        files = recovery.recover_log(locks)
        self.block_cover = BlockCover(files, directory.blocks) if is_writable else None
        """None where nothing may be written."""
        self.checkpoint = recovery.open_checkpoint()
        self.steps = ClockSteps(seams.files, directory.paths.clock, writable=is_writable)
        self.index = recovery.recover_index(self.checkpoint, self.steps.view)
        self.queues = recovery.recover_queues(failure.report)
        self.allocation = AllocationService(seams)
        self.clock = ClockWatch(
            self.steps, seams.clock, directory.boot_id, partial(_first_indexed, self.index)
        )
        log_kind = FollowerLog if options.follows else CommitLog
        self.log: CommitLog = log_kind(
            files,
            config,
            directory.format.rocketmq_format,
            seams,
            state,
            allocation=self.allocation,
            pool=TransientStorePool.of(config, seams.files, locks) if takes_puts else None,
            watch=self.clock,
            waits=options.waits_for_files or options.follows,
            last_store_timestamp_ms=self._least_store_time(recovery, files),
            on_flushed=self.checkpoint.set_physic_ms,
            on_synced=_ignore if self.block_cover is None else self.block_cover.cover_synced,
            on_failure=failure.report,
            on_lacking=partial(services.wake, Retention.name),
        )
        failure.add_listener(self.log.fail)
        self.read_keys = self._make_key_reader(recovery) if takes_puts else None
        """Finds the unique keys that were put lately; None where duplicates are not recognised."""
        is_indexed = config.message_index_enable and is_writable and not options.replaces_index
        self.dispatcher = Dispatcher(
            self.log,
            self.queues,
            self.index if is_indexed else None,
            config,
            state,
            position=plan.dispatch_from if is_writable else plan.max_offset,
            deleted_below=directory.deleted.below,
            bitmaps=bitmaps,
            store_format=directory.format.rocketmq_format,
        )
        self.log.end.publish_to(state.words, self.dispatcher.end)
        recovery.complete_queues(self.dispatcher, self.queues)
        self.clock.add_listener(partial(_lower_times, self.log, self.dispatcher, self.checkpoint))
        if not options.follows:
            self.log.check_clock()
        self.log.offsets.load((q.topic, q.queue_id, q.end) for q in self.queues.states())
        self.log.offsets.load_missing(directory.deleted.next_offsets())
        self.queue_flush = QueueFlushService(
            self.queues, self.index, self.dispatcher, self.checkpoint, config
        )

    def _least_store_time(self, recovery: DirectoryRecovery, files: MappedFileQueue) -> int:
        """The lower bound for the store times of later records, in ms."""
        least_ms = recovery.newest_store_time(files, self.queues)
        if not recovery.options.follows:  # a follower's records have the times of another clock
            bounds = recovery.plan.min_offset, recovery.plan.max_offset
            least_ms = self.clock.begin(bounds, least_ms)
        return max(least_ms, recovery.newest_derived_time(self.index, self.checkpoint))

    def _make_key_reader(self, recovery: DirectoryRecovery) -> Callable[[], KeyWindow] | None:
        config, clock = recovery.directory.config, recovery.seams.clock
        if not config.unique_key_window_count:
            return None
        return read_tail(self.log, self.queues, config, self.steps.view, clock.monotonic)


class StoreParts:
    """All parts of an open store: its directory, its core, and what works on them."""

    def __init__(self, directory: OpenedDirectory, seams: Seams, options: StoreOptions) -> None:
        """Recover a directory and build what works on it. Raises OSError, StorageError."""
        self.directory = directory
        self.seams = seams
        self.options = options
        config, paths = directory.config, directory.paths
        store_format = directory.format.rocketmq_format
        # Before recovery: a table that cannot be read refuses the opening.
        self.tables = AdminTables.load(paths, store_format, seams)
        delay_offsets = DelayOffsets.load(paths, store_format, seams)
        self.table_texts = TableTexts(self.tables, delay_offsets)
        bitmaps = _make_bitmaps(directory, self.tables.filters)
        recovery = DirectoryRecovery(directory, seams, options)
        self.plan = recovery.plan
        self.quarantine = recovery.quarantine
        self.failure = FailureState(
            directory.state,
            self.plan.read_only or (None if options.services else options.why_no_services),
            options.on_failure,
        )
        self.services = BackgroundServices(seams.scheduler, self.failure.report)
        self.core = core = StoreCore(directory, recovery, self.failure, self.services, bitmaps)
        self.report = recovery.report(core.dispatcher)
        self.repairs = self._make_repairs()
        self.scrub = self._make_scrub()
        bounds = LogBounds(directory.state) if options.bounds_reads else directory.state
        window = LogWindow(*bounds.bound_words)
        guard = BlockGuard(directory.blocks, window, on_damage=self.scrub.report)
        self.lookups = Lookups(core.log, core.queues, core.index, bounds, guard, core.steps.current)
        self.reads = self._make_reads()
        """Look-ups for consumers, who may see less than what is stored."""
        levels = DelayLevels(config.message_delay_level)
        self.appends = Appends(
            core.log,
            core.dispatcher,
            config,
            store_format,
            levels,
            None if options.waits_for_files else FilesAhead(core.queues, core.log),
            partial(self.services.wake, Dispatcher.name),
            seams.clock,
        )
        self.epochs = LogEpochs(
            directory.epochs,
            core.log,
            core.dispatcher,
            directory.state,
            directory.format.store_id,
            self.seams.files,
            directory.paths,
            self._require_changeable,
        )
        self.receiver = self._make_receiver()
        """Takes a leader's bytes; None in a store that leads, or is only read."""
        self.dedup = self._make_dedup(levels)
        self.delays = self._make_delays(levels, delay_offsets)
        self.write_pause = WritePause(paths.write_pause, seams)
        self.key_owners = KeyOwnersFile(paths.key_owners, seams)
        self.retention = self._make_retention()
        self.rebuilds = self._make_rebuilds()
        self.admin = self._make_administration(bitmaps)
        self.table_copies = self._make_table_copies()
        """Takes a leader's tables; None where there is no ``receiver``."""
        self.table_feed = self._make_table_feed(delay_offsets)
        """The changes of tables, for followers."""
        self.quarantine_service = QuarantineService(
            recovery.quarantine, lambda: core.dispatcher.catch_up.complete
        )
        self.running_manifest = self._make_running_manifest()

    def _make_reads(self) -> Lookups:
        directory, core = self.directory, self.core
        if not self.options.bounds_reads:
            return self.lookups
        state, window = directory.state, LogWindow(*directory.state.bound_words)
        guard = BlockGuard(directory.blocks, window, on_damage=self.scrub.report)
        log_of_readers = ReadableLog(core.log, state)
        return Lookups(log_of_readers, core.queues, core.index, state, guard, core.steps.current)

    def _make_repairs(self) -> LogRepairs:
        directory, core = self.directory, self.core
        applier = Applier(
            self.seams.files,
            directory.paths,
            directory.config,
            directory.format.rocketmq_format,
            self.quarantine,
            directory.blocks,
            directory.state.changing,
            durable=self.options.in_place,
        )
        return LogRepairs(
            replace(directory.view, truncation=None),  # it is cut
            core.log.files,
            directory.state,
            applier,
            core.block_cover,
            self.failure.report,
            self.options.fetch,
        )

    def _make_scrub(self) -> Scrub:
        directory = self.directory
        return Scrub(
            directory.paths.scrub,
            directory.config,
            self.core.log.files,
            directory.blocks,
            self.repairs,
            self.seams,
            may_repair=not self.options.follows,
            on_damage=directory.state.advance_epoch,
            on_report=partial(self.services.wake, Scrub.name),
        )

    def _make_receiver(self) -> LogReceiver | None:
        core, log_of_leader = self.core, self.core.log
        if not isinstance(log_of_leader, FollowerLog) or self.failure.why_read_only is not None:
            return None
        return LogReceiver(
            log_of_leader,
            core.dispatcher,
            self.directory.config,
            self.directory.state.changing,
            self.appends.dispatch,
            self.failure.require_none,
        )

    def _make_table_copies(self) -> TableCopies | None:
        if self.receiver is None:
            return None
        tables, admin = self.tables, self.admin
        copied = CopiedTables(
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            filters=tables.filters,
            write_pause=self.write_pause,
            expired=admin.offsets.expired,
            adopt_delays=self.delays.adopt,
            adopt_deletions=admin.topics.adopt_deletions,
            adopt_filters=admin.subscriptions.adopt_topics,
            save_offsets=admin.offsets.save,
        )
        return TableCopies(copied, self.seams.files, self._copied_metadata)

    def _make_table_feed(self, delay_offsets: DelayOffsets) -> TableFeed:
        tables, deleted, texts = self.tables, self.directory.deleted, self.table_texts
        expired = self.admin.offsets.expired
        read = partial(read_sealed, self.seams.files)
        feed = TableFeed(
            {
                TableName.DELETED_TOPICS: deleted.text,
                TableName.TOPICS: texts.topics,
                TableName.GROUPS: texts.groups,
                TableName.FILTERS: tables.filters.text,
                TableName.CONSUMER_OFFSETS: texts.consumer_offsets,
                TableName.DELAY_OFFSETS: texts.delay_offsets,
                TableName.WRITE_PAUSE: partial(read, self.write_pause.path),
                TableName.EXPIRED_UNREAD: expired.text,
                **{name: partial(read, path) for name, path in self._copied_metadata.items()},
            }
        )
        tables.topics.on_changes = partial(feed.note, TableName.TOPICS)
        tables.groups.on_changes = partial(feed.note, TableName.GROUPS)
        tables.filters.on_changes = partial(feed.note, TableName.FILTERS)
        tables.topics.on_durable = tables.groups.on_durable = self.directory.state.note_tables
        tables.offsets.on_forced = partial(feed.note, TableName.CONSUMER_OFFSETS)
        deleted.on_change = partial(feed.note, TableName.DELETED_TOPICS)
        self.write_pause.on_change = partial(feed.note, TableName.WRITE_PAUSE)
        self.key_owners.on_change = partial(feed.note, TableName.KEY_OWNERS)
        feed.look_at(TableName.CONSUMER_OFFSETS, lambda: tables.offsets.revision)
        feed.look_at(TableName.EXPIRED_UNREAD, lambda: expired.revision)
        feed.look_at(TableName.DELAY_OFFSETS, lambda: delay_offsets.revision)
        return feed

    @property
    def _copied_metadata(self) -> dict[TableName, Path]:
        """The files of ours that followers copy for the time when they lead."""
        paths = self.directory.paths
        return {
            TableName.DEAD_LETTERS: paths.dead_letters,
            TableName.ORDERED_GROUPS: paths.ordered_groups,
            TableName.KEY_OWNERS: paths.key_owners,
        }

    def _require_changeable(self) -> None:
        """Raise StoreFailed, or StoreNotWritable where topics, groups and offsets may not be
        changed: they are the leader's in a store that follows one."""
        self.failure.require_writable()
        if self.options.follows:
            raise StoreNotWritable("follower", why_follower(self.options))

    def _make_dedup(self, levels: DelayLevels) -> DeduplicatedPuts | None:
        core, appends = self.core, self.appends
        if core.read_keys is None:
            return None
        return DeduplicatedPuts(
            core.read_keys,
            core.log,
            core.queues,
            core.dispatcher,
            appends.put,
            levels,
        )

    def _make_delays(self, levels: DelayLevels, offsets: DelayOffsets) -> DelayedMessages:
        directory, core = self.directory, self.core
        return DelayedMessages(
            offsets,
            levels,
            directory.config,
            directory.format.rocketmq_format,
            core.log,
            core.queues,
            self.lookups,
            self.seams,
            directory.paths,
            self.appends.put_copy,
        )

    def _make_retention(self) -> Retention:
        directory, core = self.directory, self.core
        removal = Removal(
            core.log,
            core.queues,
            core.index,
            core.dispatcher,
            core.queue_flush,
            core.allocation,
            directory.blocks,
            self._forget_segments,
        )
        return Retention(
            directory.config,
            directory.paths,
            self.seams,
            core.log,
            core.dispatcher,
            removal,
            Groups(directory.config.keep_for_groups, core.queues, self.tables.offsets),
            self.delays.holds,
        )

    def _forget_segments(self) -> None:
        """Release segments that look-ups have read: they are about to be removed."""
        self.lookups.forget()
        self.reads.forget()

    def _make_rebuilds(self) -> IndexRebuilds:
        directory, core = self.directory, self.core
        return IndexRebuilds(
            directory.config,
            directory.format,
            directory.paths,
            core.log,
            core.index,
            core.dispatcher.catch_up,
            self.retention,
            self.seams,
        )

    def _make_administration(self, bitmaps: FilterBitmaps | None) -> Administration:
        directory, core = self.directory, self.core

        def adopt(topic: str, subscriptions: list[FilterData]) -> int:
            if bitmaps is not None:
                core.dispatcher.subscribe(topic, partial(bitmaps.replace, topic, subscriptions))
            return max(core.log.end.last_store_timestamp_ms, core.steps.view.newest_ms)

        def drop_queues(topic: str) -> None:
            with core.queue_flush.pause(), directory.state.changing():
                core.dispatcher.drop_queues(topic, directory.deleted.below(topic))

        return Administration(
            self.tables,
            directory.config,
            directory.format.rocketmq_format,
            directory.deleted,
            core.log,
            core.queues,
            self.lookups,
            self.seams.clock,
            ExpiredUnread(self.seams.files, directory.paths.expired_unread),
            adopt=adopt,
            drop_queues=drop_queues,
            require_writable=self._require_changeable,
            wake_saves=partial(self.services.wake, TableSaves.name),
        )

    def _make_running_manifest(self) -> RunningManifestService:
        directory, core = self.directory, self.core
        return RunningManifestService(
            directory.paths,
            directory.format,
            directory.config.flush_consume_queue_thorough_interval / 1000,
            self.seams.files,
            core.queues,
            core.dispatcher,
            core.queue_flush,
            core.index,
        )


def _ignore(_: object) -> None:
    """Take no notice of a sync."""


def why_follower(options: StoreOptions) -> str:
    """The text with which a store that follows a leader rejects changes."""
    return (
        f"this store follows the leader at {options.leader} and takes changes from it alone: send "
        "them there, or promote this store first"
    )


def _make_bitmaps(directory: OpenedDirectory, filters: ConsumerFilters) -> FilterBitmaps | None:
    """Bitmaps of the subscriptions in a store's table; None where the settings want none."""
    config = directory.config
    if not config.writes_bitmaps:
        return None
    bloom = BloomFilter.of(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    return FilterBitmaps(bloom, directory.format.rocketmq_format, filters.all())


def _first_indexed(index: IndexService, minimum: int) -> int:
    """Return the least physical offset that the index has, or ``minimum``.

    Index files outlive the segments of their first records; their times are right while times go
    forward.
    """
    return min((minimum, *(file.header.begin_physical for file in index.files[:1])))


def _lower_times(
    commit_log: CommitLog, dispatcher: Dispatcher, checkpoint: Checkpoint, now_ms: int
) -> None:
    """Lower the checkpoint's times of log and queues to that of a clock that was set back.

    It happens before anything is stored under the new time: else a broker's recovery would take
    that for what was on disk before.
    """
    commit_log.clock_was_set_back(now_ms)
    dispatcher.end.last_store_timestamp_ms = min(dispatcher.end.last_store_timestamp_ms, now_ms)
    checkpoint.physic_ms = min(checkpoint.physic_ms, now_ms)
    checkpoint.logics_ms = min(checkpoint.logics_ms, now_ms)
    try:
        checkpoint.flush()
    except OSError as error:
        log.error("the checkpoint is not saved after a step of the clock: %s", error)
