"""Continues a store after an operator has accepted a loss of durable data.

``plan_acceptance`` decides, ``begin_segments`` acts. The log continues in a new segment above every
assigned offset, so that no message id names another message. The missing segments stay absent and
the queue entries of their records stay as found: a broker skips such entries. A queue that has lost
its last message gets one tombstone in the new segment, at its next queue offset: so the log itself
shows which offsets were assigned, and a broker's dispatch starts after the gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal

from mqstore.storage._kernel import is_zero
from mqstore.storage.codec.record import encode_into
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import BLANK_RECORD_SIZE, StoreFormat
from mqstore.storage.lost_data import ByteRange, Loss
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.recovery.loss import Facts, join, queue_losses
from mqstore.storage.recovery.report import PlaceTombstone
from mqstore.storage.recovery.tombstones import closing_tombstone_size, compose, version_of
from mqstore.storage.recovery.view import Segments, StoreView, find_segments
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import remove_file
from mqstore.storage.system.open_map import open_map
from mqstore.storage.topic_names import is_safe_path

MAGIC: Final = "mqstore-accepted-loss"
_NOTHING: Final = memoryview(b"")


class QueueMark(Value):
    """A queue's next queue offset, which a tombstone takes."""

    topic: str
    queue_id: int
    queue_offset: int


class AcceptedLoss(Value):
    """An accepted loss, and the segments that the next opening writes because of it."""

    magic: Literal["mqstore-accepted-loss"] = MAGIC
    store_id: str
    accepted_ms: int
    loss: Loss
    resume_at: int | None
    """Physical offset of the segment in which the log continues; None when it continues at its
    end."""
    marks: tuple[QueueMark, ...]
    segment_size: int | None = None
    """Bytes of a segment; None where nothing shows it."""

    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        """Physical offsets of the log that are accepted to be absent."""
        if self.resume_at is None or self.loss.log_end >= self.loss.watermark:
            return self.loss.missing
        return (*self.loss.missing, ByteRange(start=self.loss.log_end, stop=self.resume_at))

    def covers(self, loss: Loss) -> bool:
        """Whether no more is missing than was accepted."""
        joined = join(sorted((each.start, each.stop) for each in self.ranges))
        places = [bisect_right(joined, each.start, key=itemgetter(0)) - 1 for each in loss.missing]
        return all(
            place >= 0 and each.stop <= joined[place][1]
            for place, each in zip(places, loss.missing, strict=True)
        )


class _Losses(Value):
    losses: tuple[AcceptedLoss, ...] = ()


