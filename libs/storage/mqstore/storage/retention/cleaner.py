"""The service that lets go what retention allows: a round every cleanResourceInterval.

A round removes at most deleteFileBatchMax segments, deleteCommitLogFilesInterval apart, each after
a new look at disks, clock and holds, so that nothing goes that the one before made unnecessary: its
bytes count as free from then on, as other processes let go of a file after it was unlinked. Then
what was derived from them, deleteConsumeQueueFilesInterval apart. The first round comes one
interval after the start. Source: CleanCommitLogService and CleanConsumeQueueService of 4.9.7 and
5.4.0.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from mqstore.storage.retention import plan
from mqstore.storage.retention.archive import Archive, ArchiveMark
from mqstore.storage.retention.disk import Disks, DiskWatch
from mqstore.storage.retention.groups import Groups
from mqstore.storage.retention.holds import Hold
from mqstore.storage.retention.journal import (
    FORCED_DELETION,
    SPACE_NOT_FREED,
    Journal,
    forced_deletion,
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
from mqstore.storage.retention.unlinked import SHOWN_WITHIN_S
from mqstore.storage.seams import Seams
from mqstore.storage.tables.config_tables import ConsumerOffsets

if TYPE_CHECKING:
    from mqstore.storage.assembly import Parts
    from mqstore.storage.mapped.mapped_file import MappedFile

MANUAL_ROUNDS: Final = 20
"""Rounds that one request allows (MAX_MANUAL_DELETE_FILE_TIMES)."""

LOOK_AGAIN_S: Final = 1.0
"""From one look at the disks to the next while puts are refused or deleted files are still open."""
OTHERS_PART: Final = 8
"""Part of a segment, one in so many, that other files may grow by until the next look: with less
room than a segment and that, the next segment may not fit."""

log = logging.getLogger(__name__)


class Retention:
    """A ``BackgroundService``, and what everybody else asks of retention; every method may be
    called from any thread."""

    name = "retention"

    def __init__(
        self,
        parts: Parts,
        seams: Seams,
        offsets: ConsumerOffsets,
        undelivered: Callable[[], Iterable[Hold]],
        forget: Callable[[], None],
    ) -> None:
        """``offsets`` are those of keepForGroups; ``undelivered`` tells what delayed messages
        hold; ``forget`` as in Removal."""
        opened = parts.opened
        config, paths = opened.config, opened.paths
        self.deleted: Counter[Why] = Counter()
        """Segments that went since the opening, by reason."""
        self.journal = Journal()
        """Notes of the deletions that made room."""
        self.removal = Removal(
            parts.log,
            parts.queues,
            parts.index,
            parts.dispatcher,
            parts.queue_flush,
            parts.allocation,
            opened.blocks,
            forget,
        )
        self._config = config
        self._log = parts.log
        self._dispatcher = parts.dispatcher
        self._seams = seams
        self._watch = DiskWatch(seams.files, paths, config)
        self._pins = Pins(paths, seams)
        self._archive = Archive(paths, seams, parts.log.max_offset)
        self._steps = parts.watch.steps
        self._groups = Groups(config.keep_for_groups, parts.queues, offsets)
        self._undelivered = undelivered
        self._lock = Lock()
        self._work: Iterator[float] = iter(())
        self._due: float | None = None
        self._look_due = math.inf
        self._retry_due = -math.inf
        """When a segment that somebody holds is tried again, whatever the hour."""
        self._manual_rounds = 0
        self._in_manual_round = False

    # the service --------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Remove one file at most. Raises StoreFailed, OSError."""
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
        """Whether the next segment is not made yet and will not fit, by the last look."""
        log = self._log
        if not self.disks.volumes or log.has_next_segment:
            return False
        volume, size = self.disks.volumes[0], log.files.file_size
        return volume.free_bytes + volume.unlinked_bytes < size + size // OTHERS_PART

    @property
    def _expects_room(self) -> bool:
        disks = self._watch.last
        if disks.refuses or self._log.lacking.refusal is not None:
            return True
        return any(volume.unlinked_bytes for volume in disks.volumes)

    @property
    def _interval_s(self) -> float:
        return self._config.clean_resource_interval / 1000

    def _next_pause(self) -> float:
        """Go on with the round under way, or begin one; the pause that is to follow."""
        for pause in self._work:
            return pause
        self._work = self._round()
        return next(self._work, self._interval_s)

    def _round(self) -> Iterator[float]:
        """One round; yields how long to wait before each next deletion, in seconds."""
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
        """Remove the oldest segment if it may go; whether it went."""
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
        self._watch.unlinked(first.size, self._seams.clock.monotonic())
        if first.why is Why.FORCED:
            age_ms = found.made_ms - first.modified_ms
            self.journal.add(
                FORCED_DELETION, forced_deletion(found, first.name, first.size, age_ms)
            )
        return True

    def _give_up_spares(self, found: RetentionPlan) -> bool:
        """Unlink segments that hold nothing, before any that does; whether there was one."""
        size = self.removal.give_up_spares()
        if size:
            log.info("segments made ahead were deleted to make room: %d bytes", size)
            self._watch.unlinked(size, self._seams.clock.monotonic())
            self.journal.add(FORCED_DELETION, forced_deletion(found, None, size, None))
        return size > 0

    def _is_retry_due(self, triggers: Sequence[Trigger]) -> bool:
        """With every round in which files go, and each redeleteHangedFileInterval."""
        now = self._seams.clock.monotonic()
        if not triggers and now < self._retry_due:
            return False
        self._retry_due = now + self._config.redelete_hanged_file_interval / 1000
        return True

    # asking -------------------------------------------------------------------------------

    def plan(self, limit: int | None = None) -> RetentionPlan:
        """What would go now, when and why; of the oldest ``limit`` segments, by default of all.

        Changes nothing but whether puts are refused. What cannot be measured is as before.
        """
        with self._lock:
            return self._make_plan(limit)

    def run(self) -> RetentionPlan:
        """Let the next rounds remove what has expired at any hour, as RocketMQ's
        executeDeleteFilesManually; the caller then wakes the service. The plan of the first."""
        with self._lock:
            self._manual_rounds = MANUAL_ROUNDS
            self._work = iter(())
            self._due = -math.inf
            return self._make_plan(None)

    @property
    def disks(self) -> Disks:
        """As last measured."""
        return self._watch.last

    def pins(self) -> list[Pin]:
        """By name; those that have ended are not among them."""
        return self._pins.live()

    def pin(self, name: str) -> Pin:
        """Raises PinUnknown."""
        return self._pins.get(name)

    def put_pin(
        self, name: str, from_offset: int, to_offset: int | None, *, lease_s: int, why: str
    ) -> Pin:
        """Keep a range for so many seconds from now. Raises PinRefused, OSError."""
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
        """Raises PinUnknown, OSError."""
        with self._lock:
            self._pins.remove(name)

    @property
    def archive(self) -> ArchiveMark | None:
        """Up to where the log is archived; None where retention waits for no archive."""
        return self._archive.mark

    def archived(self, offset: int, place: str) -> ArchiveMark:
        """Everything below is archived, what lies behind is kept. ArchiveRefused, OSError."""
        with self._lock:
            return self._archive.advance(offset, place, max_offset=self._log.flushed_offset)

    def end_archive(self) -> None:
        """Wait for no archive any more. Raises OSError."""
        with self._lock:
            self._archive.end()

    def remove_oldest(self, count: int) -> int:
        """Unlink up to so many segments whatever their age, and what is derived from them alone;
        how many went. Raises StoreFailed, OSError."""
        with self._lock:
            removed = self.removal.remove_segments(count)
            for _ in self.removal.remove_derived():
                pass
            return removed

    # looking ------------------------------------------------------------------------------

    def _look(self) -> Disks:
        """Measure the disks, and refuse puts or take them again accordingly; try again what the
        last put lacked."""
        self._log.lacking.retry()
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
        situation = Situation(
            now_ms=self._seams.clock.now_ms(),
            config=self._config,
            segments=[facts for file in files[:limit] if (facts := self._facts(file))],
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

    def _modified_ms(self, file: MappedFile, modified_ms: int) -> int:
        """By the clock of now, so that one that was set makes no segment older or younger; as the
        file says where it was modified after that."""
        shifted = modified_ms + self._steps.view.shift_ms(file.end_offset - 1)
        return shifted if shifted <= self._seams.clock.now_ms() else modified_ms

    def _facts(self, file: MappedFile) -> SegmentFacts | None:
        stat = self._seams.files.stat(file.path)
        if stat is None:
            return None
        return SegmentFacts(
            file.path.name,
            file.base_offset,
            file.end_offset,
            self._modified_ms(file, stat.modified_ms),
            is_leaving=not file.is_available,
        )
