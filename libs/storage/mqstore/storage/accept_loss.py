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
from mqstore.storage.system.open_map import open_map


def plan(
    root: Path,
    config: StoreConfig,
    files: FileSystem,
    clock: Clock,
    *,
    commit_log: Path | None = None,
) -> AcceptedLoss:
    """Plan the acceptance of a loss. Writes nothing and takes no lock; ``accept`` plans anew.

    ``commit_log`` is the log's directory where format.json does not say it. The segment size that
    ``config`` sets counts where neither format.json nor a segment shows it.

    Raises LossNotAccepted where nothing is missing or that size is not known, StoreLocked,
    DirectoryNotUsable, StoreDamaged, StoreUnsupported, OSError.
    """
    paths = StorePaths(root)
    if files.is_locked(paths.lock):
        raise store_lock.in_use(files, paths)
    return _planned(*_look(root, config, files, commit_log), config, clock)


def accept(
    root: Path,
    config: StoreConfig,
    files: FileSystem,
    clock: Clock,
    confirmation: str,
    *,
    commit_log: Path | None = None,
) -> AcceptedLoss:
    """Record durably that the loss with this ``Loss.confirmation`` is accepted.

    Raises LossNotAccepted where another one, or none, is found; and as ``plan``.
    """
    lock = store_lock.take(files, StorePaths(root), create=False)
    try:
        found, look = _look(root, config, files, commit_log, lock.modified_before_ms)
        planned = _planned(found, look, config, clock)
        if confirmation != planned.loss.confirmation:
            raise LossNotAccepted(
                f"the loss to accept was {confirmation}, and what is lost is "
                f"{planned.loss.confirmation}: {planned.loss.text}; look at it again with --dry-run"
            )
        _sync_what_remains(files, look)
        files.make_directories(look.view.paths.ours)
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
        with open_map(files, path, writable=True) as mapped:
            mapped.sync()


def _look(
    root: Path,
    config: StoreConfig,
    files: FileSystem,
    commit_log: Path | None,
    lock_modified_ms: int | None = None,
) -> tuple[FormatFile | None, LossCheck]:
    """``lock_modified_ms``: mtime of the lock file before the lock was taken; by default, now."""
    paths = StorePaths(root)
    found = format_file.load(files, paths)
    if lock_modified_ms is None and (lock := files.stat(paths.lock)) is not None:
        lock_modified_ms = lock.modified_ms
    noted = None if found is None else found.store_path_commit_log
    if setting := noted or commit_log:
        paths = log_owner.locate(files, root, str(setting))
    left = read_state(files, paths.state)
    return found, check_loss(files, paths, config, found, left, lock_modified_ms)


def _planned(
    found: FormatFile | None, look: LossCheck, config: StoreConfig, clock: Clock
) -> AcceptedLoss:
    if look.loss is None:
        if found is None:
            raise LossNotAccepted(
                f"{look.view.paths.root} was never opened for writing by mqstore, and its queues "
                "and offsets show no message that the log lacks"
            )
        raise LossNotAccepted(f"nothing is missing in {look.view.paths.root}")
    if look.blocking is None:
        raise LossNotAccepted(
            f"a broker has had the store since, so it opens for writing as found: {look.loss.text}"
        )
    if misfits := look.view.segments.misfits:
        raise LossNotAccepted(
            f"segment {misfits[0].path.name} has {misfits[0].length} bytes and is not the last; "
            f"restore it from a copy, or let `mqstore store repair {look.view.paths.root}` mend it"
        )
    planned = plan_acceptance(
        look.view,
        look.facts,
        look.loss,
        store_id="" if found is None else found.store_id,
        given_out=look.given_out,
        now_ms=clock.now_ms(),
    )
    is_known = (
        found is not None
        or any(each.length for each in look.view.segments.usable)
        or "mapped_file_size_commit_log" in config.model_fields_set
    )
    if not is_known and planned.resume_at:
        root = look.view.paths.root
        raise LossNotAccepted(
            f"{look.loss.text}; no file shows the segment size, at a multiple of which the log "
            "goes on: give mappedFileSizeCommitLog of the broker, which is 1073741824 unless it "
            f"was set, as `mqstore store accept-loss {root} --dry-run --segment-size BYTES`"
        )
    size = look.view.config.mapped_file_size_commit_log if is_known else None
    return planned.model_copy(update={"segment_size": size})
