"""The overview of a store on disk: identity, bounds, counts, how it was left, unfinished work.

Reads notes, names and lengths of files; of the log only what the recovery of an opening would read.
Called from ``mqstore store info``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from mqstore.storage import inventory
from mqstore.storage.errors import StorageError
from mqstore.storage.inventory import Verdict
from mqstore.storage.layout import CHECKPOINT_SIZE, StoreFormat
from mqstore.storage.metadata import follower_note, index_loss, store_lock, write_pause
from mqstore.storage.metadata.epochs import Epochs
from mqstore.storage.metadata.format_file import Owner, Sizes
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.recovery import accepted_loss
from mqstore.storage.recovery.report import RecoveryReport
from mqstore.storage.retention import archive, pins
from mqstore.storage.tables.config_tables import ConsumerOffsets, TopicTable
from mqstore.storage.tables.subscription_groups import SubscriptionGroups
from mqstore.storage.topic_names import is_system_group, is_system_topic
from mqstore.storage.verify.store_at_rest import StoreAtRest

_T = TypeVar("_T")


class Left(StrEnum):
    """How the last process left the store; the JSON name is stable."""

    OPEN = "open"
    """A process has it now."""
    CLOSED = "closed"
    CRASHED = "crashed"
    """The process ended without a close."""
    FAILED = "failed"
    """The process ended itself, since the disk or a sync had failed."""
    RECOVERING = "recovering"
    """The process ended while it recovered the store."""


class LogOverview(Value):
    """The log. Offsets are physical, times STORETIMESTAMP in ms."""

    segments: int
    segment_size: int
    bytes: int
    """From the first byte to the end of the last record."""
    min_offset: int
    max_offset: int
    durable_offset: int | None
    """The durable watermark; None where the last writer noted none."""
    first_ms: int | None
    last_ms: int | None
    damaged: int
    """Damaged stretches in the part that a recovery reads."""


class DerivedOverview(Value):
    """Queues and index."""

    queues: int
    queue_files: int
    index_files: int
    index_complete: bool | None
    """None where no writer noted it."""


class TableOverview(Value):
    """Numbers of topics and groups of applications; None where their files cannot be read."""

    topics: int | None
    groups: int | None


class CheckpointOverview(Value):
    """The times of RocketMQ's checkpoint, in ms; 0 for none."""

    physic_ms: int
    logics_ms: int
    index_ms: int


class RecoveryOverview(Value):
    """The last recovery of mqstore."""

    finished_at_ms: int
    duration_ms: int
    start_reason: str
    cut_bytes: int
    damaged: int


class EpochOverview(Value):
    """One epoch of the log."""

    number: int
    start: int
    """Physical offset of its first byte."""
    leader: str
    """Store id of its leader."""


class QuarantineOverview(Value):
    """The bytes that recoveries and repairs set aside."""

    entries: int
    bytes: int
    newest_ms: int | None


class Overview(Value):
    """One store, as its files are."""

    root: str
    commit_log: str | None
    """Directory of the log, where it lies apart from the root."""
    format: StoreFormat
    store_id: str | None
    """None for a store that mqstore has never opened; so are shard, openings and owner."""
    shard: str | None
    format_version: int | None
    openings: int | None
    owner: Owner | None
    """The process of mqstore that opened the store last."""
    sizes: Sizes
    left: Left
    left_by_broker: bool
    left_ms: int | None
    """Time of the close; of a crash, that of the last record. None while the store is open."""
    log: LogOverview
    derived: DerivedOverview
    tables: TableOverview
    checkpoint: CheckpointOverview | None
    recovery: RecoveryOverview | None
    leader: str | None
    """Address of the leader whose log is copied; None in a store that leads."""
    epochs: tuple[EpochOverview, ...]
    """Epochs of a log with elected or promoted leaders, the oldest first."""
    quarantine: QuarantineOverview
    accepted_losses: int
    holds: tuple[str, ...]
    """Reasons for which retention waits, or messages are rejected."""
    unfinished: tuple[str, ...]
    """Work that was interrupted, or has left files; of a store that no process has open."""
    states: tuple[str, ...]
    """States of a broker or another program that mqstore does without."""
    problems: tuple[str, ...]
    """Why an opening would be refused or read-only, and files that cannot be read."""


