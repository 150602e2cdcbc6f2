"""The files of RocketMQ's timer: ``timerwheel``, ``timerlog`` and ``config/timercheck``.

Source: TimerWheel, Slot, TimerLog and TimerCheckpoint of 5.4.0, and files of its broker. A slot is
a second. It has the positions of the first and the last unit of a message that waits for it; each
unit has the position of the one before it in its slot. All three are derived from the topic
rmq_sys_wheel_timer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.storage.layout import CHECKPOINT_SIZE, PAGE_SIZE, TIMER_PRECISION_MS
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import remove_file, replace_file
from mqstore.storage.system.sparse import SMALL_CHUNK, data_chunks

WHEEL_SLOTS: Final = 2 * 7 * 86_400
TIMER_LOG_FILE_SIZE: Final = 100 << 20
ROLL: Final = 1 << 1
"""Bit of a unit's magic: the message is stored anew in this slot, instead of delivered."""
DELETE: Final = 1 << 2
"""Bit of a unit's magic: the message is a recall of another one."""
NOWHERE: Final = -1
"""The position before a slot's first unit."""

_UNIT: Final = struct.Struct(">iqiqiqiiq")
_SLOT: Final = struct.Struct(">qqqii")
WHEEL_SIZE: Final = WHEEL_SLOTS * _SLOT.size
_BLANK: Final = struct.Struct(">iqi")
_CHECKPOINT: Final = struct.Struct(">qqqqqqq")
_BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
_MAGIC_BITS: Final = 0xF
_NO_SLOTS: Final = bytes(PAGE_SIZE)


class Unit(NamedTuple):
    """A message that was put into a slot."""

    previous: int
    magic: int
    enqueued_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """The begin of its slot."""
        return (self.enqueued_ms + self.delay_ms) // TIMER_PRECISION_MS * TIMER_PRECISION_MS

    def encode(self) -> bytes:
        """The unit's bytes."""
        return _UNIT.pack(_UNIT.size, *self, 0)


UNIT_SIZE: Final = _UNIT.size


def decode_unit(view: memoryview, position: int) -> Unit | None:
    """Decode the unit at a position; None where none was written whole."""
    size, *fields, _ = _UNIT.unpack_from(view, position)
    unit = Unit(*fields)
    is_one = size == UNIT_SIZE and 0 < unit.magic <= _MAGIC_BITS
    return unit if is_one else None


