"""Accepts the loss of durable data: plans the writes of the next opening, and saves the note that
lets the store open for writing.

Called from ``mqstore store accept-loss`` and from tests. ``accept`` holds the store's lock while it
looks and notes; the next opening for writing acts.
"""

from __future__ import annotations

from pathlib import Path

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import LossNotAccepted
from mqstore.storage.loss_check import LossCheck, check_loss
from mqstore.storage.metadata import format_file, log_owner, store_lock
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.state_page import read_state
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery import accepted_loss
from mqstore.storage.recovery.accepted_loss import AcceptedLoss, plan_acceptance
from mqstore.storage.recovery.loss import queue_losses
from mqstore.storage.seams import Clock, FileSystem


def plan(root: Path, config: StoreConfig, files: FileSystem, clock: Clock) -> AcceptedLoss:
    """Plan the acceptance of a loss. Writes nothing and takes no lock; ``accept`` plans anew.

    Raises LossNotAccepted where nothing is missing, StoreLocked, DirectoryNotUsable, StoreDamaged,
    StoreUnsupported, OSError.
    """
    paths = StorePaths(root)
    if files.is_locked(paths.lock):
        raise store_lock.in_use(files, paths)
    return _planned(*_look(root, config, files), clock)


def accept(
    root: Path, config: StoreConfig, files: FileSystem, clock: Clock, confirmation: str
) -> AcceptedLoss:
    """Record durably that the loss with this ``Loss.confirmation`` is accepted.

    Raises LossNotAccepted where another one, or none, is found; and as ``plan``.
    """
    _require_format(files, StorePaths(root))
    lock = store_lock.take(files, StorePaths(root), create=False)
    try:
        found, look = _look(root, config, files, lock.modified_before_ms)
        planned = _planned(found, look, clock)
        if confirmation != planned.loss.confirmation:
            raise LossNotAccepted(
                f"the loss to accept was {confirmation}, and what is lost is "
                f"{planned.loss.confirmation}: {planned.loss.text}; look at it again with --dry-run"
            )
        _sync_what_remains(files, look)
        accepted_loss.save(files, look.view.paths, planned)
        return planned
    finally:
        lock.release()


def _sync_what_remains(files: FileSystem, look: LossCheck) -> None:
    """Make durable what the plan goes by: entries of queues that lack records, and the log's end.

    A power cut would otherwise take them, and with them which queue offsets were given out.
    """
    assert look.loss is not None
    lacking = queue_losses(look.view, look.facts, look.loss.missing)
    queues = look.view.paths.consume_queue
    directories = [queues / each.topic / str(each.queue_id) for each in lacking]
    queue_files = [path / name for path in directories for name in files.list(path)]
    log_end = [each.path for each in look.view.segments.usable if each.end > look.loss.watermark]
    for path in (*queue_files, *log_end):
        stat = files.stat(path)
        if stat is None or stat.is_directory or not stat.size:
            continue
        mapped = files.map(path, writable=True)
        try:
            mapped.sync()
        finally:
            mapped.unmap()


def _look(
    root: Path, config: StoreConfig, files: FileSystem, lock_modified_ms: int | None = None
) -> tuple[FormatFile, LossCheck]:
    """``lock_modified_ms``: mtime of the lock file before the lock was taken; by default, now."""
    paths = StorePaths(root)
    found = _require_format(files, paths)
    if lock_modified_ms is None and (lock := files.stat(paths.lock)) is not None:
        lock_modified_ms = lock.modified_ms
    if found.store_path_commit_log is not None:
        paths = log_owner.locate(files, root, found.store_path_commit_log)
    left = read_state(files, paths.state)
    return found, check_loss(files, paths, config, found, left, lock_modified_ms)


def _require_format(files: FileSystem, paths: StorePaths) -> FormatFile:
    if (found := format_file.load(files, paths)) is None:
        raise LossNotAccepted(
            f"{paths.root} was never opened for writing by mqstore: nothing is known"
        )
    return found


def _planned(found: FormatFile, look: LossCheck, clock: Clock) -> AcceptedLoss:
    if look.loss is None:
        raise LossNotAccepted(f"nothing is missing in {look.view.paths.root}")
    if look.by_broker:
        raise LossNotAccepted(
            f"a broker has had the store since, so it opens for writing as found: {look.loss.text}"
        )
    if misfits := look.view.segments.misfits:
        raise LossNotAccepted(
            f"segment {misfits[0].path.name} has {misfits[0].length} bytes and is not the last; "
            f"restore it from a copy, or let `mqstore store repair {look.view.paths.root}` mend it"
        )
    return plan_acceptance(
        look.view,
        look.facts,
        look.loss,
        store_id=found.store_id,
        given_out=look.given_out,
        now_ms=clock.now_ms(),
    )
