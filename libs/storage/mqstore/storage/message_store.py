"""The writer of a store directory: opens it, recovers it, and composes everything else.

Called from the store-writer service, from ``mqstore store dump`` and from tests. One process may
hold a directory open this way (RocketMQ's own ``lock`` file); readers use ``store_reader``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import Lock

from mqstore.storage._kernel import LogWindow
from mqstore.storage.admin.administration import Administration, AdminTables
from mqstore.storage.admin.topics import TopicChange, TopicDeletion
from mqstore.storage.appends import Appends
from mqstore.storage.assembly import Assembly, Parts, filter_bitmaps
from mqstore.storage.codec.hosts import parse_host
from mqstore.storage.config import StoreConfig
from mqstore.storage.delay.delayed_messages import DelayedMessages
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import (
    DiskRefuses,
    FlushTimeout,
    StoreFailed,
    StoreNotWritable,
)
from mqstore.storage.index.service import IndexService
from mqstore.storage.log.clock_watch import ClockService, ClockWatch
from mqstore.storage.log.commit import CommitService
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.log.flush import FlushService
from mqstore.storage.log.put_refusal import PutRefusal
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.once.puts import OncePuts
from mqstore.storage.opening import Opened, open_directory
from mqstore.storage.options import Durability, Progress, StoreOptions
from mqstore.storage.own import store_lock
from mqstore.storage.own.block_guard import BlockGuard
from mqstore.storage.own.clock_steps import StepsView
from mqstore.storage.own.lock_watch import LockWatch
from mqstore.storage.own.quarantine_service import QuarantineService
from mqstore.storage.own.running_manifest import RunningManifestService
from mqstore.storage.own.state_page import Health, StatePage
from mqstore.storage.own.write_pause import WritePause
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.queues.files_ahead import FilesAhead
from mqstore.storage.rebuild.index_rebuilds import IndexRebuilds
from mqstore.storage.recovery import RecoveryReport
from mqstore.storage.recovery.report import LISTED_MAX, RepairPlan, RepairReport
from mqstore.storage.retention.cleaner import Retention
from mqstore.storage.retention.plan import RetentionPlan
from mqstore.storage.scrub.repairs import LogRepairs
from mqstore.storage.scrub.service import Scrub, ScrubProgress
from mqstore.storage.seams import BackgroundService, Seams, ServiceHandle
from mqstore.storage.store_status import SegmentInfo, StoreStatus
from mqstore.storage.system.atomic_file import put_in_place, remove_file
from mqstore.storage.system.overlay_files import make_overlay
from mqstore.storage.tables.config_tables import DelayOffsets, TopicConfig

__all__ = [
    "Durability",
    "MessageStore",
    "Progress",
    "SegmentInfo",
    "StoreOptions",
    "StoreStatus",
]

log = logging.getLogger(__name__)


class MessageStore:
    """An open store. Every method may be called from any thread.

    ``append`` stores messages and never waits for a sync; ``wait`` does: both as of ``Appends``. A
    caller with an event loop calls ``flush.request`` instead of ``wait``.
    """

    @classmethod
    def open(
        cls, root: Path, config: StoreConfig, seams: Seams, options: StoreOptions | None = None
    ) -> MessageStore:
        """Lock, check, recover and start. ``root`` is absolute.

        A store that may only be read (damage that needs a person) opens with ``read_only_reason``
        set. Raises StoreLocked, DirectoryNotUsable, DiskRefuses (a later opening may succeed),
        DataMissing (nothing has changed, and with ``in_place`` False it opens for reading),
        StoreOfAnother, StoreUnsupported, StoreDamaged, ConfigTableError.
        """
        options = options or StoreOptions()
        if not options.in_place:
            seams = replace(seams, files=make_overlay(seams.files))
        opened = open_directory(root, config, seams, options)
        try:
            return cls(opened, seams, options)
        except OSError as error:
            opened.lock.release()
            raise store_lock.not_usable(
                f"{root} cannot be recovered ({error}); check its permissions and its disk", error
            ) from error
        except StoreFailed as error:
            opened.lock.release()
            raise DiskRefuses(f"{root} cannot be recovered: {error}") from error
        except BaseException:
            opened.lock.release()
            raise

    def __init__(self, opened: Opened, seams: Seams, options: StoreOptions) -> None:
        """Use ``open``."""
        self._seams = seams
        self._options = options
        self._opened = opened
        self._services: list[ServiceHandle] = []
        self._retention_handle: ServiceHandle | None = None
        self._scrub_handle: ServiceHandle | None = None
        self._failure: BaseException | None = None
        self._closing = Lock()
        self._closed = False
        self.config: StoreConfig = opened.config
        """As opened: sizes are those of the files."""
        self.paths: StorePaths = opened.paths
        self.format = opened.format.rocketmq_format
        self.store_id = opened.format.store_id
        self.shard = opened.format.shard
        self.epoch = opened.format.epoch
        self.host = parse_host(options.store_host)
        """STOREHOST of what is put; a Message's ``store_host`` should be this."""
        tables = opened.paths, self.format, seams
        admin_tables = AdminTables.load(*tables)
        bitmaps = filter_bitmaps(opened, admin_tables.filters)
        self._parts: Parts = Assembly(opened, seams, options, self._fail, bitmaps).run()
        self.log: CommitLog = self._parts.log
        self.queues: ConsumeQueues = self._parts.queues
        self.index: IndexService = self._parts.index
        self.dispatcher: Dispatcher = self._parts.dispatcher
        self.state: StatePage = opened.state
        self.flush: FlushService = self.log.flush
        self.commits: CommitService | None = self.log.commits
        """There with a TransientStorePool: what is put counts once it is committed."""
        ahead = None if options.waits_for_files else FilesAhead(self.queues, self.log)
        self._appends = Appends(self.log, self.dispatcher, self.config, self.format, ahead)
        self.append = self._appends.append
        self.wait = self._appends.wait
        self.recovery: RecoveryReport = self._parts.report
        self.repairs = LogRepairs(
            opened,
            self.log.files,
            seams,
            self._parts.quarantine,
            self._parts.block_cover,
            durable=options.in_place,
            on_failure=self._fail,
        )
        self.scrub = Scrub(opened, self.log.files, seams, self.state.advance_epoch, self.repairs)
        window = LogWindow(*self.state.bound_words)
        guard = BlockGuard(opened.blocks, window, on_damage=self.scrub.report)
        self.lookups = Lookups(
            self.log, self.queues, self.index, self.state, guard, self._steps_of_clock
        )
        self.clock: ClockWatch = self._parts.watch
        """Records steps of the wall clock."""
        self.delays = DelayedMessages(
            DelayOffsets.load(*tables),
            opened.config,
            self.format,
            self.log,
            self.queues,
            self.lookups,
            seams.clock,
            self._appends.put_copy,
            self._shift_ms,
        )
        self._appends.delays = self.delays
        self.write_pause = WritePause(opened.paths.write_pause, seams)
        """For who puts on behalf of clients to look at; the engine itself goes on."""
        self.retention = Retention(
            self._parts, seams, admin_tables.offsets, self.delays.holds, self.lookups.forget
        )
        self.rebuilds = IndexRebuilds(self._parts, self.retention, seams)
        self._admin = Administration(
            admin_tables,
            opened,
            self.log,
            self.queues,
            self.lookups,
            seams,
            self._parts.adopt,
            self._drop_queues,
            self._require_writable,
        )
        self.groups = self._admin.groups
        self.offsets = self._admin.offsets
        self.subscriptions = self._admin.subscriptions
        self.once = self._appends.once = self._once_puts()
        """Which unique keys are known; None when that is switched off, or nothing may be put."""
        self.quarantine = QuarantineService(
            self._parts.quarantine, lambda: self.dispatcher.catch_up.complete
        )
        self._running = RunningManifestService(
            opened, seams.files, self.queues, self.dispatcher, self._parts.queue_flush, self.index
        )
        self._begin()

    def _once_puts(self) -> OncePuts | None:
        keys = self._parts.keys
        if keys is None:
            return None
        return OncePuts(keys, self.log, self.queues, self.dispatcher, self._appends.append_all)

    # topics -------------------------------------------------------------------------------

    def topics(self) -> list[TopicConfig]:
        """Every topic of topics.json, and those that only have queues, by name."""
        return self._admin.topics.all()

    def topic(self, name: str) -> TopicConfig:
        """Raises TopicUnknown."""
        return self._admin.topics.get(name)

    def put_topic(self, name: str, change: TopicChange) -> TopicConfig:
        """Create, or change, a topic; durable in config/topics.json at return.

        Raises TopicNameError, TopicConfigError, StoreNotWritable, OSError.
        """
        return self._admin.topics.put(name, change)

    def create_topic(self, name: str, *, queues: int = 4, perm: int = 6) -> TopicConfig:
        """``put_topic`` with as many queues to read as to write."""
        return self.put_topic(name, TopicChange(queues, queues, perm))

    def plan_topic_deletion(self, name: str) -> TopicDeletion:
        """What ``delete_topic`` would take. Raises TopicNameError, TopicUnknown."""
        return self._admin.topics.plan_delete(name, self.offsets)

    def delete_topic(self, name: str) -> TopicDeletion:
        """Delete a topic, its queues, what groups have consumed of it and their subscriptions;
        durable at return. Its messages stay in the log until retention takes them.

        Raises TopicNameError, TopicUnknown, StoreNotWritable, FlushTimeout, StoreFailed, OSError.
        """
        return self._admin.delete_topic(name)

    def _drop_queues(self, topic: str) -> None:
        with self._parts.queue_flush.pause(), self.state.changing():
            self.dispatcher.drop_queues(topic)

    def _require_writable(self) -> None:
        if self._failure is not None:
            raise StoreFailed(str(self._failure))
        if (reason := self.read_only_reason) is not None:
            raise StoreNotWritable("read-only", f"nothing can be changed: {reason}")

    def _shift_ms(self, offset: int) -> int:
        return self.clock.steps.view.shift_ms(offset)

    def _steps_of_clock(self) -> StepsView:
        return self.clock.steps.view

    # telling ------------------------------------------------------------------------------

    @property
    def read_only_reason(self) -> str | None:
        """Why nothing may be put, or None."""
        if self._failure is not None:
            return str(self._failure)
        if self._parts.plan.read_only is None and not self._options.services:
            return self._options.why_no_services
        return self._parts.plan.read_only

    @property
    def put_refusal(self) -> PutRefusal | None:
        """Why the next put of a client would be rejected; None if it would not."""
        refusal, pause = self.log.put_refusal, self.write_pause.current
        if refusal is None and pause is not None:
            return PutRefusal("paused", pause.reason, {"sinceMs": pause.since_ms})
        return refusal

    @property
    def failure(self) -> BaseException | None:
        """What ended this store: nothing is acknowledged any more."""
        return self._failure

    @property
    def index_trouble(self) -> str | None:
        """Why keys may be missed until the index is rebuilt, or None."""
        return self.dispatcher.catch_up.trouble

    def status(self) -> StoreStatus:
        """Raises OSError when the volume cannot be asked for its room."""
        usage = self._seams.files.usage(self.paths.commit_log)
        return StoreStatus(
            store_id=self.store_id,
            shard=self.shard,
            epoch=self.epoch,
            format=self.format.value,
            health=self.state.health.name.lower(),
            root=str(self.paths.root),
            commit_log=str(self.paths.commit_log),
            min_offset=self.log.min_offset,
            max_offset=self.log.max_offset,
            flushed_offset=self.log.flushed_offset,
            dispatched_offset=self.dispatcher.position,
            segments=len(self.log.files.files),
            segment_size=self.config.mapped_file_size_commit_log,
            topics=len(self.topics()),
            queues=len(self.queues.all()),
            index_files=len(self.index.files),
            index_complete=self.dispatcher.catch_up.complete,
            index_offset=self.dispatcher.catch_up.position,
            hash_slots=self.index.slots,
            index_num=self.index.index_num,
            index_trouble=self.index_trouble,
            damaged_stretches=self.dispatcher.counts.defects,
            disk_total=usage.total,
            disk_used=usage.used,
            disk_free=usage.free,
            read_only_reason=self.read_only_reason,
        )

    def segments(self) -> list[SegmentInfo]:
        """The log's files, oldest first."""
        found = []
        for file in self.log.files.files:
            stat = self._seams.files.stat(file.path)
            if stat is not None:
                name, offset, used = file.path.name, file.base_offset, file.wrote_position
                found.append(SegmentInfo(name, offset, file.size, used, stat.modified_ms))
        return found

    def expire(self, segments: int) -> int:
        """Unlink up to so many segments whatever their age, the oldest first and never the last,
        and what is derived from them alone; returns how many went. What is not dispatched stays.
        Raises StoreFailed, OSError.
        """
        try:
            return self.retention.remove_oldest(segments)
        except (OSError, StoreFailed) as error:
            self._fail(error)
            raise

    def run_retention(self) -> RetentionPlan:
        """Let what has expired go now, whatever the hour; the plan of it.

        Raises StoreNotWritable, StoreFailed.
        """
        self._require_writable()
        plan = self.retention.run()
        if self._retention_handle is not None:
            self._retention_handle.wake()
        return plan

    def run_scrub(self) -> ScrubProgress:
        """Have a pass over all checksums begin now, unless one runs; how far it is.

        Raises StoreNotWritable where none can run: a store that is only read.
        """
        if self._scrub_handle is None:
            raise StoreNotWritable("read-only", "nothing is scrubbed here: the store is only read")
        progress = self.scrub.request()
        self._scrub_handle.wake()
        return progress

    def report_damage(self, offsets: Iterable[int]) -> int:
        """Have the scrub check the blocks that hold these physical offsets, and treat a damaged one
        as one that a pass found. Returns how many blocks wait for it. Offsets outside of the log
        are ignored.

        Raises StoreNotWritable where nothing is scrubbed: a store that is only read.
        """
        if self._scrub_handle is None:
            raise StoreNotWritable("read-only", "nothing is scrubbed here: the store is only read")
        self.scrub.report_all(offsets)
        return self.scrub.waiting

    def plan_repairs(self) -> RepairPlan:
        """Plan the changes of ``repair_damage``; reads the whole log and changes nothing."""
        return self.repairs.plan()

    def repair_damage(self, progress: Callable[[int, int], None] | None = None) -> RepairReport:
        """Scan the whole log and repair its damage: restore the bytes that block checksums prove,
        and replace other damaged records by tombstones. Quarantine keeps the damaged bytes.

        Raises StoreNotWritable, RepairRefused (nothing was changed), StoreFailed.
        """
        if self._failure is not None:
            raise StoreFailed(str(self._failure))
        if (reason := self._parts.plan.read_only) is not None:
            raise StoreNotWritable("read-only", f"nothing can be repaired: {reason}")
        return self.scrub.repair(progress=progress)

    def wait_for_index(self) -> None:
        """Bring the index up to the log's end, in the caller's thread. Raises OSError."""
        self.dispatcher.run_to_end()

    # life ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        read_only = self._parts.plan.read_only
        if self.read_only_reason is None:
            self._lower_offsets()
        if read_only is not None:
            self.log.refuse_puts("read-only", read_only)
        elif not self._options.services:
            self.log.refuse_puts("read-only", self._options.why_no_services)
        self._save_report()
        # Last, as nobody could stop them again if the disk refused anything here.
        if self.read_only_reason is None:
            self._start_services()
        self.state.set_health(Health.READY if read_only is None else Health.READ_ONLY)

    def _save_report(self) -> None:
        """For people: a full disk does not keep a store shut for want of it, and its directory is
        not synced."""
        text = self.recovery.model_dump_json(by_alias=True, indent=2) + "\n"
        try:
            put_in_place(self._seams.files, self.paths.recovery_report, text.encode())
        except OSError as error:
            log.warning("%s cannot be saved: %s", self.paths.recovery_report, error)

    def _lower_offsets(self) -> None:
        """Lower offsets that are behind their queue's end, before the first put: a group with such
        an offset would skip new messages."""
        lowered = [*self.offsets.lower_to_ends(), *self.delays.lower_to_ends()]
        for each in lowered[:LISTED_MAX]:
            log.error("an offset was behind its queue's end, and is lowered: %s", each)
        self.recovery = self.recovery.model_copy(
            update={
                "lowered_offsets": tuple(lowered[:LISTED_MAX]),
                "lowered_offset_count": len(lowered),
            }
        )

    def _start_services(self) -> None:
        self.flush.start()
        self._parts.allocation.start(self._fail)
        self._appends.wake_dispatch = self._start(self.dispatcher).wake
        self._start(self._parts.queue_flush)
        self._start(self._running)
        self._start(LockWatch(self._opened.lock))
        self._start(ClockService(self.log.look_at_clock))
        if self.commits is not None:
            self.commits.start(self._appends.dispatch)
        if self._parts.block_cover is not None:
            self._start(self._parts.block_cover)
        self._retention_handle = self._start(self.retention)
        self.log.lacking.on_change = self._retention_handle.wake
        self._start(self.offsets)
        self._start(self.rebuilds)
        self._start(self.quarantine)
        if self.once is not None:
            self._start(self.once)
        if self._options.scrubs:
            self._scrub_handle = self._start(self.scrub)
            self.scrub.on_report = self._scrub_handle.wake
        if self._options.deliver_delayed:
            self._start(self.delays.service)

    def _start(self, service: BackgroundService) -> ServiceHandle:
        handle = self._seams.scheduler.start(service, self._fail)
        self._services.append(handle)
        return handle

    def _fail(self, error: BaseException) -> None:
        """A sync failed, or a service ended: from here on nothing is acknowledged."""
        if self._failure is not None:
            return
        self._failure = error
        log.critical("the store failed: %s", error)
        self.log.refuse_puts("failed", f"the store failed: {error}")
        failure = error if isinstance(error, StoreFailed) else StoreFailed(str(error))
        self.flush.fail(failure)
        if self.commits is not None:
            self.commits.fail(failure)
        self.state.set_health(Health.FAILED)
        if self._options.on_failure is not None:
            self._options.on_failure(error)

    def close(self) -> None:
        """Stop services, bring everything to the disk, write the checkpoint and the clean-close
        manifest, remove ``abort``, release the lock. Idempotent.

        Raises StoreFailed when the disk refuses; ``abort`` then stays.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self.log.refuse_puts("closing", "the store is closing")
            try:
                self.rebuilds.close()
                self._stop_services()
                if self._failure is None and self._parts.plan.read_only is None:
                    self._close_cleanly()
            except (OSError, FlushTimeout) as error:
                raise StoreFailed(f"the store could not be closed cleanly: {error}") from error
            finally:
                self._release()

    def _stop_services(self) -> None:
        had_failed = self._failure is not None
        for handle in self._services:
            handle.stop()
        self._parts.allocation.close()
        self.queues.end_ahead()
        refused: StoreFailed | None = None
        for service in (self.commits, self.flush):
            try:
                if service is not None:
                    service.stop()
            except StoreFailed as error:
                refused = error
        if refused is not None and not had_failed:
            raise refused

    def _close_cleanly(self) -> None:
        self._opened.lock.require()
        self._hand_over()
        dispatcher = self.dispatcher
        dispatcher.finish(self._seams.clock)
        self.delays.save()
        self.offsets.save()
        dispatcher.close()
        newest = self.log.last_store_timestamp_ms
        if newest:
            self._parts.checkpoint.physic_ms = newest
        self._parts.queue_flush.flush_all(closing=True)
        if self._parts.block_cover is not None:
            self._parts.block_cover.close()
        if dispatcher.behind or dispatcher.catch_up.behind or self._owes_index:
            return  # `abort` stays: a broker then makes the rest, as RocketMQ does
        self._running.note_clean_close(self.log)
        remove_file(self._seams.files, self.paths.abort)
        self.state.set_health(Health.CLOSED)
        self.state.sync()

    def _hand_over(self) -> None:
        """Repair what the scrub has found, or report loudly that it stays: a broker that opens the
        store next cuts its log at the first record that it cannot read."""
        if self._options.scrubs:
            self.scrub.repair_known()
        if count := self.scrub.progress.finding_count:
            log.error(
                "the store is closed with %d damaged places in its log, the first at offset %d: a "
                "broker may cut all that is behind one; run `mqstore store verify %s`, then "
                "`mqstore store repair`",
                count,
                min(each.offset for each in self.scrub.progress.findings),
                self.paths.root,
            )

    @property
    def _owes_index(self) -> bool:
        """Whether a store that was not closed cleanly was to get a new index, and did not."""
        is_owed = self._options.replaces_index and not self.index.is_published
        return is_owed and self._parts.plan.path != "normal"

    def _release(self) -> None:
        self.dispatcher.close()
        self.lookups.forget()
        self.log.close()
        self.queues.close()
        self.index.close()
        self._parts.checkpoint.close()
        self.state.close()
        self._opened.lock.release()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
