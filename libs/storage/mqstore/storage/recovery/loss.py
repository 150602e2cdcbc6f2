"""Finds durable data that is missing from the store's directory. Reads only.

``find_loss`` compares the segments with the store's own facts: the durable watermark of the state
page, the clean-close manifest, and the ranges that format.json records. Bytes above the watermark
are not judged: a power cut may remove them. ``accepted_loss`` acts on the result, once an operator
has accepted it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from mqstore.storage._kernel import Defect, check_record, is_zero
from mqstore.storage.codec.record import Blank
from mqstore.storage.layout import BLANK_RECORD_SIZE, RECORD_FIXED_SIZE
from mqstore.storage.lost_data import LISTED_MAX, ByteRange, Loss, LostEntries
from mqstore.storage.recovery.view import QueueFiles, Segment, Segments, StoreView
from mqstore.storage.recovery.walk import Run, walk

_RECORD_END: Final = 8
"""Every record has a byte that is not zero among its last ones: its topic, or its properties."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The durable data according to the last writer's metadata. Physical offsets, in bytes."""

    durable_end: int = 0
    """The end of the durable data that starts at ``begin``; 0 when it is unknown."""
    begin: int | None = None
    """The start of the log after the last retention; None when it is unknown."""
    known_missing: tuple[ByteRange, ...] = ()
    """Ranges that no writer of ours ever had, or whose loss was accepted."""
    queue_ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Next queue offsets, as last noted."""


class QueueLoss(NamedTuple):
    """The missing entries of one queue."""

    topic: str
    queue_id: int
    ranges: tuple[tuple[int, int], ...]
    end: int
    """The next unassigned queue offset."""
    is_open: bool
    """Whether no remaining record has the queue's last offset: the log by itself would assign
    offsets again."""


def find_loss(view: StoreView, facts: Facts) -> Loss | None:
    """Find missing durable data; None when there is none."""
    missing, log_end = find_missing(view, facts)
    return describe_loss(view, facts, missing, log_end) if missing else None


def describe_loss(
    view: StoreView, facts: Facts, missing: Sequence[ByteRange], log_end: int
) -> Loss:
    """Return the segments and queue ranges that are lost with missing ranges."""
    size = view.config.mapped_file_size_commit_log
    present = {segment.base for segment in _present(view.segments)}
    names = [name for lost in missing for name in _absent_names(lost, size, present)]
    found = [
        LostEntries(topic=queue.topic, queue_id=queue.queue_id, first=first, end=end)
        for queue in queue_losses(view, facts, missing)
        for first, end in queue.ranges
    ]
    return Loss(
        watermark=facts.durable_end,
        log_end=log_end,
        missing_bytes=sum(lost.stop - lost.start for lost in missing),
        missing=tuple(missing),
        segments=tuple(names[:LISTED_MAX]),
        segment_count=len(names),
        queues=tuple(found[:LISTED_MAX]),
        queue_count=len(found),
        messages=sum(each.end - each.first for each in found),
    )


def missing_ranges(segments: Segments, size: int, begin: int) -> list[ByteRange]:
    """Ranges from ``begin`` on without a segment although a later one exists."""
    found = []
    for segment in _present(segments):
        if segment.base > begin:
            found.append(ByteRange(start=begin, stop=segment.base))
        begin = max(begin, segment.base + size)
    return found


def queue_losses(
    view: StoreView, facts: Facts, missing: Sequence[ByteRange]
) -> Iterator[QueueLoss]:
    """Every queue that names missing records, or whose entries are missing too."""
    lost = join(sorted((each.start, each.stop) for each in missing))
    bases = (segment.base for segment in _present(view.segments))
    begin = min([*bases, *(start for start, _ in lost)], default=0)
    for topic, queue_id, queue in view.queues({*view.queue_names(), *facts.queue_ends}):
        noted_end = facts.queue_ends.get((topic, queue_id), 0)
        ranges, end, is_open = _queue_loss(view, queue, lost, begin, noted_end)
        if ranges:
            yield QueueLoss(topic, queue_id, tuple(ranges), end, is_open)


def _queue_loss(
    view: StoreView,
    queue: QueueFiles,
    missing: Sequence[tuple[int, int]],
    begin: int,
    noted_end: int,
) -> tuple[list[tuple[int, int]], int, bool]:
    end = queue.end
    ranges = list(spans_of(queue, missing))
    last = queue.last_named
    is_open = last is not None and last.offset >= begin and not _is_there(view, last.offset)
    if is_open and last is not None:  # entries that were not durable yet are lost with it
        ranges.append((ranges[-1][1] if ranges else last.number, end))
    if noted_end > end:  # the entries are missing too
        ranges.append((end, noted_end))
        end, is_open = noted_end, True
    return join(ranges), end, is_open


def spans_of(queue: QueueFiles, missing: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the entries (first, end) of a queue that name records of each missing range.

    The ranges ascend. Those of which the queue has no record are passed at once, so that a queue
    is searched at most once for each of its entries, however many ranges are missing.
    """
    at = 0
    while at < len(missing):
        named = queue.first_beyond(missing[at][0] - 1)
        if named is None:
            return
        at = bisect_right(missing, named, lo=at, key=itemgetter(1))
        if at < len(missing) and missing[at][0] <= named:
            if (found := queue.span(*missing[at])) is not None:
                yield found
            at += 1


