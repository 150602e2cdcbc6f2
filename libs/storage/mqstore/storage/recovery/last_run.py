"""Notes of the last process that had the store open about its files, and whether they are valid.

Called from ``opening``, ``loss_check`` and ``verify``. Reads only.
"""

from __future__ import annotations

from dataclasses import replace

from crc32c import crc32c

from mqstore.storage.layout import QUEUE_ENTRY_SIZE
from mqstore.storage.metadata import manifest
from mqstore.storage.metadata.deleted_topics import DeletedTopics
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.manifest import LogState, LogTail, Manifest, QueueState
from mqstore.storage.metadata.state_snapshot import StateSnapshot
from mqstore.storage.paths import segment_name, segment_offset
from mqstore.storage.recovery.view import Segment, StoreView
from mqstore.storage.system.sparse import last_nonzero


def is_left_by(left: Manifest, found: FormatFile) -> bool:
    """Whether the last process that opened the store left it: an older one's may say more than the
    log held when that process had recovered it."""
    same = left.store_id == found.store_id and left.epoch == found.epoch
    return same and left.lock_modified_ms == found.lock_modified_ms


def is_still_true(running: Manifest, found: FormatFile) -> bool:
    """Whether a running manifest holds: the last process left it, or those that opened the store
    since kept what it says, as openings do that end before they note anything."""
    if found.running_from is None or found.facts_epoch != found.epoch:
        return is_left_by(running, found)
    same = running.store_id == found.store_id and running.lock_modified_ms == found.lock_modified_ms
    return same and found.running_from <= running.epoch <= found.epoch


def known_queues(running: Manifest, deleted: DeletedTopics) -> tuple[QueueState, ...]:
    """The queues of a running manifest, without those of topics deleted since; none where queues
    lack entries."""
    if deleted.queues_incomplete:
        return ()
    return tuple(
        queue for queue in running.queues if deleted.below(queue.topic) < running.derived_offset
    )


def add_last_run(
    view: StoreView,
    found: FormatFile,
    left: StateSnapshot,
    deleted: DeletedTopics,
    running: Manifest | None,
) -> StoreView:
    """Return the view with the durable watermark and the queue entries that our last run noted.

    Only for a store that no other program has opened since.
    """
    if left.store_id != found.store_id:
        return view
    view = replace(view, watermark=left.flushed_offset)
    if running is None or not is_still_true(running, found) or deleted.queues_incomplete:
        return view
    known = known_queues(running, deleted)
    return replace(view, known_queues=known, derived_offset=running.derived_offset)


def index_synced(running: Manifest | None, found: FormatFile | None) -> int:
    """The physical offset below which the last process noted its index files to be on disk."""
    is_ours = running is not None and found is not None and is_left_by(running, found)
    return running.index_offset if is_ours and running is not None else 0


def clean_close(
    view: StoreView, found: FormatFile | None, deleted: DeletedTopics, noted: Manifest | None
) -> Manifest | None:
    """The clean-close manifest of the last writer, if the files still match it, and no queue lacks
    entries; else None."""
    clean = None if deleted.queues_incomplete else left_behind(noted, found)
    return clean if clean is not None and still_matches(clean, view) else None


def left_behind(left: Manifest | None, found: FormatFile | None) -> Manifest | None:
    """The manifest of the last clean close; the files may have changed since. None without one."""
    return left if left is not None and found is not None and is_left_by(left, found) else None


def still_matches(clean: Manifest, view: StoreView) -> bool:
    """Whether the files are as the clean close left them."""
    log = clean.log
    segments = view.segments
    if log is None or view.abort or segments.misfits or segments.empty:
        return False
    names = tuple(segment.path.name for segment in segments.usable)
    index_files = tuple(name for name in view.files.list(view.paths.index) if name.isdigit())
    return (
        names == log.segments
        and index_files == log.index_files
        and manifest.checkpoint_checksum(view.files, view.paths.checkpoint) == log.checkpoint_crc32c
        and _log_matches(view, log)
        and all(_queue_matches(view, queue) for queue in clean.queues)
    )


def _log_matches(view: StoreView, log: LogState) -> bool:
    """Whether the log has the end and the last bytes with which it was closed."""
    size, segments = view.config.mapped_file_size_commit_log, view.segments.usable
    if any(segment.length != size for segment in segments):
        return False
    if log.tail is None:
        return not segments
    return all(_is_as_closed(view, segment, log.tail) for segment in segments)


def _is_as_closed(view: StoreView, segment: Segment, tail: LogTail) -> bool:
    """Whether a segment has its part of the tail, and zeros after the log's end."""
    if segment.end < tail.end:
        return True
    with view.map_segment(segment) as data:
        if segment.base < tail.end:
            stop = tail.end - segment.base
            if crc32c(data[stop - tail.length : stop]) != tail.crc32c:
                return False
        start = max(0, tail.end - segment.base)
        return last_nonzero(data, start, view.next_data(segment)) == start


def _queue_matches(view: StoreView, queue: QueueState) -> bool:
    """Whether a queue has the files that it was closed with; the entries are compared when it is
    first used."""
    size = view.config.queue_file_size
    directory = view.paths.consume_queue / queue.topic / str(queue.queue_id)
    begin, end = queue.first * QUEUE_ENTRY_SIZE, queue.end * QUEUE_ENTRY_SIZE
    # The name of a first file may alone show where the queue begins.
    due = [segment_name(base) for base in range(begin, max(end, begin + bool(begin)), size)]
    names = [name for name in view.files.list(directory) if segment_offset(name) is not None]
    found = (view.files.stat(directory / name) for name in names)
    return names == due and all(stat is not None and stat.size == size for stat in found)
