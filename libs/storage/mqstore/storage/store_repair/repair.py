"""``StoreRepair``: repeats verification and remedies until nothing is found; see the package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from mqstore.storage.accept_loss import accept as accept_loss
from mqstore.storage.accept_loss import plan as plan_loss
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.lost_data import ByteRange
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import store_lock
from mqstore.storage.options import Durability, StoreOptions
from mqstore.storage.progress import Progress
from mqstore.storage.seams import Seams
from mqstore.storage.store_repair.changes import Action, Change, ChangeList
from mqstore.storage.store_repair.file_remedies import FileRemedies
from mqstore.storage.store_repair.findings import Findings
from mqstore.storage.store_repair.opened_remedies import OpenedRemedies, change_of
from mqstore.storage.store_repair.queue_remedies import QueueRemedies
from mqstore.storage.store_repair.remedies import REMEDIES, Remedy
from mqstore.storage.system.overlay_files import make_overlay
from mqstore.storage.topic_names import is_system_topic
from mqstore.storage.verify import Kind, Summary, Verification
from mqstore.storage.verify.store_at_rest import StoreAtRest

ROUNDS_MAX: Final = 8
"""Maximum number of rounds: a remedy may uncover what another one mends, and no chain is longer."""
_INDEX: Final = frozenset(kind for kind in Kind if REMEDIES[kind] is Remedy.REMAKE_INDEX)
_OF_LOG: Final = frozenset(
    {Kind.RECORD_BODY, Kind.RECORD_BROKEN, Kind.RECORD_ODD, Kind.BLOCK_CHANGED, Kind.LOG_TAIL}
)
"""Findings of the log that opening the store and repairing its records removes."""
DERIVED_PARTS: Final = frozenset({Remedy.REMAKE_ENTRIES, Remedy.REMAKE_INDEX})
"""Remedies that make a part of the store again from its log: the queues, the index."""
_DERIVED: Final = frozenset(kind for kind in Kind if REMEDIES[kind] in DERIVED_PARTS)
_TRIES_MAX: Final = 2
"""Rounds after which the same findings, counted by kind, are left to a person."""
_OF_RECORDS: Final = frozenset({Kind.ENTRY_MISSING, Kind.ENTRY_ORDER, Kind.QUEUE_OFFSET_TAKEN})
"""Findings that are left once entries were made again, where a record has a wrong queue offset."""


@dataclass(slots=True)
class RepairOutcome:
    """The changes of a repair, planned or done, and the findings before and after."""

    changes: ChangeList = field(default_factory=ChangeList)
    found: Counter[Kind] = field(default_factory=Counter)
    """Findings of the store before, by kind, without notes."""
    left: Counter[Kind] = field(default_factory=Counter)
    """Findings that no remedy removed."""
    summary: Summary = field(default_factory=Summary)
    """Summary of the last verification."""

    remakes: frozenset[Remedy] = frozenset()
    """Parts that are made again whole, also without a finding."""

    @property
    def is_needed(self) -> bool:
        """Whether there is something to repair."""
        return bool(self.found or self.remakes)


class StoreRepair:
    """One repair of one store. ``plan`` changes nothing; ``run`` takes the store's lock.

    With ``remakes``, a part of DERIVED_PARTS is made again whole, also where nothing is found.

    Both raise StoreLocked where a process has the store, and DirectoryNotUsable, DiskRefuses,
    StoreOfAnother, StoreUnsupported, StoreDamaged, LossNotAccepted, RepairRefused, StoreFailed,
    OSError.
    """

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        seams: Seams,
        progress: Progress,
        remakes: frozenset[Remedy] = frozenset(),
    ) -> None:
        """``root`` is absolute. ``progress`` is called with the stage, the amount done, and the
        total."""
        self._root = root
        self._config = config
        self._seams = seams
        self._progress = progress
        self._remakes = remakes

    def plan(self) -> RepairOutcome:
        """Repair the store in memory, on an overlay over its files, and return the changes."""
        overlaid = replace(self._seams, files=make_overlay(self._seams.files))
        return self._rounds(overlaid, rehearses=True).run()

    def run(self) -> RepairOutcome:
        """Repair the store, and verify it again."""
        return self._rounds(self._seams, rehearses=False).run()

    def _rounds(self, seams: Seams, *, rehearses: bool) -> _Rounds:
        return _Rounds(
            self._root,
            self._config,
            seams,
            self._progress,
            remakes=self._remakes,
            rehearses=rehearses,
        )


@dataclass(frozen=True, slots=True)
class _Round:
    """One verification of the store, and the findings that the round before did not remove."""

    found: Findings
    store: StoreAtRest
    left: frozenset[Kind]
    unqueued: Sequence[int]
    """Physical offsets of whole records that are in no queue."""


class _Rounds:
    """The rounds of one repair. A rehearsal makes neither the index nor whole queues again: both
    would be made in memory."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        seams: Seams,
        progress: Progress,
        *,
        remakes: frozenset[Remedy],
        rehearses: bool,
    ) -> None:
        self._root = root
        self._config = config
        self._seams = seams
        self._progress = progress
        self._rehearses = rehearses
        self._outcome = RepairOutcome(remakes=remakes)
        self._to_remake = remakes
        """Parts that are to be made again whole, and are not yet."""
        self._changes = self._outcome.changes
        self._treated: frozenset[Kind] = frozenset()
        """Kinds of the round before, to which their remedies were applied."""
        self._is_applied = False
        """Whether a round has changed the store."""

    def run(self) -> RepairOutcome:
        """Repeat the rounds until nothing is left, or they change nothing."""
        seen: Counter[tuple[tuple[Kind, int], ...]] = Counter()
        for number in range(ROUNDS_MAX):
            this = self._verify()
            left = this.found.to_repair(self._ignored)
            self._outcome.left = left
            if number == 0:
                self._outcome.found = left
                self._changes.counted += this.store.accepted_losses()
            seen[tuple(sorted(left.items()))] += 1
            if not (left or self._to_remake) or number == ROUNDS_MAX - 1:
                break
            if max(seen.values()) > _TRIES_MAX:
                break
            self._apply(this)
            self._is_applied = True
        return self._outcome

    @property
    def _ignored(self) -> frozenset[Kind]:
        """Kinds that a rehearsal has noted the changes of, and cannot remove."""
        counts = self._changes.counts
        closes = {Kind.NOT_CLOSED} if counts[Action.CLOSE] or self._is_applied else set()
        makes_index = _INDEX if counts[Action.REMAKE_INDEX] else frozenset()
        return frozenset(makes_index | closes) if self._rehearses else frozenset()

    def _verify(self) -> _Round:
        verification = Verification(self._root, self._config, self._seams, self._progress)
        store = verification.store
        if store.is_live:
            raise store_lock.in_use(self._seams.files, store.paths)
        found = Findings.collect(verification.findings())
        self._outcome.summary = verification.summary
        left = self._treated & found.kinds.keys()
        return _Round(found, store, left, verification.unqueued)

    def _apply(self, this: _Round) -> None:
        changes = self._changes
        files = FileRemedies(self._seams, this.store.paths, this.store.config, changes)
        if this.found.kinds[Kind.NOT_CLOSED] and not changes.counts[Action.CLOSE]:
            what = "the last writer did not close: the store is recovered and closed"
            changes.add(Change(action=Action.CLOSE, what=what))
        with self._locked(this.store):
            for name in this.found.files[Kind.STRAY_REFUSED]:
                files.set_aside(this.store.paths.root / name, "a broker does not start beside it")
            for name in this.found.files[Kind.QUEUE_FILE]:  # an opening may stop at a misplaced one
                files.set_queue_file_aside(this.store.paths.root / name, is_left=False)
            is_refitted = files.refit_segments()
        self._treated = frozenset()
        if is_refitted:
            return  # the other findings are of a log without these segments
        if self._accept_loss(this.store):
            self._open(files, (), [])
            return  # the other findings are judged in a store that goes on without it
        # Queue entries are evidence for the repair of the log, so the log is repaired first.
        waits = bool(_OF_LOG & (this.found.kinds.keys() - this.left))
        self._treated = frozenset(this.found.kinds) - (_DERIVED if waits else frozenset())
        moved = [] if waits else self._find_unqueued(this)
        with self._locked(this.store):
            self._change_log(this, files)
            self._change_small_files(this, files)
            if not waits:
                self._change_queues(this, files)
                self._change_index(this, files)
        self._store_again(moved)
        self._open(files, this.found.odd_records, moved)

    @contextmanager
    def _locked(self, store: StoreAtRest) -> Iterator[None]:
        """Hold the store's lock. Raises StoreLocked where another process has it."""
        lock = store_lock.take(self._seams.files, store.paths, create=False)
        try:
            yield
        finally:
            lock.release()

    # files ----------------------------------------------------------------------------------

    def _accept_loss(self, store: StoreAtRest) -> bool:
        """Accept that durable data is gone, where an opening would be refused for it.

        Raises LossNotAccepted where the size of the log's segments is not known.
        """
        if store.loss_check is None or store.loss_check.blocking is None:
            return False
        files, clock = self._seams.files, self._seams.clock
        loss = plan_loss(self._root, self._config, files, clock).loss
        accept_loss(self._root, self._config, files, clock, loss.confirmation)
        for each in loss.queues:
            self._note_lost(each.topic, each.queue_id, each.first, each.end)
        if loss.queue_count > len(loss.queues) or not loss.queues:
            listed = sum(each.end - each.first for each in loss.queues)
            what = f"{loss.text}; not listed: {loss.queue_count - len(loss.queues)} ranges"
            lost = loss.messages - listed
            self._changes.add(Change(action=Action.LOSE_MESSAGES, what=what, lost=lost))
        self._changes.counted += loss.missing
        return True

    def _note_lost(self, topic: str, queue_id: int, first: int, end: int) -> None:
        what = f"queue offsets {first} to {end - 1} are gone with their segments"
        self._changes.add(
            Change(
                action=Action.LOSE_MESSAGES,
                what=what,
                topic=topic,
                queue_id=queue_id,
                queue_offset=first,
                lost=end - first,
            )
        )

    def _note_gap(self, store: StoreAtRest, gap: ByteRange) -> None:
        """Note the messages that queues name in a gap of the log whose loss was not accepted."""
        if self._changes.is_counted(gap.start):
            return
        self._changes.counted.append(gap)
        for topic, queue_id, queue in store.view.queues():
            if (found := queue.span(gap.start, gap.stop)) is not None:
                self._note_lost(topic, queue_id, *found)

    def _change_log(self, this: _Round, files: FileRemedies) -> None:
        if this.found.wants(Remedy.FILL_GAP):
            for gap in files.fill_gaps():
                self._note_gap(this.store, gap)
        if Kind.BLOCK_CHANGED in this.left:
            for offset in this.found.changed_blocks:
                files.forget_checksums(offset)

    def _change_queues(self, this: _Round, files: FileRemedies) -> None:
        found, store = this.found, this.store
        is_whole = Remedy.REMAKE_ENTRIES in self._to_remake
        if not (is_whole or found.wants(Remedy.REMAKE_ENTRIES) or found.wants(Remedy.FILL_GAP)):
            return
        files.forget_last_run()
        for name in found.files[Kind.QUEUE_FILE] if Kind.QUEUE_FILE in this.left else ():
            files.set_queue_file_aside(store.paths.root / name, is_left=True)
        size = store.config.queue_file_size
        queues = QueueRemedies(
            self._seams.files, store.paths, size, files.quarantine, self._changes
        )
        for topic, queue_id in sorted({*found.entries, *found.beyond}):
            beyond = store.end if (topic, queue_id) in found.beyond else None
            numbers = found.entries.get((topic, queue_id), ())
            queues.blank(topic, queue_id, numbers, beyond)
        for topic, queue_id in sorted(found.with_holes):
            queues.set_aside_if_empty(topic, queue_id)
        if is_whole:
            self._blank_queues(store, queues)
        what = "missing entries are made again from the log"
        self._changes.add(Change(action=Action.REMAKE_QUEUES, what=what))

    def _blank_queues(self, store: StoreAtRest, queues: QueueRemedies) -> None:
        names = sorted(store.view.queue_names())
        for number, (topic, queue_id) in enumerate(names):
            self._progress("old queues", number, len(names))
            queues.blank_all(topic, queue_id, store.has_offset, keeps=self._rehearses)
        self._to_remake -= {Remedy.REMAKE_ENTRIES}

    def _change_index(self, this: _Round, files: FileRemedies) -> None:
        if this.found.wants(Remedy.REMAKE_INDEX) or Remedy.REMAKE_INDEX in self._to_remake:
            files.lose_index()
            self._to_remake -= {Remedy.REMAKE_INDEX}

    def _change_small_files(self, this: _Round, files: FileRemedies) -> None:
        found, root = this.found, this.store.paths.root
        if found.wants(Remedy.REMAKE_CHECKPOINT):
            files.set_checkpoint_aside()
        for kind in (Kind.CONFIG, Kind.CONFIG_BACKUP):
            for name in found.files[kind]:
                files.restore_table(root / name)
        for name in found.files[Kind.OURS]:
            files.settle_metadata(root / name, is_left=Kind.OURS in this.left)

    # messages -------------------------------------------------------------------------------

    def _find_unqueued(self, this: _Round) -> list[Record]:
        """Whole records that are in no queue although entries were made again; noted."""
        if not _OF_RECORDS & this.left:
            return []
        unqueued = [this.store.record_at(offset) for offset in this.unqueued]
        for each in unqueued:
            if is_system_topic(each.topic, this.store.format):
                what = "a message of a system topic is in no queue, and not stored again"
                self._changes.add(change_of(each, Action.PLACE_TOMBSTONE, what, lost=1))
            else:
                what = "it is in no queue, and is stored again at its queue's end"
                self._changes.add(change_of(each, Action.MOVE_MESSAGE, what))
        return unqueued

    def _store_again(self, unqueued: Sequence[Record]) -> None:
        """Store messages again at the ends of their queues; durable at return.

        A message that an earlier attempt stored is not stored once more. A rehearsal stores none.
        """
        if self._rehearses or not unqueued:
            return
        options = StoreOptions(create=False, deletes=False, deliver_delayed=False)
        with MessageStore.open(self._root, self._config, self._seams, options) as store:
            for each in unqueued:
                if is_system_topic(each.topic, store.format):
                    continue
                whole = store.log.record_at(each.physical_offset)
                if not _is_stored(store, whole, len(unqueued)):
                    store.wait(store.append(_message_of(whole)).end, Durability.SYNC)

    def _open(self, files: FileRemedies, odd: Sequence[int], unqueued: Sequence[Record]) -> None:
        """Open the store, repair its records, and close it cleanly."""
        options = StoreOptions(
            create=False,
            services=False,
            replaces_index=self._rehearses,
            indexes_all=True,
            on_progress=lambda now: self._progress(now.stage, now.done, now.total),
        )
        with MessageStore.open(self._root, self._config, self._seams, options) as store:
            remedies = OpenedRemedies(store, self._seams.files, files.quarantine, self._changes)
            remedies.note_recovery()
            remedies.repair_records(odd, unqueued, partial(self._progress, "records"))
            if not self._rehearses:
                store.wait_for_index(partial(self._progress, "index"))


def _message_of(found: Record) -> Message:
    return Message(
        found.topic,
        found.queue_id,
        found.body,
        found.raw_properties,
        found.born_host,
        found.store_host,
        found.born_timestamp_ms,
        flag=found.flag,
        sys_flag=found.sys_flag,
        reconsume_times=found.reconsume_times,
        prepared_transaction_offset=found.prepared_transaction_offset,
    )


def _is_stored(store: MessageStore, found: Record, count: int) -> bool:
    """Whether one of the last ``count`` messages of its queue, behind it in the log, is its
    copy."""
    queue = store.queues.get(found.topic, found.queue_id)
    if queue is None:
        return False
    for _, entry in islice(queue.last_entries(), count):
        if entry.is_hole or entry.physical_offset <= found.physical_offset:
            continue
        copy = store.log.record_at(entry.physical_offset)
        if _identity(copy) == _identity(found):
            return True
    return False


def _identity(found: Record) -> tuple[object, ...]:
    host, time = found.born_host, found.born_timestamp_ms
    return host, time, found.raw_properties, found.body