def _is_there(view: StoreView, offset: int) -> bool:
    """Whether any bytes of a record exist at a physical offset."""
    segment = view.segments.at(offset)
    if segment is None:
        return False
    with view.map_segment(segment) as data:
        position = offset - segment.base
        return any(data[position : position + RECORD_FIXED_SIZE])


def join(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ascending ranges that overlap or touch."""
    joined: list[tuple[int, int]] = []
    for first, end in ranges:
        if joined and joined[-1][1] >= first:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined


def _present(segments: Segments) -> list[Segment]:
    """All segments, including those of a wrong length, which are reported separately."""
    return sorted([*segments.usable, *segments.misfits], key=lambda each: each.base)


def _absent_names(lost: ByteRange, size: int, present: set[int]) -> Iterator[str]:
    for base in range(lost.start - lost.start % size, lost.stop, size):
        if base not in present:
            yield f"{base:020d}"


def find_missing(view: StoreView, facts: Facts) -> tuple[list[ByteRange], int]:
    """Find the missing ranges below the watermark, and the end of the present log."""
    size, end = view.config.mapped_file_size_commit_log, facts.durable_end
    present = _present(view.segments)
    begin = facts.begin
    if begin is None:
        begin = present[0].base if present else 0
    found = missing_ranges(view.segments, size, begin)
    log_end = min(begin, end)
    for segment in reversed([each for each in present if each.base < end]):
        log_end = _reached(view, segment, min(end, segment.base + size))
        if log_end > segment.base:  # otherwise no byte of it exists
            break
    if log_end < end:
        found = [lost for lost in found if lost.start < log_end]
        found.append(ByteRange(start=log_end, stop=end))
    found += _cut_off(view.segments.misfits, size)
    found = subtract(found, facts.known_missing)
    # Above the watermark a file is missing only if durable data follows it.
    return [lost for lost in found if lost.start < end], log_end


def _cut_off(misfits: Sequence[Segment], size: int) -> Iterator[ByteRange]:
    """The missing ends of short segments inside the log, for example of an unfinished copy."""
    for segment in misfits:
        if segment.length < size:
            yield ByteRange(start=segment.end, stop=segment.base + size)


def subtract(lost: Sequence[ByteRange], known: Sequence[ByteRange]) -> list[ByteRange]:
    """Return what is left of ranges without the known ones."""
    joined = join(sorted((each.start, each.stop) for each in known))
    return [each for one in lost for each in _without(one, joined)]


def _without(lost: ByteRange, known: Sequence[tuple[int, int]]) -> Iterator[ByteRange]:
    """Yield what is left of a range without the known ones, which ascend and do not overlap."""
    start = lost.start
    first = bisect_right(known, start, key=itemgetter(1))
    last = bisect_left(known, lost.stop, key=itemgetter(0))
    for known_start, known_stop in known[first:last]:
        if known_start > start:
            yield ByteRange(start=start, stop=known_start)
        start = max(start, known_stop)
    if start < lost.stop:
        yield ByteRange(start=start, stop=lost.stop)


def _reached(view: StoreView, segment: Segment, end: int) -> int:
    """``end`` where the segment's records reach it, else where they end.

    Damage in between does not count as missing: the bytes up to ``end`` exist.
    """
    with view.map_segment(segment) as data:
        position = min(end - segment.base, len(data))
        if position == len(data) < end - segment.base or not _ends_at(data, position, segment.base):
            reached = _walk(data, position, segment.base)
            if reached < position and _is_cut_off(data, reached, position):
                return segment.base + reached
        return end if position == end - segment.base else segment.base + position


def _ends_at(data: memoryview, position: int, base: int) -> bool:
    """Whether a record certainly ends at a position inside a segment."""
    if position == len(data) or not any(data[max(0, position - _RECORD_END) : position]):
        return False
    if is_zero(data[position : position + RECORD_FIXED_SIZE]):
        return True
    defect, _ = check_record(data, position, len(data), base + position, False)
    return defect in (Defect.NONE, Defect.BLANK)


def _walk(data: memoryview, stop: int, base: int) -> int:
    """The position that whole records reach from the segment's begin, at most ``stop``.

    Damage between them is skipped, and a blank record leads to the segment's end.
    """
    reached = 0
    for found in walk(data, 0, stop, base, verify_body=False):
        if isinstance(found, Blank):
            return stop
        if isinstance(found, Run):
            reached = found.stop
        elif len(data) - found.position >= BLANK_RECORD_SIZE:
            offset = base + found.position
            defect, _ = check_record(data, found.position, len(data), offset, False)
            if defect == Defect.BLANK:
                return stop
            if defect == Defect.NONE:  # a record extends over ``stop``: this is another log
                return found.position
    return reached


def _is_cut_off(data: memoryview, reached: int, stop: int) -> bool:
    """Whether the bytes after the last whole record cannot be a damaged record that ends at
    ``stop``: they end in zeros, or a record extends over it."""
    if not any(data[max(reached, stop - _RECORD_END) : stop]):
        return True
    defect, size = check_record(data, reached, len(data), -1, False)
    return defect == Defect.NONE and reached + size > stop
