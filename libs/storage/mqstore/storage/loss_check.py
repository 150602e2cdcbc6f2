"""Compares the data that the metadata directory records as durable with the files on disk.

A store that a broker left is compared with what its own files show (``recovery.traces``).

Called before an opening changes anything, by ``verify`` and by ``mqstore store accept-loss``.
Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mqstore.storage import sizes
from mqstore.storage.config import StoreConfig
from mqstore.storage.format_detection import find_format
from mqstore.storage.layout import StoreFormat
from mqstore.storage.lost_data import ByteRange, Loss
from mqstore.storage.metadata import manifest, store_lock
from mqstore.storage.metadata.deleted_topics import DeletedTopics
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.manifest import Manifests
from mqstore.storage.metadata.state_snapshot import StateSnapshot
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery import accepted_loss, last_run
from mqstore.storage.recovery.loss import Facts, find_loss
from mqstore.storage.recovery.traces import find_lost_log
from mqstore.storage.recovery.view import StoreView
from mqstore.storage.seams import FileSystem

_TOLERANCE_MS: Final = 1_000
"""Between the moments in which a starting broker writes ``lock`` and ``abort``."""


@dataclass(frozen=True, slots=True)
class LossCheck:
    """The result of one look at a store at rest."""

    view: StoreView
    facts: Facts
    loss: Loss | None
    by_broker: bool
    """Whether a RocketMQ broker opened the store since our last opening: it may have cut the
    missing data by its own rules."""
    given_out: int
    """The greatest physical offset that a message may have got."""
    manifests: Manifests
    in_traces: bool = False
    """Whether files of a broker show the loss."""

    @property
    def blocking(self) -> Loss | None:
        """The loss for which nothing may be written."""
        return None if self.by_broker and not self.in_traces else self.loss


def check_loss(
    files: FileSystem,
    paths: StorePaths,
    config: StoreConfig,
    found: FormatFile | None,
    left: StateSnapshot | None,
    lock_modified_ms: int | None,
    wanted_format: StoreFormat | None = None,
) -> LossCheck:
    """``lock_modified_ms``: of ``lock``, before it was taken.

    Raises StoreDamaged, StoreUnsupported, OSError.
    """
    if found is None:
        config = sizes.adopt(files, paths, config, None)
    else:
        config = config.model_copy(update=_sizes_of(found))
    store_format = StoreFormat.V4_9 if found is None else found.rocketmq_format
    view = StoreView.of(files, paths, config, store_format)
    manifests = manifest.load_both(files, paths)
    facts, given_out = _facts(view, found, left, manifests)
    is_broker = found is not None and left_by_broker(files, paths, found, lock_modified_ms)
    loss = find_loss(view, facts)
    if found is None or is_broker:
        lost = find_lost_log(view, facts.known_missing, judges_ends=not is_broker)
        if lost is not None and (loss is None or is_broker):
            wanted = view.store_format if found is not None else wanted_format
            store_format = find_format(files, paths, view.segments, wanted)
            loss, facts = lost
            return LossCheck(
                view=replace(view, store_format=store_format),
                facts=facts,
                loss=loss,
                by_broker=is_broker,
                given_out=max(given_out, facts.durable_end),
                manifests=manifests,
                in_traces=True,
            )
    return LossCheck(view, facts, loss, is_broker, given_out, manifests)


def left_by_broker(
    files: FileSystem, paths: StorePaths, found: FormatFile, lock_modified_ms: int | None
) -> bool:
    """Whether the directory shows that a real broker has opened it since our last opening.

    A broker writes over the sign in ``lock``. Where there is no sign, as an earlier release opened
    the store last: it writes ``lock`` after format.json was written, and then ``abort``, which
    stays until it closes and writes the checkpoint. A copy or a missing file is no such sign.
    """
    if store_lock.broker_wrote(files, paths):
        return True
    if store_lock.has_sign(files, paths):
        return False
    ours = files.stat(paths.format)
    if lock_modified_ms is None or lock_modified_ms == found.lock_modified_ms or ours is None:
        return False
    if lock_modified_ms <= ours.modified_ms:
        return False
    traces = [files.stat(path) for path in (paths.abort, paths.checkpoint)]
    return any(
        trace is not None and trace.modified_ms >= lock_modified_ms - _TOLERANCE_MS
        for trace in traces
    )


def _sizes_of(found: FormatFile) -> dict[str, int]:
    return {
        "mapped_file_size_commit_log": found.sizes.mapped_file_size_commit_log,
        "mapped_file_size_consume_queue": found.sizes.mapped_file_size_consume_queue,
    }


def _facts(
    view: StoreView, found: FormatFile | None, left: StateSnapshot | None, manifests: Manifests
) -> tuple[Facts, int]:
    """The facts, and the greatest physical offset that a message may have got."""
    if left is not None and found is not None and left.store_id != found.store_id:
        left = None
    clean, running = _of_last_opening(manifests, found)
    deleted = DeletedTopics.load(view.files, view.paths.deleted_topics)
    durable, begin = 0, None
    if left is not None:
        durable, begin = left.flushed_offset, left.expired_below
    accepted = accepted_loss.load(view.files, view.paths)
    if accepted is not None:  # a power cut may have taken the state page back
        durable = max(durable, accepted.loss.watermark)
    if found is None or found.facts_epoch != found.epoch:
        begin = None  # a release that notes no expiry has had the store
    elif begin is not None:
        begin = max(begin, found.log_begin)
    known = () if running is None else last_run.known_queues(running, deleted)
    ends = {(queue.topic, queue.queue_id): queue.end for queue in known}
    if running is not None and not view.segments.usable and not view.segments.misfits:
        durable = max(durable, running.derived_offset)  # no queue has entries before a segment is
    if clean is not None and clean.log is not None:
        durable = max(durable, clean.log.max_offset)
        begin = clean.log.min_offset
        ends |= clean.entries
    facts = Facts(durable, begin, _known_missing(view, found), ends)
    return facts, durable if left is None else max(durable, left.max_offset)


def _of_last_opening(manifests: Manifests, found: FormatFile | None) -> Manifests:
    """The manifests that the last opening left."""
    return Manifests(*(last_run.left_behind(each, found) for each in manifests))


def _known_missing(view: StoreView, found: FormatFile | None) -> tuple[ByteRange, ...]:
    """The ranges that format.json records; where it is lost, those of the accepted losses."""
    if found is not None:
        return found.missing
    accepted = accepted_loss.load_history(view.files, view.paths)
    return tuple(each for one in accepted for each in one.ranges)
