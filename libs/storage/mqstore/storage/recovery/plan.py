"""Plans the recovery of a store: reads everything, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Literal

from mqstore.storage.lost_data import Loss
from mqstore.storage.metadata.manifest import Manifest
from mqstore.storage.paths import how_to_repair
from mqstore.storage.recovery.log_scan import LogScan, ScanResult
from mqstore.storage.recovery.report import (
    LISTED_MAX,
    Action,
    CutTail,
    ExtendSegment,
    RecoveryPlan,
    RefitQueueFile,
    RemoveSegment,
    RewriteRange,
    SetQueuesAside,
    StartReason,
    TruncateQueues,
)
from mqstore.storage.recovery.view import QuietQueue, Segment, StoreView
from mqstore.storage.system.sparse import last_nonzero
from mqstore.storage.tables.checkpoint import CLOCK_TOLERANCE_MS

_CLEAN_SEGMENTS = 3
"""Number of segments that a broker checks at a clean start, at most (4.9; 5.x usually one)."""


def plan(
    view: StoreView,
    progress: Callable[[int, int], None] | None = None,
    *,
    to_append: bool = True,
    follows: bool = False,
    quiet: list[QuietQueue] | None = None,
) -> RecoveryPlan:
    """Find the log's end and the needed actions. ``progress`` is called with (bytes done, of
    total). ``quiet`` gets the queues that no action of the plan concerns.

    Only a store that is opened ``to_append`` gets tombstones for unreadable records. One that
    ``follows`` a leader is cut at the first damage: it gets the leader's bytes again.
    """
    start, reason = _start(view)
    scan = LogScan(view, progress, ends_at_damage=follows).run(start)
    _note_truncation(view, scan)
    read_only = _read_only(view)
    unchanged: list[QuietQueue] = []
    dispatch_from, dispatch_reason = _dispatch_from(view, scan.end, unchanged)
    if quiet is not None and read_only is None and dispatch_from == view.derived_offset:
        quiet += unchanged
    if not to_append:
        scan.repairs.clear()
    whole = {each.state.place for each in unchanged}
    actions = () if read_only else tuple(_actions(view, start, scan, dispatch_from, whole))
    return RecoveryPlan(
        path=_path(view),
        start=start,
        start_reason=reason,
        watermark=start,
        min_offset=view.min_offset,
        max_offset=scan.end,
        records=scan.records,
        scanned_bytes=scan.scanned_bytes,
        last_store_timestamp_ms=scan.last_store_timestamp_ms,
        repeated_queue_offsets=scan.repeated,
        damaged=tuple(scan.damaged),
        damaged_count=scan.damaged_count,
        damaged_blocks=tuple(scan.damaged_blocks),
        damaged_block_count=scan.damaged_block_count,
        strays=view.segments.strays[:LISTED_MAX],
        dispatch_from=dispatch_from,
        dispatch_reason=dispatch_reason,
        actions=actions,
        read_only=read_only,
        loss=view.loss,
    )


def clean_plan(view: StoreView, manifest: Manifest) -> RecoveryPlan:
    """The plan of a store whose clean close still holds: no action is needed."""
    assert manifest.log is not None
    end = manifest.log.max_offset
    return RecoveryPlan(
        path="normal",
        start=end,
        start_reason=StartReason.CLEAN_CLOSE,
        watermark=end,
        min_offset=view.min_offset,
        max_offset=end,
        records=0,
        scanned_bytes=0,
        last_store_timestamp_ms=manifest.log.last_store_timestamp_ms,
        repeated_queue_offsets=0,
        strays=view.segments.strays[:LISTED_MAX],
        dispatch_from=end,
        dispatch_reason=StartReason.CLEAN_CLOSE.value,
    )


def _path(view: StoreView) -> Literal["normal", "abnormal"]:
    return "abnormal" if view.abort else "normal"


def _note_truncation(view: StoreView, scan: ScanResult) -> None:
    if view.truncation is not None and scan.end == view.truncation.offset:
        scan.end_reason = view.truncation.reason


def _start(view: StoreView) -> tuple[int, StartReason]:
    start, reason = _known_start(view)
    cut = view.truncation
    if cut is None or start <= cut.offset:
        return start, reason
    return max(
        view.min_offset, cut.offset - cut.offset % view.config.mapped_file_size_commit_log
    ), reason


def _known_start(view: StoreView) -> tuple[int, StartReason]:
    segments = view.segments.usable
    if not segments:
        return 0, StartReason.NEW_STORE
    if view.recover_from is not None:
        start = view.recover_from
        before = [each for each in segments if each.base <= start]
        if view.watermark is None and before:  # a broker's: what it may have left in them counts
            start = min(start, _start_after_broker(view, before)[0])
        return start, StartReason.ACCEPTED_LOSS
    if (
        view.watermark is not None
        and view.watermark > view.min_offset
        and _is_plausible(view, view.watermark)
    ):
        return view.watermark, StartReason.WATERMARK
    return _start_after_broker(view, segments)


def _start_after_broker(view: StoreView, segments: Sequence[Segment]) -> tuple[int, StartReason]:
    """The start as RocketMQ's, where no watermark is known."""
    if not view.abort:
        return segments[-_CLEAN_SEGMENTS:][0].base, StartReason.LAST_THREE
    covered = min(view.checkpoint.physic_ms, view.checkpoint.logics_ms) - CLOCK_TOLERANCE_MS
    for segment in reversed(segments):
        first = view.first_store_timestamp(segment)
        if first is not None and first <= covered:
            return segment.base, StartReason.CHECKPOINT
    return segments[0].base, StartReason.FIRST_SEGMENT