class TimerCheckpoint(NamedTuple):
    """Progress of the timer that is on disk, with all that it refers to."""

    read_ms: int = 0
    """All slots before it are finished."""
    log_end: int = 0
    """Position up to which the timer log is on disk."""
    queue_offset: int = 0
    """Offset in rmq_sys_wheel_timer below which messages are in the timer log, or delivered."""
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """The file's bytes."""
        return _CHECKPOINT.pack(*self).ljust(CHECKPOINT_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint | None:
        """Decode a file's bytes; None for values that no timer writes."""
        if len(data) < _CHECKPOINT.size:
            return None
        found = cls(*_CHECKPOINT.unpack_from(data))
        return found if min(found[:4]) >= 0 else None

    @classmethod
    def load(cls, files: FileSystem, path: Path) -> TimerCheckpoint | None:
        """Read the file; None without a valid one. Raises OSError."""
        return None if files.stat(path) is None else cls.decode(files.read(path))

    def save(self, files: FileSystem, path: Path) -> None:
        """Replace the file, durably. Raises OSError."""
        files.make_directories(path.parent)
        replace_file(files, path, self.encode())


def timer_log_file_size(sizes: Iterable[int | None]) -> int:
    """Return the size that files of the timer log have, after those that are there."""
    least = UNIT_SIZE + _BLANK.size
    return next((each for each in sizes if each and each >= least), TIMER_LOG_FILE_SIZE)


class TimerLog:
    """The units in the order in which messages came; only the last files may be removed, or
    shortened. One thread."""

    def __init__(self, paths: StorePaths, seams: Seams) -> None:
        names = seams.files.list(paths.timer_log)
        stats = (seams.files.stat(paths.timer_log / name) for name in names)
        sizes = (None if each is None or each.is_directory else each.size for each in stats)
        self._queue = MappedFileQueue(
            paths.timer_log,
            timer_log_file_size(sizes),
            seams,
            staging=paths.queue_staging,
            derived=True,
        )
        self._queue.load()

    @property
    def is_empty(self) -> bool:
        """Whether there is no file of units."""
        return self._queue.last is None

    @property
    def begin(self) -> int:
        """The position of the first unit that there is."""
        return self._queue.min_offset

    @property
    def end(self) -> int:
        """The position behind the last unit."""
        last = self._queue.last
        return 0 if last is None else last.base_offset + last.wrote_position

    def unit(self, position: int) -> Unit | None:
        """The unit at a position; None where there is none."""
        file = self._queue.find(position)
        if file is None or position - file.base_offset + UNIT_SIZE > file.wrote_position:
            return None
        return decode_unit(file.view, position - file.base_offset)

    def units(self) -> Iterator[tuple[int, Unit]]:
        """All units with their positions, up to the first that is damaged."""
        following = self.begin
        for file in self._queue.files:
            if file.base_offset != following:
                return
            following, at = file.end_offset, 0
            while at + UNIT_SIZE <= file.wrote_position:
                unit = decode_unit(file.view, at)
                if unit is None:
                    break
                yield file.base_offset + at, unit
                at += UNIT_SIZE
            if not _is_full_at(file, at):
                return

    def cut(self, end: int) -> None:
        """Make ``end`` the end: what a broker could take for units behind it is zeroed."""
        for file in self._queue.files:
            if file.base_offset <= end < file.end_offset:
                chunks = data_chunks(end - file.base_offset, file.size, file.next_data, SMALL_CHUNK)
                for start, stop in chunks:
                    if file.view[start:stop].tobytes() != bytes(stop - start):
                        file.ensure_reserved(stop)
                        file.view[start:stop] = bytes(stop - start)
        self._queue.remove_from(end)
        for file in self._queue.files:
            file.force_sync()

    def clear(self) -> None:
        """Remove all units."""
        self._queue.remove_from(0)

    def append(self, unit: Unit) -> int:
        """Append a unit; returns its position. Raises OSError."""
        file = self._queue.last
        if file is None:
            file = self._add(0)
        if UNIT_SIZE + _BLANK.size > file.size - file.wrote_position:
            rest = file.size - file.wrote_position
            if rest >= _BLANK.size:
                file.ensure_reserved(file.wrote_position + _BLANK.size)
                _BLANK.pack_into(file.view, file.wrote_position, rest, 0, _BLANK_MAGIC)
            file.wrote_position = file.size
            file = self._add(file.end_offset)
        at = file.wrote_position
        file.ensure_reserved(at + UNIT_SIZE)
        file.view[at : at + UNIT_SIZE] = unit.encode()
        file.wrote_position = at + UNIT_SIZE
        return file.base_offset + at

    def _add(self, offset: int) -> MappedFile:
        file = self._queue.add(offset)
        file.wrote_position = 0
        return file

    def next_position(self, position: int) -> int:
        """The position of the unit behind the one at ``position``."""
        following = position + UNIT_SIZE
        file = self._queue.find(position)
        if file is None or UNIT_SIZE + _BLANK.size <= file.end_offset - following:
            return following
        return file.end_offset

    def remove_before(self, position: int) -> None:
        """Remove the files with units before a position alone, but not the last. OSError."""
        old = [each for each in self._queue.files[:-1] if each.end_offset <= position]
        if old:
            self._queue.remove_first(len(old), force_after_s=0)

    def flush(self) -> None:
        """Sync all units, and the names of their files. Raises StoreFailed, OSError."""
        self._queue.flush()
        if self._queue.names_due and self._queue.files:
            self._queue.sync_names()
            self._queue.names_due = False

    def close(self) -> None:
        """Unmap the files."""
        self._queue.close()


def _is_full_at(file: MappedFile, at: int) -> bool:
    """Whether no unit fits behind a position of a file, and a blank says so."""
    if UNIT_SIZE + _BLANK.size <= file.size - at:
        return False
    if file.size - at < _BLANK.size:
        return True
    _, _, magic = _BLANK.unpack_from(file.view, at)
    return bool(magic == _BLANK_MAGIC)


class Slot(NamedTuple):
    """The units of one second."""

    second: int
    first: int
    """Position of its first unit."""
    last: int
    """Position of its last unit."""
    units: int
    """Number of its units."""
    magic: int


_EMPTY: Final = Slot(0, 0, 0, 0, 0)


class TimerWheel:
    """The slots of two weeks, by their second. One thread.

    Seconds of two turns meet after the clock was set back by most of a turn: the file has the first
    of them, memory the others.
    """

    def __init__(self, paths: StorePaths, seams: Seams) -> None:
        """Begin an empty wheel, at a name of its own until ``publish``. Raises OSError."""
        self.span_ms = WHEEL_SLOTS * TIMER_PRECISION_MS
        """The time of one turn."""
        self._files, self._path, self._slots = seams.files, paths.timer_wheel, WHEEL_SLOTS
        self._made = paths.timer_wheel.with_name(paths.timer_wheel.name + ".tmp")
        with suppress(FileNotFoundError):
            self._files.unlink(self._made)
        self._files.create(self._made, WHEEL_SIZE, reserve=0, sync=False)
        self._mapping = self._files.map(self._made, writable=True)
        self._view = self._mapping.view
        self._place = self._made
        """The present path of the file."""
        self._reserved = bytearray(-(-len(self._view) // PAGE_SIZE))
        """By page, whether it has disk blocks: a slot is stored into no other one."""
        self._others: dict[int, dict[int, Slot]] = {}
        """By place in the file, the slots of later seconds than that in the file, by second."""

    def publish(self) -> None:
        """Replace the file of that name, and forget its snapshots. Raises OSError."""
        self._mapping.sync()
        self._files.rename(self._made, self._path)
        self._place = self._path
        for name in self._files.list(self._path.parent):
            if name.startswith(self._path.name + ".") and not name.endswith(".tmp"):
                remove_file(self._files, self._path.parent / name)
        self._files.sync_directory(self._path.parent)

    def last(self, slot_ms: int) -> int:
        """The position of the slot's last unit; NOWHERE for an empty slot."""
        found = self._slot(slot_ms)
        return NOWHERE if found is None else found.last

    def add(self, slot_ms: int, position: int) -> None:
        """Put a unit at the end of its slot. Raises OSError as ``reserve``."""
        self.reserve(slot_ms)
        second = slot_ms // TIMER_PRECISION_MS
        found = self._slot(slot_ms) or Slot(second, position, position, 0, 0)
        self._put(self._at(slot_ms), found._replace(last=position, units=found.units + 1))

    def reserve(self, slot_ms: int) -> None:
        """Give disk blocks to a slot, with those beside it: a wheel takes the room of what it
        holds. Raises OSError when there are none."""
        page = self._at(slot_ms) // PAGE_SIZE
        if not self._reserved[page]:
            start = page * PAGE_SIZE
            self._files.reserve(self._place, start, min(PAGE_SIZE, len(self._view) - start))
            self._reserved[page] = 1

    def _put(self, at: int, slot: Slot) -> None:
        there = self._in_file(at)
        if there.units and there.second != slot.second:
            later = max(there, slot)
            self._others.setdefault(at, {})[later.second] = later
        if not there.units or slot.second <= there.second:
            _SLOT.pack_into(self._view, at, *slot)

    def clear(self, slot_ms: int) -> int:
        """Empty a slot; returns how many units it had."""
        found, at = self._slot(slot_ms), self._at(slot_ms)
        if found is None:
            return 0
        others = self._others.pop(at, {})
        if others.pop(found.second, None) is None:
            following = others.pop(min(others)) if others else _EMPTY
            _SLOT.pack_into(self._view, at, *following)
        if others:
            self._others[at] = others
        return found.units

    def next_used(self, start_ms: int, end_ms: int) -> int | None:
        """The first slot with units from ``start_ms`` to before ``end_ms``; None without one."""
        at_ms, in_page = start_ms, PAGE_SIZE // _SLOT.size
        end_ms = min(end_ms, start_ms + self.span_ms)
        while at_ms < end_ms:
            at = self._at(at_ms)
            page = self._view[at : at + PAGE_SIZE]
            if at % PAGE_SIZE == 0 and page.tobytes() == _NO_SLOTS:
                at_ms += in_page * TIMER_PRECISION_MS
                continue
            if self.last(at_ms) != NOWHERE:
                return at_ms
            at_ms += TIMER_PRECISION_MS
        return None

    def first_used(self) -> int | None:
        """The first slot with units of all turns; None without one."""
        pages = range(0, len(self._view), PAGE_SIZE)
        used = [at for at in pages if self._view[at : at + PAGE_SIZE].tobytes() != _NO_SLOTS]
        seconds = (each.second for at in used for each in self._page(at) if each.units)
        first = min(seconds, default=None)  # those in memory are later ones
        return None if first is None else first * TIMER_PRECISION_MS

    def _page(self, at: int) -> Iterator[Slot]:
        return map(Slot._make, _SLOT.iter_unpack(self._view[at : at + PAGE_SIZE]))

    def flush(self) -> None:
        """Sync the slots. Raises OSError."""
        self._mapping.sync()

    def close(self) -> None:
        """Unmap the file."""
        self._mapping.unmap()

    def _at(self, slot_ms: int) -> int:
        return slot_ms // TIMER_PRECISION_MS % self._slots * _SLOT.size

    def _in_file(self, at: int) -> Slot:
        return Slot(*_SLOT.unpack_from(self._view, at))

    def _slot(self, slot_ms: int) -> Slot | None:
        """The slot; None for an empty one."""
        at, second = self._at(slot_ms), slot_ms // TIMER_PRECISION_MS
        there = self._in_file(at)
        if there.units and there.second == second:
            return there
        return self._others.get(at, {}).get(second)
