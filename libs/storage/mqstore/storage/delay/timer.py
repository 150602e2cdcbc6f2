"""Delivers messages at the time that each names, over RocketMQ's timer wheel.

Source: TimerMessageStore of 5.4.0. A message waits in rmq_sys_wheel_timer, of which the wheel is
derived: enqueueing puts each into the slot of its second, dequeueing delivers the slots that have
passed. A message with a time beyond the roll window is put into a slot within it, and stored anew
then, so that no record waits longer than the window; retention keeps the records that wait.

Unlike RocketMQ, a slot is emptied when it is finished, the copies are on disk before the progress
is, and what was delivered between the last save and a crash is found in the index.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mqstore.storage.codec.java_text import string_hash
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.delay.delivery import NEVER
from mqstore.storage.delay.duplicates import DeliveredCopies, DeliveryUnknown
from mqstore.storage.delay.rewriting import Undeliverable, copy_of_timed, rolled, slot_of
from mqstore.storage.delay.timer_files import (
    DELETE,
    NOWHERE,
    ROLL,
    UNIT_SIZE,
    TimerCheckpoint,
    TimerLog,
    TimerWheel,
    Unit,
)
from mqstore.storage.errors import FlushTimeout, PutRefused, StorageError, StoreFailed
from mqstore.storage.layout import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_RECALLED,
    TIMER_PRECISION_MS,
    TIMER_TOPIC,
    StoreFormat,
)
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.retention.groups import next_record
from mqstore.storage.retention.holds import Hold
from mqstore.storage.seams import Seams

ROLL_WINDOW_MS: Final = 2 * 86_400_000
"""timerRollWindowSlot of a broker: shorter than fileReservedTime, and than half of the wheel."""
SAVE_S: Final = 1.0
RETRY_S: Final = 1.0
SLICE: Final = 500
"""Messages that are enqueued, and delivered, in one step."""
_AT_ONCE: Final = 2**63 - 1
"""TIMER_ENQUEUE_MS of a message that was never in a slot."""
_FIRST: Final = 1

_Copy = Callable[[Record, int, int, StoreFormat], Message]

_log = bounded_log(__name__)


@dataclass(frozen=True, slots=True)
class TimerStatus:
    """The state of messages with a time of delivery at one moment."""

    pending: int
    next_due_ms: int | None
    """When the first of them is delivered, in milliseconds since the epoch; None without one."""
    waiting: str | None
    """Why nothing is delivered although messages are due; else None."""


class TimerService:
    """A ``BackgroundService`` that delivers messages at their times. StoreFailed ends it.

    ``holds`` and ``status`` may be called by any thread.
    """

    name = "deliver-timed"

    def __init__(
        self,
        paths: StorePaths,
        seams: Seams,
        store_format: StoreFormat,
        log: CommitLog,
        queues: ConsumeQueues,
        copies: DeliveredCopies | None,
        put: Callable[[Message], object],
    ) -> None:
        """``put`` appends a message unchanged; it may raise PutRefused, StoreFailed."""
        self.delivered = 0
        self.suppressed = 0
        """Messages that were not delivered again, as a copy was found in the log."""
        self.passed_over = 0
        """Messages that are unreadable or have no valid destination."""
        self.on_delivered: Callable[[int], None] = lambda _: None
        """Called in this service's thread after each delivery with its lateness in milliseconds."""
        self.waiting: str | None = None
        self._paths, self._seams, self._format = paths, seams, store_format
        self._commit_log, self._queues, self._copies, self._put = log, queues, copies, put
        self._files: tuple[TimerLog, TimerWheel] | None = None
        self._read_ms = 0
        self._next = 0
        self._finished_below = 0
        """Offset below which messages of slots before ``_finished_ms`` are finished."""
        self._finished_ms = 0
        self._oldest = 0
        """Position before which all units are finished."""
        self._oldest_record: int | None = None
        self._saved_record: int | None = None
        """The oldest waiting record as of the saved progress, to which a crash returns."""
        self._saved_next = 0
        self._count = 0
        self._due_ms: int | None = None
        self._slot: array[int] = array("q")
        """Positions of the units of the slot at ``_read_ms``, the next one at the end."""
        self._slot_end = NOWHERE
        self._finished_in: dict[int, int] = {}
        """Position up to which units are finished, by slot, of slots that were left in the middle.
        """
        self._is_changed = False
        self._save_due = -math.inf

    # any thread -----------------------------------------------------------------------------

    def status(self) -> TimerStatus:
        """The present state."""
        queue = self._queue
        beyond = 0 if queue is None else max(0, queue.max_index - max(self._next, queue.min_index))
        due = self._due_ms
        return TimerStatus(
            self._count + beyond, None if due is None else due + TIMER_PRECISION_MS, self.waiting
        )

    def holds(self) -> Iterator[Hold]:
        """Hold the messages that wait by the saved progress, from the oldest."""
        queue = self._queue
        if queue is None:
            return
        is_loaded = self._files is not None
        coming = next_record(queue, self._saved_next if is_loaded else queue.min_index)
        offsets = [each for each in (self._saved_record, coming) if each is not None]
        if offsets:
            yield Hold(
                kind="delay", name="timer", from_offset=min(offsets), to_offset=None, until_ms=None
            )

    @property
    def _queue(self) -> ConsumeQueue | None:
        return self._queues.get(TIMER_TOPIC, 0)

    # its own thread -------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Enqueue and deliver what is due, and save progress. Raises StoreFailed."""
        queue = self._queue
        if queue is None:
            return now + TIMER_PRECISION_MS / 1000
        try:
            wait_s = self._work(queue)
            if now >= self._save_due:
                self._save_due = now + SAVE_S
                self.save()
        except (DeliveryUnknown, FlushTimeout, OSError, PutRefused) as error:
            self._wait_for(error)
            return now + RETRY_S
        self.waiting = None
        return now + wait_s

    def _wait_for(self, error: Exception) -> None:
        if self.waiting != str(error):
            self.waiting = str(error)
            _log.warning("messages with a time of delivery wait: %s", error)

    def _work(self, queue: ConsumeQueue) -> float:
        timer_log, wheel = self._files or self._load(queue)
        now_ms = self._seams.clock.now_ms()
        write_ms = now_ms // TIMER_PRECISION_MS * TIMER_PRECISION_MS
        if write_ms < self._read_ms:
            self._turn_back(write_ms)
        enqueued = self._enqueue(queue, timer_log, wheel, write_ms)
        finished = self._dequeue(timer_log, wheel, write_ms)
        self._release(timer_log)
        self._note_next(wheel)
        if enqueued == SLICE or not finished:
            return 0.0
        return (write_ms + TIMER_PRECISION_MS - now_ms) / 1000

    def _turn_back(self, write_ms: int) -> None:
        """Go on at the time to which the clock was set back. A slot that is not finished keeps the
        rest of its units for the next time that it passes."""
        if self._slot:
            self._finished_in[self._read_ms] = self._slot[-1] - 1
            self._slot = array("q")
        self._read_ms = write_ms

    def _note_next(self, wheel: TimerWheel) -> None:
        if self._count == 0:
            self._due_ms = None
        elif self._due_ms is None or self._due_ms < self._read_ms:
            end_ms = self._read_ms + wheel.span_ms
            self._due_ms = wheel.next_used(self._read_ms, end_ms) or wheel.first_used()

    def save(self) -> None:
        """Save the progress. Raises FlushTimeout, StoreFailed, OSError; the next call retries."""
        if self._files is None or not self._is_changed:
            return
        timer_log, wheel = self._files
        self._commit_log.sync()
        timer_log.flush()
        wheel.flush()
        found = TimerCheckpoint(self._read_ms, timer_log.end, self._next, self._next)
        found.save(self._seams.files, self._paths.timer_check)
        self._is_changed = False
        self._note_saved(timer_log)

    def _note_saved(self, timer_log: TimerLog) -> None:
        """Let go of what the saved progress does not need: a crash before the save needs it."""
        self._saved_record, self._saved_next = self._oldest_record, self._next
        timer_log.remove_before(self._oldest)

    # loading --------------------------------------------------------------------------------

    def _load(self, queue: ConsumeQueue) -> tuple[TimerLog, TimerWheel]:
        """Make the wheel of the units that the checkpoint vouches for. Raises OSError."""
        files, now_ms = self._seams.files, self._seams.clock.now_ms()
        found = TimerCheckpoint.load(files, self._paths.timer_check)
        timer_log = TimerLog(self._paths, self._seams)
        saved = found or TimerCheckpoint(read_ms=now_ms // TIMER_PRECISION_MS * TIMER_PRECISION_MS)
        end = self._trusted_end(timer_log, saved) if found is not None else None
        if end is None:
            if found is not None and timer_log.is_empty:  # as after a restore, and in a copy
                _log.info("the timer log is made again, from %s", TIMER_TOPIC)
            elif found is not None:
                _log.error("timerlog is damaged: the timer begins anew, from %s", TIMER_TOPIC)
            timer_log.clear()
            self._is_changed = True
            self._finished_below, self._finished_ms = saved.queue_offset, saved.read_ms
            self._next = queue.min_index
        else:
            timer_log.cut(end)
            self._next = max(saved.queue_offset, queue.min_index)
        self._next = min(self._next, queue.max_index)
        self._read_ms = saved.read_ms // TIMER_PRECISION_MS * TIMER_PRECISION_MS
        wheel = TimerWheel(self._paths, self._seams)
        self._oldest, self._count = timer_log.begin, 0
        for position, unit in timer_log.units():
            if unit.slot_ms < self._read_ms:
                continue
            if unit.previous != wheel.last(unit.slot_ms):  # the slot was emptied before it
                self._count -= wheel.clear(unit.slot_ms)
            wheel.add(unit.slot_ms, position)
            self._count += 1
        wheel.publish()
        self._release(timer_log)
        if not self._is_changed:
            self._note_saved(timer_log)
        self._files = timer_log, wheel
        return self._files

    def _trusted_end(self, timer_log: TimerLog, saved: TimerCheckpoint) -> int | None:
        """The end of the units of messages before the checkpoint's queue offset; None where units
        are missing before that."""
        positions = array("q", (position for position, _ in timer_log.units()))
        end = positions[-1] + UNIT_SIZE if positions else timer_log.begin
        reach = timer_log.next_position(positions[-1]) if positions else end
        if reach < saved.log_end:
            return None
        while positions and not self._is_before(timer_log, positions[-1], saved.queue_offset):
            end = positions.pop()
        return end

    def _is_before(self, timer_log: TimerLog, position: int, queue_offset: int) -> bool:
        unit = timer_log.unit(position)
        found = None if unit is None else self._record(unit, with_body=False)
        if found is None:
            return unit is not None and unit.physical_offset < self._commit_log.min_offset
        return found.queue_offset < queue_offset

    def _record(self, unit: Unit, *, with_body: bool = True) -> Record | None:
        """The record of a unit; None where there is another one, or none."""
        try:
            found = self._commit_log.record_at(unit.physical_offset, with_body=with_body)
        except StorageError:
            return None
        is_its = found.topic == TIMER_TOPIC and found.size == unit.size
        return found if is_its else None

    # enqueueing -----------------------------------------------------------------------------

    def _enqueue(
        self, queue: ConsumeQueue, timer_log: TimerLog, wheel: TimerWheel, write_ms: int
    ) -> int:
        """Put up to SLICE messages into their slots; returns their number."""
        self._next = max(self._next, queue.min_index)
        start, count = self._next, 0
        for index, entry in queue.entries(start, min(start + SLICE, queue.max_index)):
            if not entry.is_hole:
                self._enqueue_one(index, entry.physical_offset, timer_log, wheel, write_ms)
            self._next, count, self._is_changed = index + 1, count + 1, True
        return count

    def _enqueue_one(
        self, index: int, offset: int, timer_log: TimerLog, wheel: TimerWheel, write_ms: int
    ) -> None:
        try:
            found = self._commit_log.record_at(offset, with_body=False)
            if (found.topic, found.queue_offset) != (TIMER_TOPIC, index):
                return  # the entry fills a hole: the record has its own entry
            slot_ms = slot_of(found)
            if slot_ms < write_ms:
                found = self._commit_log.record_at(offset)
        except StoreFailed:
            raise
        except StorageError as error:
            self._pass_over(offset, error)
            return
        if index < self._finished_below and slot_ms < self._finished_ms:
            return
        if slot_ms < write_ms:
            self._deliver(found, _AT_ONCE)
            return
        magic = _FIRST
        if slot_ms - write_ms >= ROLL_WINDOW_MS:
            magic |= ROLL
            is_near = slot_ms - write_ms < ROLL_WINDOW_MS * 4 // 3  # leave time to the next roll
            slot_ms = write_ms + ROLL_WINDOW_MS // (2 if is_near else 1)
        table = found.properties or {}
        if PROPERTY_TIMER_RECALLED in table:
            magic |= DELETE
        topic = table.get(PROPERTY_REAL_TOPIC, "")
        previous, delay_ms = wheel.last(slot_ms), slot_ms - write_ms
        unit = Unit(previous, magic, write_ms, delay_ms, offset, found.size, string_hash(topic))
        if self._oldest_record is None:
            self._oldest_record = offset
        wheel.reserve(slot_ms)  # a unit that is in no slot would be enqueued again
        wheel.add(slot_ms, timer_log.append(unit))
        self._count += 1
        self._due_ms = slot_ms if self._due_ms is None else min(self._due_ms, slot_ms)

    # dequeueing -----------------------------------------------------------------------------

    def _dequeue(self, timer_log: TimerLog, wheel: TimerWheel, write_ms: int) -> bool:
        """Finish up to SLICE messages of the slots that have passed; whether those were all."""
        left = SLICE
        while left:
            if not self._slot:
                slot_ms = wheel.next_used(self._read_ms, write_ms)
                if slot_ms is None:
                    self._read_ms = min(write_ms, self._read_ms + wheel.span_ms)
                    return self._read_ms >= write_ms
                self._read_ms = slot_ms
                self._slot_end = wheel.last(slot_ms)
                finished = self._finished_in.pop(slot_ms, NOWHERE)
                self._slot = self._chain(timer_log, self._slot_end, finished)
            while self._slot and left:
                self._finish(timer_log, self._slot[-1], write_ms)
                self._slot.pop()
                self._count, left, self._is_changed = self._count - 1, left - 1, True
            if not self._slot:
                self._close_slot(timer_log, wheel)
        return False

    def _close_slot(self, timer_log: TimerLog, wheel: TimerWheel) -> None:
        """Empty the finished slot, unless units came to it while the clock was set back."""
        last = wheel.last(self._read_ms)
        if last != self._slot_end:
            self._slot = self._chain(timer_log, last, self._slot_end)
            self._slot_end = last
        if not self._slot:
            wheel.clear(self._read_ms)
            self._read_ms += TIMER_PRECISION_MS

    def _chain(self, timer_log: TimerLog, last: int, end: int = NOWHERE) -> array[int]:
        """Positions of a slot's units, the last first."""
        found, position = array("q"), last
        while position > end:
            unit = timer_log.unit(position)
            if unit is None or unit.slot_ms != self._read_ms:
                break
            found.append(position)
            if unit.previous >= position:
                break
            position = unit.previous
        return found

    def _finish(self, timer_log: TimerLog, position: int, write_ms: int) -> None:
        unit = timer_log.unit(position)
        if unit is None:
            return
        found = self._record(unit)
        if found is None:
            self._pass_over(unit.physical_offset, "the message is not there")
        elif unit.magic & ROLL:
            self._store(found, unit.enqueued_ms, rolled)
        elif not unit.magic & DELETE:
            self._deliver(found, unit.enqueued_ms)

    def _deliver(self, found: Record, enqueued_ms: int) -> None:
        if self._store(found, enqueued_ms, copy_of_timed):
            self.delivered += 1
            due_ms = slot_of(found) + TIMER_PRECISION_MS
            self.on_delivered(max(0, self._seams.clock.now_ms() - due_ms))

    def _store(self, found: Record, enqueued_ms: int, copy: _Copy) -> bool:
        """Store a copy of a record, unless that was done before; whether it was stored.

        Raises DeliveryUnknown, PutRefused, StoreFailed.
        """
        try:
            if self._is_finished(found):
                self.suppressed += 1
                return False
            self._put(copy(found, enqueued_ms, self._seams.clock.now_ms(), self._format))
        except (Undeliverable, *NEVER) as error:
            self._pass_over(found.physical_offset, error)
            return False
        return True

    def _is_finished(self, found: Record) -> bool:
        copies = self._copies
        return copies is not None and (copies.is_delivered(found) or copies.is_rolled(found))

    def _pass_over(self, offset: int, why: object) -> None:
        self.passed_over += 1
        _log.error("the timed message at %d is passed over: %s", offset, why)

    def _release(self, timer_log: TimerLog) -> None:
        """Note the oldest message that waits."""
        while (unit := timer_log.unit(self._oldest)) is not None and self._is_past(unit):
            self._oldest = timer_log.next_position(self._oldest)
        self._oldest_record = None if unit is None else unit.physical_offset

    def _is_past(self, unit: Unit) -> bool:
        return unit.slot_ms < self._read_ms

    def close(self) -> None:
        """Unmap the files."""
        if self._files is not None:
            for each in self._files:
                each.close()