def _is_plausible(view: StoreView, watermark: int) -> bool:
    """Whether the log reaches a watermark: a copied store may lack bytes below it."""
    for segment in view.segments.usable:
        if segment.base < watermark <= segment.end:
            with view.map_segment(segment) as data:
                end = watermark - segment.base
                return any(data[max(0, end - 8) : end])
    return False


def _read_only(view: StoreView) -> str | None:
    if view.loss is not None:
        return why_read_only(view, view.loss)
    if not view.segments.misfits:
        return None
    worst = view.segments.misfits[0]
    size = view.config.mapped_file_size_commit_log
    return (
        f"segment {worst.path.name} has {worst.length} bytes where {size} are due, and it is not "
        f"the last: restore it from a copy, or: {how_to_repair(view.paths.root)}"
    )


def why_read_only(view: StoreView, loss: Loss) -> str:
    """A text that names the missing data and the commands for it."""
    first = "set storePathCommitLog to the directory of the log, or " if loss.evidence else ""
    command = f"mqstore store accept-loss {view.paths.root}"
    if loss.evidence and view.paths.commit_log_dir is not None:
        command += f" --commit-log {view.paths.commit_log_dir}"
    return (
        f"{loss.text}; {first}put the missing files back (is the volume of "
        f"{view.paths.commit_log} mounted, and is it the right one?), or see what would be given "
        f"up with `{command} --dry-run`"
    )


def _dispatch_from(view: StoreView, end: int, quiet: list[QuietQueue]) -> tuple[int, str]:
    """The offset up to which the queues are known to be complete, and why."""
    if view.recover_from is not None and view.min_offset < view.recover_from:
        reached, why = _known_dispatch(view, end)
        return min(reached, view.recover_from), why
    if view.truncation is not None:  # the queues were complete beyond the end, if it was known
        reached, why = _known_dispatch(view, max(end, view.derived_offset))
        return min(reached, end), why
    return _known_dispatch(view, end, quiet)


def _known_dispatch(
    view: StoreView, end: int, quiet: list[QuietQueue] | None = None
) -> tuple[int, str]:
    known = view.known_queues
    if known is None:
        return view.min_offset, "nothing trustworthy says what the queues hold"
    if not view.min_offset <= view.derived_offset <= end:
        return view.min_offset, "the log does not reach what the queues are said to hold"
    for noted in known:
        queue = view.queue(noted.topic, noted.queue_id)
        complete = queue.holds(noted.first, noted.end, view.min_offset)
        found = queue.quiet(noted, view.derived_offset) if complete else None
        queue.close()
        if quiet is not None and found is not None:
            quiet.append(found)
        if not complete:
            return view.min_offset, f"queue {noted.queue_id} of {noted.topic} lacks entries"
    return view.derived_offset, "the queues were durable up to here"


def _actions(
    view: StoreView, start: int, scan: ScanResult, dispatch_from: int, whole: Set[tuple[str, int]]
) -> Iterator[Action]:
    """``whole`` queues are known to have files of the due length only."""
    size = view.config.mapped_file_size_commit_log
    segments = view.segments.usable
    if not segments:
        yield from _without_log(view)
        return
    yield from _empty_segments(view)
    if segments[-1].length < size:
        last = segments[-1]
        yield ExtendSegment(name=last.path.name, length=last.length, size=size)
    yield from _cuts(view, scan)
    yield from scan.repairs
    if scan.end > start:
        yield RewriteRange(offset=start, length=scan.end - start)
    yield from _refits(view, whole)
    # Entries of missing records stay: they could not be made again.
    if dispatch_from > view.min_offset and view.recover_from is None:
        yield TruncateQueues(offset=min(dispatch_from, scan.end))
    else:
        yield TruncateQueues(offset=scan.end)


def _without_log(view: StoreView) -> Iterator[Action]:
    yield from _empty_segments(view)
    yield from _refits(view)
    if any(True for _ in view.queue_names()):
        yield SetQueuesAside(reason="the log is empty; the queues name records that are gone")


def _empty_segments(view: StoreView) -> Iterator[Action]:
    for segment in reversed(view.segments.empty):
        reason = "of no bytes: a halt came while it was made"
        yield RemoveSegment(name=segment.path.name, offset=segment.base, length=0, reason=reason)


def _refits(view: StoreView, whole: Set[tuple[str, int]] = frozenset()) -> Iterator[Action]:
    size = view.config.queue_file_size
    for topic, queue_id, name, length in view.queue_misfits(whole):
        yield RefitQueueFile(topic=topic, queue_id=queue_id, name=name, length=length, size=size)


def _cuts(view: StoreView, scan: ScanResult) -> Iterator[Action]:
    """Cuts, last segment first: a crash in between leaves no hole."""
    for segment in reversed(view.segments.usable):
        if segment.base > scan.end:
            length = _used(view, segment, 0)
            reason = scan.end_reason if length else "made ahead of need"
            yield RemoveSegment(
                name=segment.path.name, offset=segment.base, length=length, reason=reason
            )
        elif scan.end <= segment.end:
            position = scan.end - segment.base
            used = _used(view, segment, position)
            if used > position:
                yield CutTail(
                    segment=segment.path.name,
                    position=position,
                    offset=scan.end,
                    length=used - position,
                    reason=scan.end_reason,
                )


def _used(view: StoreView, segment: Segment, start: int) -> int:
    with view.map_segment(segment) as data:
        return last_nonzero(data, start, view.next_data(segment))
