"""The writer of a store directory: opens it, recovers it, and composes everything else.

Called from store-writer, ``mqstore store dump`` and tests. One process may hold a directory open
this way (RocketMQ's own ``lock`` file); readers use ``store_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import overload

from mqstore.storage._kernel import EncodedBatch
from mqstore.storage.admin.topics import QueueReduction, TopicChange, TopicDeletion
from mqstore.storage.assembly import StoreParts, why_follower
from mqstore.storage.codec.hosts import parse_host
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.dedup.puts import (
    NO_REPEATS,
    DeduplicatedPuts,
    Keys,
    Originals,
    Put,
)
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
from mqstore.storage.log.commit_log import CommitLog, Placement
from mqstore.storage.log.flush import FlushService
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.lookup.log_stream import LogStream
from mqstore.storage.metadata import store_lock
from mqstore.storage.metadata.lock_watch import LockWatch
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.opening import open_directory
from mqstore.storage.options import NEXT_EPOCH, Durability, Progress, StoreOptions
from mqstore.storage.paths import StorePaths
from mqstore.storage.put_refusal import PutRefusal
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.recovery import RecoveryReport
from mqstore.storage.recovery.report import LISTED_MAX, RepairPlan, RepairReport
from mqstore.storage.retention.plan import RetentionPlan
from mqstore.storage.scrub.service import ScrubProgress
from mqstore.storage.seams import Seams
from mqstore.storage.store_status import SegmentInfo, StoreStatus
from mqstore.storage.system.atomic_file import put_in_place, remove_file
from mqstore.storage.system.overlay_files import make_overlay
from mqstore.storage.tables.config_tables import TopicConfig

__all__ = [
    "Durability",
    "MessageStore",
    "Progress",
    "SegmentInfo",
    "StoreOptions",
    "StoreStatus",
]

log = bounded_log(__name__)


class MessageStore:
    """An open store. Every method may be called from any thread.

    ``append`` stores messages and never waits for a sync; ``wait`` does. A caller with an event
    loop calls ``flush.request`` instead of ``wait``.
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
        directory = open_directory(root, config, seams, options)
        try:
            return cls(StoreParts(directory, seams, options))
        except OSError as error:
            directory.lock.release()
            raise store_lock.not_usable(
                f"{root} cannot be recovered ({error}); check its permissions and its disk", error
            ) from error
        except StoreFailed as error:
            directory.lock.release()
            raise DiskRefuses(f"{root} cannot be recovered: {error}") from error
        except BaseException:
            directory.lock.release()
            raise

    def __init__(self, parts: StoreParts) -> None:
        """Use ``open``. Starts the services of ``parts``; OSError when the disk refuses."""
        directory, core = parts.directory, parts.core
        self._parts = parts
        self._put_message = core.log.end.put_message
        self._closing = Lock()
        self._closed = False
        self.config: StoreConfig = directory.config
        """As opened: sizes are those of the files."""
        self.paths: StorePaths = directory.paths
        self.format = directory.format.rocketmq_format
        self.store_id = directory.format.store_id
        self.shard = directory.format.shard
        self.epoch = directory.format.epoch
        self.host = parse_host(parts.options.store_host)
        """STOREHOST of stored messages; a Message's ``store_host`` should be this."""
        self.state: StatePage = directory.state
        self.log: CommitLog = core.log
        self.queues: ConsumeQueues = core.queues
        self.index: IndexService = core.index
        self.dispatcher: Dispatcher = core.dispatcher
        self.flush: FlushService = core.log.flush
        self.commits: CommitService | None = core.log.commits
        """Set with a TransientStorePool: messages count once they are committed."""
        self.clock: ClockWatch = core.clock
        """Records steps of the wall clock."""
        self.recovery: RecoveryReport = parts.report
        self.repairs = parts.repairs
        self.scrub = parts.scrub
        self.epochs = parts.epochs
        """The epochs of the log: its leaders, and the offsets from which they led."""
        self.lookups = parts.lookups
        """Find all that is stored."""
        self.reads = parts.reads
        """Find what consumers may see: with ``StoreOptions.bounds_reads`` what is confirmed."""
        self.dedup: DeduplicatedPuts | None = parts.dedup
        """Which unique keys are known; None when that is switched off, or nothing may be put."""
        self.receiver = parts.receiver
        """Takes the leader's bytes in a store that follows one; else None."""
        self.table_copies = parts.table_copies
        """Takes the leader's tables in a store that follows one; else None."""
        self.table_feed = parts.table_feed
        """The changes of tables, for followers."""
        self.delays = parts.delays
        self.write_pause = parts.write_pause
        """For services that put on behalf of clients; the engine itself ignores it."""
        self.key_owners = parts.key_owners
        """For services of several shards; the engine itself ignores it."""
        self.retention = parts.retention
        self.rebuilds = parts.rebuilds
        self.groups = parts.admin.groups
        self.topics_page = parts.admin.topics.page
        self.offsets = parts.admin.offsets
        self.subscriptions = parts.admin.subscriptions
        self.quarantine = parts.quarantine_service
        self.table_texts = parts.table_texts
        self.log_stream = LogStream(
            core.log, parts.seams.files, self.config.mapped_file_size_commit_log
        )
        """The log as bytes, for replicas."""
        self._begin()

    # messages -----------------------------------------------------------------------------

    @overload
    def append(self, batch: Message) -> Placement: ...
    @overload
    def append(
        self,
        batch: Sequence[Message] | EncodedBatch,
        idempotency: Keys | None = None,
        *,
        as_batch: bool = False,
        originals: Originals | None = None,
        reads_max: int | None = None,
    ) -> Put: ...
    def append(
        self,
        batch: Message | Sequence[Message] | EncodedBatch,
        idempotency: Keys | None = None,
        as_batch: bool = False,  # not keyword-only at run time: each of those costs 20 ns a call
        originals: Originals | None = None,
        reads_max: int | None = None,
    ) -> Placement | Put:
        """Append one message, or several: contiguous, in one segment, all or none.

        Never waits for a sync (see ``wait``). The messages are readable before it returns when
        dispatch is caught up, else soon after.

        A sequence may hold messages of any topics and queues. As in RocketMQ's put of one message,
        a message with a DELAY property is delivered when it is due; until then it stands where its
        placement says. With ``as_batch`` RocketMQ's rules of a batch apply: one topic and queue,
        no transaction types, at most maxMessageSize for all messages together; DELAY and further
        queues have no effect.

        With ``idempotency``, the unique keys that the client gave (``EncodedBatch.given``), a
        message that was stored before under its key is not stored again. Wait for ``end_of`` the
        result: a duplicate ends where the original ends. ``originals`` and ``reads_max`` as of
        ``DeduplicatedPuts.append``.

        Raises PutRefused, StoreFailed; FilePending as ``StoreOptions.waits_for_files`` says; with
        ``idempotency`` UniqueKeyTaken and OriginalsUnread. Nothing is stored then.
        """
        if type(batch) is Message:
            placement = self._put_message(batch)
            return placement if type(placement) is Placement else self._parts.appends.append(batch)
        if type(batch) is not EncodedBatch:
            encoded = self.log.encode(batch, as_batch=as_batch)
            if idempotency is not None:
                encoded.name_all(idempotency)
            batch = encoded
        if batch.given is None or self.dedup is None:
            return self._parts.appends.put(batch), NO_REPEATS
        return self.dedup.append(batch, originals=originals, reads_max=reads_max)

    def wait(self, end: int, durability: Durability | None = None) -> None:
        """Wait until all below a physical offset is readable and as durable as requested; default
        durability follows flushDiskType. A caller with an event loop uses ``commits`` and
        ``flush.request(end)``. Raises FlushTimeout (stored, maybe not on disk), StoreFailed.
        """
        self._parts.appends.wait(end, durability)

    def confirm(self, offset: int, in_sync: int) -> None:
        """Publish the number of copies in sync, the leader included; each has the log on its disk
        up to ``offset``, the end of a record. A lower one changes nothing for readers."""
        self.state.confirm(offset, in_sync)

    # topics -------------------------------------------------------------------------------

    def topics(self) -> list[TopicConfig]:
        """Every topic of topics.json, and those that only have queues, by name."""
        return self._parts.admin.topics.all()

    def topic(self, name: str) -> TopicConfig:
        """Raises TopicUnknown."""
        return self._parts.admin.topics.get(name)

    def put_topic(self, name: str, change: TopicChange) -> TopicConfig:
        """Create or change a topic, durably. Errors as ``Topics.put``."""
        return self._parts.admin.topics.put(name, change)

    def plan_topic_change(self, name: str, change: TopicChange) -> QueueReduction:
        """Return what ``put_topic`` would hide. Raises TopicNameError, TopicConfigError."""
        return self._parts.admin.topics.plan_change(name, change, self.offsets)

    def create_topic(self, name: str, *, queues: int = 4, perm: int = 6) -> TopicConfig:
        """``put_topic`` with as many queues to read as to write."""
        return self.put_topic(name, TopicChange(queues, queues, perm))

    def create_topic_by_producer(self, name: str) -> TopicConfig:
        """Create a topic for its first message. Errors as ``Topics.create_by_producer``."""
        return self._parts.admin.topics.create_by_producer(name)

    def plan_topic_deletion(self, name: str) -> TopicDeletion:
        """Return what ``delete_topic`` would delete. Raises TopicNameError, TopicUnknown."""
        return self._parts.admin.topics.plan_delete(name, self.offsets)

    def delete_topic(self, name: str) -> TopicDeletion:
        """Delete a topic, its queues, groups' offsets in it and subscriptions to it; durable at
        return. Retention deletes its messages. Errors as ``Topics.delete``."""
        return self._parts.admin.delete_topic(name)

    # status -------------------------------------------------------------------------------

    @property
    def read_only_reason(self) -> str | None:
        """Why nothing may be put, or None."""
        return self._parts.failure.why_read_only

    @property
    def put_refusal(self) -> PutRefusal | None:
        """Why the next put of a client would be rejected; None if it would not."""
        refusal, pause = self.log.put_refusal, self.write_pause.current
        if refusal is None and pause is not None:
            return PutRefusal("paused", pause.reason, {"sinceMs": pause.since_ms})
        return refusal

    @property
    def failure(self) -> BaseException | None:
        """The error that ended this store; nothing is acknowledged after it. Else None."""
        return self._parts.failure.error

    @property
    def index_trouble(self) -> str | None:
        """Why keys may be missed until the index is rebuilt, or None."""
        return self.dispatcher.catch_up.trouble

    def status(self) -> StoreStatus:
        """Report the store's state at this moment. OSError if the volume's room is unknown."""
        usage = self._parts.seams.files.usage(self.paths.commit_log)
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
            topics=self._parts.admin.topics.count(),
            queues=self.queues.count,
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
            stat = self._parts.seams.files.stat(file.path)
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
            self._parts.failure.report(error)
            raise

    def run_retention(self) -> RetentionPlan:
        """Let what has expired go now, whatever the hour; the plan of it.

        Raises StoreNotWritable, StoreFailed.
        """
        self._parts.failure.require_writable()
        plan = self.retention.run()
        self._parts.services.wake(self.retention.name)
        return plan

    def run_scrub(self) -> ScrubProgress:
        """Have a pass over all checksums begin now, unless one runs; how far it is.

        Raises StoreNotWritable where none can run: a store that is only read.
        """
        self._require_scrub()
        progress = self.scrub.request()
        self._parts.services.wake(self.scrub.name)
        return progress

    def report_damage(self, offsets: Iterable[int]) -> int:
        """Have the scrub check the blocks that hold these physical offsets, and treat a damaged one
        as one that a pass found. Returns how many blocks wait for it. Offsets outside of the log
        are ignored.

        Raises StoreNotWritable where nothing is scrubbed: a store that is only read.
        """
        self._require_scrub()
        self.scrub.report_all(offsets)
        return self.scrub.waiting

    def _require_scrub(self) -> None:
        if not self._parts.services.runs(self.scrub.name):
            raise StoreNotWritable("read-only", "nothing is scrubbed here: the store is only read")

    def plan_repairs(self) -> RepairPlan:
        """Plan the changes of ``repair_damage``; reads the whole log and changes nothing."""
        return self.repairs.plan()

    def repair_damage(self, progress: Callable[[int, int], None] | None = None) -> RepairReport:
        """Scan the whole log and repair its damage: restore the bytes that block checksums prove,
        and replace other damaged records by tombstones. Quarantine keeps the damaged bytes.

        Raises StoreNotWritable, RepairRefused (nothing was changed), StoreFailed.
        """
        self._parts.failure.require_none()
        if (reason := self._parts.plan.read_only) is not None:
            raise StoreNotWritable("read-only", f"nothing can be repaired: {reason}")
        return self.scrub.repair(progress=progress)

    def wait_for_index(self, progress: Callable[[int, int], None] = lambda *_: None) -> None:
        """Bring the index up to the log's end, in the caller's thread. Raises OSError."""
        self.dispatcher.run_to_end(progress)

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch, as the leader that puts from now on; durable at return. Nothing may have
        been put, delayed messages included: ``StoreOptions.epoch`` does it in time.

        Raises EpochNotNewer, StoreNotWritable, OSError.
        """
        self.epochs.begin(epoch)

    # life ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        plan = self._parts.plan
        read_only = plan.read_only
        if self.read_only_reason is None and not self._parts.options.follows:
            self._lower_offsets()
        if read_only is not None:
            self.log.refuse_puts("read-only", read_only)
        elif not self._parts.options.services:
            self.log.refuse_puts("read-only", self._parts.options.why_no_services)
        elif self._parts.options.follows:
            self.log.refuse_puts("follower", why_follower(self._parts.options))
            self.epochs.hide_uncompared()
        elif (epoch := self._parts.options.epoch) is not None and plan.first_given_up is None:
            self.begin_epoch(self.epochs.newest + 1 if epoch == NEXT_EPOCH else epoch)
        self._save_report()
        # Last: if the disk refused anything here, the services would not be stopped again.
        if self.read_only_reason is None:
            self._start_services()
        self.state.set_health(Health.READY if read_only is None else Health.READ_ONLY)

    def _save_report(self) -> None:
        """For people: a full disk does not keep a store shut for want of it, and its directory is
        not synced."""
        text = self.recovery.model_dump_json(by_alias=True, indent=2) + "\n"
        try:
            put_in_place(self._parts.seams.files, self.paths.recovery_report, text.encode())
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
        parts, core = self._parts, self._parts.core
        services, options = parts.services, parts.options
        self.flush.start()
        core.allocation.start(parts.failure.report)
        services.start(self.dispatcher)
        services.start(core.queue_flush)
        services.start(parts.running_manifest)
        services.start(LockWatch(parts.directory.lock))
        if self.commits is not None:
            self.commits.start(parts.appends.dispatch)
        if core.block_cover is not None:
            services.start(core.block_cover)
        services.start(self.retention)
        services.start(self.offsets)
        services.start(parts.admin.table_saves)
        services.start(self.rebuilds)
        services.start(self.quarantine)
        if self.dedup is not None:
            services.start(self.dedup)
        if options.scrubs:
            services.start(self.scrub)
        if not options.follows:
            self._start_services_of_leader(options)

    def _start_services_of_leader(self, options: StoreOptions) -> None:
        """Start the services that write to the log; in a follower they would make it differ from
        the leader's."""
        services = self._parts.services
        services.start(ClockService(self.log.check_clock))
        if options.deliver_delayed:
            services.start(self.delays.service)
            services.start(self.delays.timer)

    def close(self) -> None:
        """Stop services, bring everything to the disk, write the checkpoint and the clean-close
        manifest, remove ``abort``, release the lock. Idempotent.

        Raises StoreFailed when the disk refuses; ``abort`` then stays.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            if self.receiver is not None:
                self.receiver.close()
            self.log.refuse_puts("closing", "the store is closing")
            try:
                self.rebuilds.close()
                self._stop_services()
                if self.failure is None and self._parts.plan.read_only is None:
                    self._close_cleanly()
            except (OSError, FlushTimeout) as error:
                raise StoreFailed(f"the store could not be closed cleanly: {error}") from error
            finally:
                self._release()

    def _stop_services(self) -> None:
        had_failed = self.failure is not None
        self._parts.services.stop()
        self._parts.core.allocation.close()
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
        self._parts.directory.lock.require()
        self._hand_over()
        dispatcher = self.dispatcher
        dispatcher.finish(self._parts.seams.clock)
        self.delays.save()
        self.offsets.save()
        self._parts.admin.table_saves.save()
        dispatcher.close()
        newest = self.log.last_store_timestamp_ms
        if newest:
            self._parts.core.checkpoint.physic_ms = newest
        self._parts.core.queue_flush.flush_all(closing=True)
        if self._parts.core.block_cover is not None:
            self._parts.core.block_cover.close()
        if dispatcher.behind or dispatcher.catch_up.behind or self._owes_index:
            return  # `abort` stays: a broker then makes the rest, as RocketMQ does
        self._parts.running_manifest.note_clean_close(self.log)
        remove_file(self._parts.seams.files, self.paths.abort)
        self.state.set_health(Health.CLOSED)
        self.state.sync()

    def _hand_over(self) -> None:
        """Repair what the scrub has found, or report loudly that it stays: a broker that opens the
        store next cuts its log at the first record that it cannot read."""
        if self._parts.services.runs(self.scrub.name):
            self.scrub.repair_known()
        if count := self.scrub.progress.finding_count:
            listed = [each.offset for each in self.scrub.progress.findings]  # the first 100 only
            log.error(
                "the store is closed with %d damaged places in its log%s: a broker may cut all "
                "that is behind one; run `mqstore store verify %s`, then `mqstore store repair`",
                count,
                f", the first at offset {min(listed)}" if listed else "",
                self.paths.root,
            )

    @property
    def _owes_index(self) -> bool:
        """Whether a store that was not closed cleanly was to get a new index, and did not."""
        is_owed = self._parts.options.replaces_index and not self.index.is_published
        return is_owed and self._parts.plan.path != "normal"

    def _release(self) -> None:
        self.dispatcher.close()
        self.lookups.forget()
        self.reads.forget()
        self.delays.close()
        self.log.close()
        self.queues.close()
        self.index.close()
        self._parts.core.checkpoint.close()
        self.state.close()
        self._parts.directory.lock.release()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