def overview_of(store: StoreAtRest) -> Overview:
    """Read the overview of a store. Raises OSError."""
    return _Reading(store).overview()


class _Reading:
    """One reading of one store."""

    def __init__(self, store: StoreAtRest) -> None:
        self._store = store
        self._files = store.seams.files
        self._paths = store.paths
        self._problems: list[str] = []

    def overview(self) -> Overview:
        """Read everything."""
        store, content, paths = self._store, self._store.content, self._paths
        left = self._left()
        derived, tables = self._derived(), self._tables()
        states = inventory.survey(self._files, paths)
        follows = self._try(lambda: follower_note.load(self._files, paths))
        return Overview(
            root=str(paths.root),
            commit_log=None if paths.commit_log_dir is None else str(paths.commit_log),
            format=store.format,
            store_id=None if content is None else content.store_id,
            shard=None if content is None else content.shard,
            format_version=None if content is None else content.version,
            openings=None if content is None else content.epoch,
            owner=None if content is None else content.owner,
            sizes=Sizes.of(store.config),
            left=left,
            left_by_broker=self._is_left_by_broker(),
            left_ms=self._left_ms(left),
            log=self._log(),
            derived=derived,
            tables=tables,
            checkpoint=self._checkpoint(),
            recovery=self._recovery(),
            leader=None if follows is None or follows.promoted else follows.leader,
            epochs=tuple(self._epochs()),
            quarantine=self._quarantine(),
            accepted_losses=len(accepted_loss.load_history(self._files, paths)),
            holds=tuple(self._holds()),
            unfinished=tuple(self._unfinished()),
            states=tuple(map(str, inventory.with_verdict(states, Verdict.NAMED))),
            problems=(
                *map(str, inventory.with_verdict(states, Verdict.REFUSED)),
                *self._refusals(),
                *self._problems,
            ),
        )

    def _try(self, read: Callable[[], _T]) -> _T | None:
        """Return the result of ``read``; None for an unreadable file, which becomes a problem."""
        try:
            return read()
        except (StorageError, ValueError) as error:
            self._problems.append(str(error))
            return None

    # how it was left --------------------------------------------------------------------------

    def _left(self) -> Left:
        if self._store.is_live:
            return Left.OPEN
        if not self._store.view.abort:
            return Left.CLOSED
        health = None if self._store.state is None else self._store.state.health
        if self._is_left_by_broker():
            return Left.CRASHED
        named = {Health.FAILED: Left.FAILED, Health.RECOVERING: Left.RECOVERING}
        return Left.CRASHED if health is None else named.get(health, Left.CRASHED)

    def _is_left_by_broker(self) -> bool:
        check = self._store.loss_check
        if self._store.content is None or (check is not None and check.by_broker):
            return True
        return store_lock.broker_wrote(self._files, self._paths)

    def _left_ms(self, left: Left) -> int | None:
        if left is Left.OPEN:
            return None
        if left is not Left.CLOSED:
            return self._store.plan.last_store_timestamp_ms or None
        closed = self._paths.checkpoint if self._is_left_by_broker() else self._paths.manifest
        stat = self._files.stat(closed)
        return None if stat is None else stat.modified_ms

    def _recovery(self) -> RecoveryOverview | None:
        path = self._paths.recovery_report
        if self._files.stat(path) is None:
            return None
        try:
            found = RecoveryReport.model_validate_json(self._files.read(path))
        except ValidationError:
            self._problems.append(f"{self._store.name_of(path)} cannot be read")
            return None
        return RecoveryOverview(
            finished_at_ms=found.finished_at_ms,
            duration_ms=found.duration_ms,
            start_reason=found.plan.start_reason.value,
            cut_bytes=found.plan.cut_bytes,
            damaged=found.plan.damaged_count + found.plan.damaged_block_count,
        )

    def _refusals(self) -> Iterator[str]:
        check = self._store.loss_check
        if check is not None and check.loss is not None:
            yield check.loss.text
        elif self._store.plan.read_only is not None:
            yield self._store.plan.read_only

    def _epochs(self) -> Iterator[EpochOverview]:
        found = self._try(lambda: Epochs.load(self._files, self._paths, None))
        if found is not None and found.is_compared:
            for each in found.entries:
                yield EpochOverview(number=each.number, start=each.start, leader=each.leader)

    # content ----------------------------------------------------------------------------------

    def _log(self) -> LogOverview:
        store, segments = self._store, self._store.view.segments.usable
        first = store.view.first_store_timestamp(segments[0]) if segments else None
        return LogOverview(
            segments=len(segments),
            segment_size=store.config.mapped_file_size_commit_log,
            bytes=store.end - store.min_offset,
            min_offset=store.min_offset,
            max_offset=store.end,
            durable_offset=None if store.state is None else store.state.flushed_offset,
            first_ms=first,
            last_ms=store.plan.last_store_timestamp_ms or None,
            damaged=store.plan.damaged_count + store.plan.damaged_block_count,
        )

    def _derived(self) -> DerivedOverview:
        names = list(self._store.view.queue_names())
        queue_files = sum(
            len(self._numbered(self._paths.consume_queue / topic / str(queue_id)))
            for topic, queue_id in names
        )
        is_lost = index_loss.is_noted(self._files, self._paths)
        state = self._store.state
        is_complete = None if state is None else state.index_complete
        return DerivedOverview(
            queues=len(names),
            queue_files=queue_files,
            index_files=len(self._numbered(self._paths.index)),
            index_complete=False if is_lost else is_complete,
        )

    def _numbered(self, directory: Path) -> list[str]:
        return [name for name in self._files.list(directory) if name.isdigit()]

    def _tables(self) -> TableOverview:
        where = self._paths, self._store.format, self._store.seams
        topics = self._try(lambda: TopicTable.load(*where).names())
        groups = self._try(lambda: SubscriptionGroups.load(*where).names())
        offsets = self._try(lambda: ConsumerOffsets.load(*where).all())
        if groups is not None and offsets is not None:
            groups |= {group for group, *_ in offsets}
        return TableOverview(
            topics=None if topics is None else sum(map(self._is_of_application, topics)),
            groups=None if groups is None else sum(not is_system_group(name) for name in groups),
        )

    def _is_of_application(self, topic: str) -> bool:
        return not is_system_topic(topic, self._store.format)

    def _checkpoint(self) -> CheckpointOverview | None:
        stat = self._files.stat(self._paths.checkpoint)
        if stat is None or stat.size != CHECKPOINT_SIZE:
            return None
        times = self._store.view.checkpoint
        return CheckpointOverview(
            physic_ms=times.physic_ms, logics_ms=times.logics_ms, index_ms=times.index_ms
        )

    def _quarantine(self) -> QuarantineOverview:
        directory = self._paths.quarantine
        found = Quarantine(self._files, self._store.seams.clock, directory, self._paths.root)
        entries = found.entries()
        return QuarantineOverview(
            entries=len(entries),
            bytes=sum(entry.length for entry in entries),
            newest_ms=max((entry.kept_at_ms for entry in entries), default=None),
        )

    # what waits -------------------------------------------------------------------------------

    def _holds(self) -> Iterator[str]:
        files, paths = self._files, self._paths
        now_ms = self._store.seams.clock.now_ms()
        pause = self._try(lambda: write_pause.read(files, paths.write_pause))
        if pause is not None:
            yield f"writes are paused: {pause.reason}"
        for pin in self._try(lambda: pins.read(files, paths.pins)) or ():
            if pin.expires_ms > now_ms:
                yield f"pin {pin.name} holds the log from offset {pin.from_offset}"
        mark = self._try(lambda: archive.read(files, paths.archive))
        if mark is not None:
            yield f"the archive at {mark.place} has the log up to offset {mark.offset}"

    def _unfinished(self) -> Iterator[str]:
        if self._store.is_live:  # what there is belongs to the process that runs
            return
        paths = self._paths
        notes = {
            paths.import_note: "an import: repeat the `mqstore store import`",
            paths.accepted_loss: "an accepted loss: the next opening continues after it",
            paths.truncation: "the cut of a diverged tail: the next opening ends it",
            paths.index_journal: "the publication of a rebuilt index: the next opening ends it",
            paths.index_lost: "lost index files: the next opening makes them again",
        }
        for path, what in notes.items():
            if self._files.stat(path) is not None:
                yield what
        for directory in dict.fromkeys((paths.index_staging, paths.staging, paths.queue_staging)):
            if count := len(self._files.list(directory)):
                name = self._store.name_of(directory)
                yield f"{count} files in {name}: the next opening removes them"
