"""The service that removes segments as retention allows: a round every cleanResourceInterval.

A round removes at most deleteFileBatchMax segments, deleteCommitLogFilesInterval apart. Before each
it measures disks, clock and holds again, so that no segment is removed whose removal the previous
one made unnecessary: the bytes of an unlinked file count as free at once, since other processes
close it later. Then the files derived from the removed segments are unlinked,
deleteConsumeQueueFilesInterval apart. The first round comes one interval after the start. Source:
CleanCommitLogService and CleanConsumeQueueService of 4.9.7 and 5.4.0.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from mqstore.storage.config import StoreConfig
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import StorageError
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.metadata.clock_steps import StepsView
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention import plan
from mqstore.storage.retention.archive import Archive, ArchiveMark
from mqstore.storage.retention.disk import Disks, DiskWatch
from mqstore.storage.retention.groups import Groups
from mqstore.storage.retention.holds import Hold
from mqstore.storage.retention.journal import (
    FORCED_DELETION,
    SPACE_NOT_FREED,
    Journal,
    forced_deletion_figures,
)
from mqstore.storage.retention.pins import Pin, Pins
from mqstore.storage.retention.plan import (
    RetentionPlan,
    SegmentFacts,
    Situation,
    Trigger,
    Why,
)
from mqstore.storage.retention.removal import Removal
from mqstore.storage.retention.unlinked_bytes import SHOWN_WITHIN_S
from mqstore.storage.seams import Seams

if TYPE_CHECKING:
    from mqstore.storage.mapped.mapped_file import MappedFile

MANUAL_ROUNDS: Final = 20
"""Rounds that one manual request allows (MAX_MANUAL_DELETE_FILE_TIMES)."""

LOOK_AGAIN_S: Final = 1.0
"""Interval between measurements while puts are rejected or deleted files are still open."""
OTHERS_PART: Final = 8
"""Fraction of a segment (1/n) by which other files may grow until the next measurement: with less
free room than a segment and this part, the next segment may not fit."""

log = logging.getLogger(__name__)


class Retention:
    """A ``BackgroundService``, and the interface of retention to the store. Thread-safe."""

    name = "retention"

    def __init__(
        self,
        config: StoreConfig,
        paths: StorePaths,
        seams: Seams,
        log: CommitLog,
        dispatcher: Dispatcher,
        removal: Removal,
        groups: Groups,
        undelivered: Callable[[], Iterable[Hold]],
    ) -> None:
        """``groups`` are those of keepForGroups; ``undelivered`` yields the holds of delayed
        messages."""
        self.deleted: Counter[Why] = Counter()
        """Segments removed since the opening, by reason."""
        self.journal = Journal()
        """Notes of the deletions that made room."""
        self.removal = removal
        self._config = config
        self._log = log
        self._dispatcher = dispatcher
        self._seams = seams
        self._watch = DiskWatch(seams.files, paths, config)
        self._pins = Pins(paths, seams)
        self._archive = Archive(paths, seams, log.max_offset)
        self._groups = groups
        self._undelivered = undelivered
        self._lock = Lock()
        self._work: Iterator[float] = iter(())
        self._due: float | None = None
        self._look_due = math.inf
        self._retry_due = -math.inf
        """Time at which a segment that is in use is tried again, at any hour."""
        self._manual_rounds = 0
        self._in_manual_round = False

    # the service --------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Remove at most one file. Raises StoreFailed, OSError."""
        with self._lock:
            if self._due is None:
                self._look()
                self._due = now + self._interval_s
            elif now >= self._due or (now >= self._look_due and self._lacks_segment):
                self._due = now + self._next_pause()
            elif now >= self._look_due:
                self._look()
            self._look_due = now + LOOK_AGAIN_S if self._expects_room else math.inf
            return min(self._due, self._look_due)

    @property
    def _lacks_segment(self) -> bool:
        """Whether the next segment is not made yet and, by the last measurement, will not fit."""
        log = self._log
        if not self.disks.volumes or log.next_segment.is_made:
            return False
        volume, size = self.disks.volumes[0], log.files.file_size
        return volume.free_bytes + volume.unlinked_bytes < size + size // OTHERS_PART

    @property
    def _expects_room(self) -> bool:
        disks = self._watch.last
        if disks.refuses or self._log.shortage.refusal is not None:
            return True
        return any(volume.unlinked_bytes for volume in disks.volumes)

    @property
    def _interval_s(self) -> float:
        return self._config.clean_resource_interval / 1000

    def _next_pause(self) -> float:
        """Continue the current round, or begin one; returns the pause that follows."""
        for pause in self._work:
            return pause
        self._work = self._round()
        return next(self._work, self._interval_s)

    def _round(self) -> Iterator[float]:
        """Run one round; yields the seconds to wait before each next deletion."""
        self._in_manual_round = self._manual_rounds > 0
        self._manual_rounds = max(0, self._manual_rounds - 1)
        for _ in range(self._config.delete_file_batch_max):
            if not self._remove_next():
                break
            yield self._config.delete_commit_log_files_interval / 1000
        self._in_manual_round = False
        for _ in self.removal.remove_derived():
            yield self._config.delete_consume_queue_files_interval / 1000
        yield self._interval_s

    def _remove_next(self) -> bool:
        """Remove the oldest segment if that is allowed; returns whether it was removed."""
        found = self._make_plan(1)
        if Trigger.FORCED in found.triggers and self._give_up_spares(found):
            return True
        first = found.next
        if first is None:
            if Trigger.DISK in found.triggers:
                log.warning("the disk is filling up, and retention keeps every segment there is")
            return False
        if first.why is Why.READER and not self._is_retry_due(found.triggers):
            return False
        if not self.removal.remove_segments(1):
            log.info("segment %s is still being read; it is tried again", first.name)
            return False
        self.deleted[first.why] += 1
        log.info("segment %s was deleted: %s", first.name, first.why)
        self._watch.note_unlinked(first.size, self._seams.clock.monotonic())
        if first.why is Why.FORCED:
            age_ms = found.made_ms - first.modified_ms
            self.journal.add(
                FORCED_DELETION, forced_deletion_figures(found, first.name, first.size, age_ms)
            )
        return True

    def _give_up_spares(self, found: RetentionPlan) -> bool:
        """Unlink segments without records before any with records; returns whether there was
        one."""
        size = self.removal.give_up_spares()
        if size:
            log.info("segments made ahead were deleted to make room: %d bytes", size)
            self._watch.note_unlinked(size, self._seams.clock.monotonic())
            self.journal.add(FORCED_DELETION, forced_deletion_figures(found, None, size, None))
        return size > 0

    def _is_retry_due(self, triggers: Sequence[Trigger]) -> bool:
        """Whether to retry: in every round that removes files, and each
        redeleteHangedFileInterval."""
        now = self._seams.clock.monotonic()
        if not triggers and now < self._retry_due:
            return False
        self._retry_due = now + self._config.redelete_hanged_file_interval / 1000
        return True

    # queries ------------------------------------------------------------------------------

    def plan(self, limit: int | None = None) -> RetentionPlan:
        """Plan the removal of the oldest ``limit`` segments, by default of all.

        Changes nothing but whether puts are rejected. Figures that cannot be measured stay as
        before.
        """
        with self._lock:
            found = self._make_plan(limit)
        return found.model_copy(update={"oldest_ms": self._oldest_ms()})

    def _oldest_ms(self) -> int | None:
        """Read when the oldest message was stored; None if it cannot be read."""
        try:
            first = self._log.record_at(self._log.min_offset, with_body=False)
            return first.store_timestamp_ms
        except StorageError:
            return None

    def run(self) -> RetentionPlan:
        """Let the next rounds remove expired segments at any hour (executeDeleteFilesManually).

        The caller then wakes the service. Returns the plan of the first round.
        """
        with self._lock:
            self._manual_rounds = MANUAL_ROUNDS
            self._work = iter(())
            self._due = -math.inf
            return self._make_plan(None)

    @property
    def disks(self) -> Disks:
        """The disks as last measured."""
        return self._watch.last

    def pins(self) -> list[Pin]:
        """The live pins, by name."""
        return self._pins.live()

    def pin(self, name: str) -> Pin:
        """The live pin of this name. Raises PinUnknown."""
        return self._pins.get(name)

    def put_pin(
        self, name: str, from_offset: int, to_offset: int | None, *, lease_s: int, why: str
    ) -> Pin:
        """Pin a range for ``lease_s`` seconds from now. Raises PinRefused, OSError."""
        with self._lock:
            return self._pins.put(
                name,
                from_offset,
                to_offset,
                lease_s=lease_s,
                why=why,
                min_offset=self._log.min_offset,
            )

    def remove_pin(self, name: str) -> None:
        """Remove a pin. Raises PinUnknown, OSError."""
        with self._lock:
            self._pins.remove(name)

    @property
    def archive(self) -> ArchiveMark | None:
        """The archive mark; None when retention waits for no archive."""
        return self._archive.mark

    def advance_archive(self, offset: int, place: str) -> ArchiveMark:
        """Set the archive mark; everything from it on is kept. Raises ArchiveRefused, OSError."""
        with self._lock:
            return self._archive.advance(offset, place, max_offset=self._log.flushed_offset)

    def end_archive(self) -> None:
        """Stop waiting for an archive. Raises OSError."""
        with self._lock:
            self._archive.end()

    def remove_oldest(self, count: int) -> int:
        """Unlink up to ``count`` segments at any age, and the files derived from them alone.

        Returns how many were removed. Raises StoreFailed, OSError.
        """
        with self._lock:
            removed = self.removal.remove_segments(count)
            for _ in self.removal.remove_derived():
                pass
            return removed

    # measuring ----------------------------------------------------------------------------

    def _look(self) -> Disks:
        """Measure the disks; reject or accept puts accordingly, and retry what the last put
        lacked."""
        self._log.shortage.retry()
        files = self._log.files
        disks = self._watch.measure(self._seams.clock.monotonic(), files.made_bytes)
        forcibly = self._config.disk_space_clean_forcibly_ratio
        self.removal.make_spares(not disks.is_above(forcibly, 2 * files.file_size))
        if disks.lost_bytes:
            self._note_lost(disks.lost_bytes)
        if disks.refuses:
            self._log.pause_puts(self._watch.refusal(disks))
        else:
            self._log.resume_puts()
        return disks

    def _note_lost(self, size: int) -> None:
        log.warning(
            "%d bytes of deleted segments are not free after %d s: some process keeps them open; "
            "`lsof +L1` shows which",
            size,
            SHOWN_WITHIN_S,
        )
        self.journal.add(SPACE_NOT_FREED, {"bytes": size, "seconds": SHOWN_WITHIN_S})

    def _make_plan(self, limit: int | None) -> RetentionPlan:
        files = self._log.files.files
        disks, refusal = self._look(), self._log.put_refusal
        now_ms, steps = self._log.noted_time()
        facts = (self._facts(file, now_ms, steps) for file in files[:limit])
        situation = Situation(
            now_ms=now_ms,
            config=self._config,
            segments=[each for each in facts if each is not None],
            dispatched=self._dispatcher.position,
            disks=disks,
            holds=list(self._holds()),
            manual=self._in_manual_round or self._manual_rounds > 0,
            newest=files[-1].path.name if files else None,
            lacks_segment=self._lacks_segment,
            puts_refused=None if refusal is None else refusal.detail,
        )
        return plan.make(situation)

    def _holds(self) -> Iterator[Hold]:
        yield from (pin.hold for pin in self._pins.live())
        if self._archive.mark is not None:
            yield self._archive.mark.hold
        yield from self._groups.holds()
        yield from self._undelivered()

    def _facts(self, file: MappedFile, now_ms: int, steps: StepsView) -> SegmentFacts | None:
        """A segment's facts. Its modification time is by the present clock, so that a clock step
        makes no segment older or younger; the file's own when it was modified after the step."""
        stat = self._seams.files.stat(file.path)
        if stat is None:
            return None
        shifted_ms = stat.modified_ms + steps.shift_ms(file.end_offset - 1)
        return SegmentFacts(
            file.path.name,
            file.base_offset,
            file.end_offset,
            shifted_ms if shifted_ms <= now_ms else stat.modified_ms,
            is_leaving=not file.is_available,
        )
