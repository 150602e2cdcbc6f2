"""Finds messages that the files of a broker show and that the log lacks. Reads only.

A broker keeps no watermark. Its files show a loss where they cannot be as they are otherwise:

- There is no log, and queues name records, or offsets of groups and of delay levels or the
  checkpoint show that there were messages. An opening without the log (on another volume, under
  another name) would make a new store of it: queues and delay offsets would be cut to nothing.
- Segments are missing between others. A broker makes them one behind the other, cuts the log at its
  end and deletes at its begin.
- Queues name records behind the log's end. A broker that did not close may have lost that end with
  the machine, and cuts its queues to what is left: its end is not judged.
- A whole queue file names records below the log's begin only. Queues name such records as long as a
  file has others, or is the last one of its queue; the others a broker deletes within seconds after
  the segments. One that did not close may not have come to it: its begin is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.storage.lost_data import LISTED_MAX, ByteRange, Loss, LostEntries
from mqstore.storage.recovery.loss import (
    Facts,
    describe_loss,
    find_missing,
    missing_ranges,
    queue_losses,
    subtract,
)
from mqstore.storage.recovery.view import QueueFiles, Segment, StoreView
from mqstore.storage.tables import java_json, offsets_file

_SEGMENTS_MAX: Final = 100_000
"""Segments behind the log's end in which a record is believed: a damaged entry names any place."""
_DELAY_OFFSETS: Final = "delayOffset.json"


class _Named(NamedTuple):
    """Physical offsets of the records that the queues name."""

    first: int
    end: int


class _Lack(NamedTuple):
    """Missing ranges, and the proof of them."""

    missing: Sequence[ByteRange]
    evidence: str


def find_lost_log(
    view: StoreView, known_missing: Sequence[ByteRange], *, judges_ends: bool
) -> tuple[Loss, Facts] | None:
    """Find what the log lacks, and the facts that show it; None where it lacks nothing.

    Without ``judges_ends``, neither begin nor end of a log that is there are judged.
    """
    segments = (*view.segments.usable, *view.segments.misfits)
    if not any(segment.length for segment in segments):
        named = _named_by_queues(view)
        return _before_the_log(view) if named is None else _without_log(view, named)
    size, begin = view.config.mapped_file_size_commit_log, min(each.base for each in segments)
    gaps = missing_ranges(view.segments, size, begin)
    lacks = [_gap(each) for each in subtract(gaps, known_missing)]
    stops = [each.stop for lack in lacks for each in lack.missing]
    end = log_end = max([_last_begun(view, begin), *stops])
    if judges_ends and not view.abort and (named := _named_by_queues(view)) is not None:
        if named.first < begin:
            lacks = [*_below_the_log(view, begin), *lacks]
        if (found := _beyond_the_log(view, known_missing, gaps, named)) is not None:
            lack, log_end = found
            lacks.append(lack)
            end = named.end
    if not lacks:
        return None
    missing = [each for lack in lacks for each in lack.missing]
    facts = Facts(durable_end=end, begin=begin, known_missing=tuple(known_missing))
    loss = describe_loss(view, facts, missing, log_end)
    evidence = ", and ".join(lack.evidence for lack in lacks)
    return loss.model_copy(update={"evidence": evidence}), facts


def _last_begun(view: StoreView, begin: int) -> int:
    """The base of the last segment with a record: a broker has written all before it."""
    begun = (each.base for each in reversed(view.segments.usable) if _is_begun(view, each))
    return next(begun, begin)


def _is_begun(view: StoreView, segment: Segment) -> bool:
    return view.first_store_timestamp(segment) is not None


def _gap(missing: ByteRange) -> _Lack:
    where = f"no segment has the offsets {missing.start} to {missing.stop} between others"
    return _Lack((missing,), where)


def _without_log(view: StoreView, named: _Named) -> tuple[Loss, Facts]:
    """The loss of a whole log. Its segments have no names: no file shows their size."""
    missing = ByteRange(start=named.first, stop=named.end)
    facts = Facts(durable_end=named.end, begin=named.first)
    loss = describe_loss(view, facts, (missing,), named.first)
    evidence = (
        f"queues name records up to offset {named.end}, and {view.paths.commit_log} has no messages"
    )
    update = {"evidence": evidence, "segments": (), "segment_count": 0}
    return loss.model_copy(update=update), facts


def _beyond_the_log(
    view: StoreView, known_missing: Sequence[ByteRange], gaps: Sequence[ByteRange], named: _Named
) -> tuple[_Lack, int] | None:
    """Find what is missing behind the end of the log, and that end, by what queues name."""
    size, segments = view.config.mapped_file_size_commit_log, view.segments
    cut = [ByteRange(start=each.end, stop=each.base + size) for each in segments.misfits]
    known = (*known_missing, *gaps, *(each for each in cut if each.start < each.stop))
    begin = min(each.base for each in (*segments.usable, *segments.misfits))
    missing, log_end = find_missing(view, Facts(named.end, begin, known))
    if not missing or (log_end > begin and not _goes_on(view, log_end)):
        return None
    where = f"{view.paths.commit_log} has no messages"
    if log_end > begin:
        where = f"the log in {view.paths.commit_log} ends at {log_end}"
    return _Lack(missing, f"queues name records up to offset {named.end}, and {where}"), log_end