def plan_acceptance(
    view: StoreView, facts: Facts, loss: Loss, *, store_id: str, given_out: int, now_ms: int
) -> AcceptedLoss:
    """Plan how the store continues; ``given_out`` is the greatest physical offset of any
    message."""
    marks = _marks(view, facts, loss)
    is_tail = loss.log_end < loss.watermark
    resume_at = None
    if marks or (is_tail and not view.segments.usable):
        size = view.config.mapped_file_size_commit_log
        resume_at = -(-max(loss.watermark, given_out, _log_end(view)) // size) * size
    return AcceptedLoss(
        store_id=store_id,
        accepted_ms=now_ms,
        loss=loss,
        resume_at=resume_at,
        marks=tuple(marks),
    )


def _marks(view: StoreView, facts: Facts, loss: Loss) -> list[QueueMark]:
    """Marks for the queues whose end is lost, or for any one queue when only the log's end is."""
    marks = [
        QueueMark(topic=lost.topic, queue_id=lost.queue_id, queue_offset=lost.end)
        for lost in queue_losses(view, facts, loss.missing)
        if lost.is_open and is_safe_path(lost.topic)
    ]
    if marks or loss.log_end >= loss.watermark:
        return marks
    for topic, queue_id, queue in view.queues():
        if is_safe_path(topic):
            return [QueueMark(topic=topic, queue_id=queue_id, queue_offset=queue.end)]
    return []


def _log_end(view: StoreView) -> int:
    """The end of the last segment with content."""
    for segment in reversed(view.segments.usable):
        if _is_begun(view.files, segment.path):
            return segment.end
    return 0


def begin_segments(
    files: FileSystem,
    paths: StorePaths,
    config: StoreConfig,
    store_format: StoreFormat,
    accepted: AcceptedLoss,
) -> None:
    """Make the new segments with their tombstones, durable at return. Raises OSError.

    The last one is made first, so that a crash leaves a state from which the next opening can
    continue.
    """
    if accepted.resume_at is None:
        return
    for directory in (paths.commit_log, paths.staging):
        files.make_directories(directory)
    size = config.mapped_file_size_commit_log
    _end_log_with_whole_segments(files, paths, size)
    for base, marks in reversed(list(_pack(accepted, size))):
        path = paths.commit_log / segment_name(base)
        if not _is_begun(files, path):
            staged = paths.staging / f"after-loss-{path.name}"
            _write_staged(files, staged, base, marks, size, store_format, accepted.accepted_ms)
            files.rename(staged, path)
            files.sync_directory(path.parent)


def _end_log_with_whole_segments(files: FileSystem, paths: StorePaths, size: int) -> None:
    """Lengthen the last segment and remove those of no bytes: once another segment follows, the log
    is refused for them."""
    found = find_segments(files, paths, size)
    for empty in found.empty:
        files.unlink(empty.path)
    for last in found.usable[-1:]:
        if last.length < size:
            files.extend(last.path, size)


def last_durable(files: FileSystem, segments: Segments, accepted: AcceptedLoss) -> int:
    """The segment from which the log is read again: the last one with bytes that were durable, as a
    power cut may have left holes above them; the new one when no other is left."""
    bases = [each.base for each in segments.usable if _is_begun(files, each.path)]
    durable = [base for base in bases if base < max(accepted.loss.watermark, 1)]
    return durable[-1] if durable else min(bases, default=0)


def is_begun(files: FileSystem, paths: StorePaths, accepted: AcceptedLoss) -> bool:
    """Whether an opening has made the new segment already."""
    at = accepted.resume_at
    return at is not None and _is_begun(files, paths.commit_log / segment_name(at))


def _is_begun(files: FileSystem, path: Path) -> bool:
    """Whether a segment exists and holds a record or a blank one."""
    stat = files.stat(path)
    if stat is None or not stat.size:
        return False
    with open_map(files, path) as mapped:
        return not is_zero(mapped.view[:BLANK_RECORD_SIZE])


def _pack(accepted: AcceptedLoss, size: int) -> Iterator[tuple[int, list[QueueMark]]]:
    """Each new segment's offset and its marks, in the order of the log."""
    assert accepted.resume_at is not None
    base, left, marks = accepted.resume_at, size, list[QueueMark]()
    for mark in accepted.marks:
        needs = closing_tombstone_size(mark.topic)
        if needs + BLANK_RECORD_SIZE > left:
            yield base, marks
            base, left, marks = base + size, size, []
        marks.append(mark)
        left -= needs
    yield base, marks


def _write_staged(
    files: FileSystem,
    staged: Path,
    base: int,
    marks: Sequence[QueueMark],
    size: int,
    store_format: StoreFormat,
    now_ms: int,
) -> None:
    if files.stat(staged) is not None:
        files.unlink(staged)
    files.create(staged, size)
    position = 0
    with open_map(files, staged, writable=True) as mapped:
        for mark in marks:
            length = closing_tombstone_size(mark.topic)
            encode_into(
                mapped.view,
                position,
                compose(_tombstone(mark, base + position, length, now_ms), _NOTHING, store_format),
                version=version_of(mark.topic),
                queue_offset=mark.queue_offset,
                physical_offset=base + position,
                store_timestamp_ms=now_ms,
            )
            position += length
        mapped.sync()


def _tombstone(mark: QueueMark, offset: int, length: int, now_ms: int) -> PlaceTombstone:
    return PlaceTombstone(
        offset=offset,
        length=length,
        defect="messages before it are lost, and their loss was accepted",
        topic=mark.topic,
        queue_id=mark.queue_id,
        queue_offset=mark.queue_offset,
        store_timestamp_ms=now_ms,
    )


# the files


def load(files: FileSystem, paths: StorePaths) -> AcceptedLoss | None:
    """Load the loss for the next opening; None without one, or where it cannot be read."""
    try:
        return sealed_json.read(files, paths.accepted_loss, AcceptedLoss)
    except ValueError:
        return None


def save(files: FileSystem, paths: StorePaths, accepted: AcceptedLoss) -> None:
    """Save the loss for the next opening; durable at return. Raises OSError."""
    sealed_json.write(files, paths.accepted_loss, accepted, in_lines=True)


def load_history(files: FileSystem, paths: StorePaths) -> tuple[AcceptedLoss, ...]:
    """Load every accepted loss that was recovered from, the oldest first."""
    try:
        return (sealed_json.read(files, paths.losses, _Losses) or _Losses()).losses
    except ValueError:
        return ()


def finish(files: FileSystem, paths: StorePaths, accepted: AcceptedLoss) -> None:
    """Record that the log has been recovered from an acceptance. Raises OSError."""
    known = load_history(files, paths)
    if accepted not in known:
        known = (*known, accepted)
    sealed_json.write(files, paths.losses, _Losses(losses=known), in_lines=True)
    remove_file(files, paths.accepted_loss)