def _below_the_log(view: StoreView, begin: int) -> Iterator[_Lack]:
    """Yield what is missing before the begin of the log, where whole queue files name it."""
    found: dict[tuple[str, int], ByteRange] = {}
    for topic, queue_id, queue in view.queues():
        if (named := _named_by_whole_files(queue, begin)) is not None:
            found[topic, queue_id] = named
    if not found:
        return
    first = min(each.start for each in found.values())
    topic, queue_id = min(found, key=lambda each: found[each].start)
    yield _Lack(
        (ByteRange(start=first, stop=begin),),
        f"the log begins at offset {begin}, and the first file of topic {topic}, queue {queue_id} "
        "names records below it only, which a broker deletes with their segments",
    )


def _named_by_whole_files(queue: QueueFiles, begin: int) -> ByteRange | None:
    """The records that a queue's first file names, where it is not the last one and all of them
    are below ``begin``."""
    behind = queue.first_of_second_file
    if behind is None or (last := queue.entry(behind - 1)) is None or last[0] >= begin:
        return None
    first = queue.first_beyond(-1)
    return None if first is None or first >= begin else ByteRange(start=first, stop=begin)


def _named_by_queues(view: StoreView) -> _Named | None:
    found: list[_Named] = []
    for _, _, queue in view.queues():
        last, lowest = queue.last_named, queue.first_beyond(-1)
        if last is not None and lowest is not None:
            found.append(_Named(lowest, last.offset + last.size))
    if not found:
        return None
    first = min(each.first for each in found)
    ends = [first, *(segment.end for segment in view.segments.usable)]
    reach = max(ends) + _SEGMENTS_MAX * view.config.mapped_file_size_commit_log
    return _Named(first, max((each.end for each in found if each.end <= reach), default=first))


def _goes_on(view: StoreView, log_end: int) -> bool:
    """Whether queues name a record right behind the log's end: a damaged entry names any place."""
    for _, _, queue in view.queues():
        found = queue.first_beyond(log_end - 1)
        if found is not None and found - log_end < view.config.mapped_file_size_commit_log:
            return True
    return False


def _before_the_log(view: StoreView) -> tuple[Loss, Facts] | None:
    """The loss where neither log nor queues are left, and other files show messages."""
    groups = offsets_file.find(view.files, view.paths)
    ends = dict(_group_offsets(view, groups))
    traces = []
    if ends:
        (topic, queue_id), end = max(ends.items(), key=lambda each: each[1])
        traces.append(f"{groups.name} has offset {end} of topic {topic}, queue {queue_id}")
    if delivered := max(_delay_offsets(view), default=0):
        traces.append(f"{_DELAY_OFFSETS} has offset {delivered}")
    times = view.checkpoint
    if last_ms := max(times.physic_ms, times.logics_ms, times.index_ms):
        traces.append(f"checkpoint has a message of {last_ms} ms")
    if not traces:
        return None
    facts = Facts(queue_ends=ends)
    lost = [
        LostEntries(topic=each.topic, queue_id=each.queue_id, first=first, end=end)
        for each in queue_losses(view, facts, ())
        for first, end in each.ranges
    ]
    loss = Loss(
        watermark=0,
        log_end=0,
        missing_bytes=0,
        missing=(),
        segments=(),
        segment_count=0,
        queues=tuple(lost[:LISTED_MAX]),
        queue_count=len(lost),
        messages=sum(each.end - each.first for each in lost),
        evidence=f"{', '.join(traces)}, and {view.paths.commit_log} has no messages",
    )
    return loss, facts


def _group_offsets(view: StoreView, path: Path) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield the greatest offset above 0 that a group has in each queue."""
    greatest: dict[tuple[str, int], int] = {}
    content = _content(view, path)
    tables = [(key, each) for key, each in _object(content.get("offsetTable")).items()]
    lmq = _object(content.get(offsets_file.LMQ_TABLE))
    tables += [(key, {0: each}) for key, each in lmq.items()]
    for key, offsets in tables:
        topic = str(key).partition("@")[0]
        for queue_id, offset in _object(offsets).items():
            number = _whole(queue_id)
            if number is None or not isinstance(offset, int) or offset <= 0:
                continue
            place = topic, number
            greatest[place] = max(greatest.get(place, 0), offset)
    yield from greatest.items()


def _delay_offsets(view: StoreView) -> Iterator[int]:
    table = _object(_content(view, view.paths.config / _DELAY_OFFSETS).get("offsetTable"))
    yield from (each for each in table.values() if isinstance(each, int))


def _content(view: StoreView, path: Path) -> dict[str | int, object]:
    """Return a table; empty where it cannot be read: the opening has errors of its own for it."""
    stat = view.files.stat(path)
    if stat is None or stat.is_directory:
        return {}
    try:
        return java_json.parse(view.files.read(path).decode())
    except ValueError:
        return {}


def _object(found: object) -> dict[str | int, object]:
    return found if isinstance(found, dict) else {}


def _whole(found: str | int) -> int | None:
    if isinstance(found, int):
        return found if found >= 0 else None
    return int(found) if found.isascii() and found.isdigit() else None
