"""A store at rest: the job holds its lock and is its only writer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mqstore.jobs.errors import JobError
from mqstore.jobs.log.at_path import LogAtPath
from mqstore.jobs.log.source import LogSegment
from mqstore.jobs.progress import Progress
from mqstore.storage import MessageStore, StoreConfig, StoreOptions
from mqstore.storage.directory import StorePaths, load_format, lock_refusal
from mqstore.storage.errors import StoreLocked
from mqstore.storage.host import PosixFileSystem, production_seams, restrict_new_files
from mqstore.storage.status import Progress as Opened
from mqstore.storage.status import RecoveredLog

OWNER_NAME = "job.json"
"""File beside the staged index files that names the owner of the rebuild."""


@contextmanager
def held(
    root: Path,
    config: StoreConfig,
    progress: Progress,
    on_log: Callable[[RecoveredLog], None],
    *,
    dry: bool,
) -> Iterator[MessageStore]:
    """Open the store with its lock, recovered and with complete queues, for the context.

    ``on_log`` is called once the log is recovered, before the queues are completed. With ``dry``
    the recovered store is in memory only: nothing is written or locked. Raises JobError if another
    rebuild holds the store or it is read-only; StorageError.
    """

    def opening(now: Opened) -> None:
        """Report the progress of the recovery."""
        progress(f"recovering {now.stage}", now.done, now.total)

    known = load_format(PosixFileSystem(), StorePaths(root))
    options = StoreOptions(
        create=False,
        in_place=not dry,
        services=False,
        replaces_index=True,
        why_no_services="its index is being rebuilt",
        on_progress=opening,
        on_log=on_log,
    )
    if known is not None:  # the store's own identity, since the job's options do not name it
        host = next(iter(known.store_hosts), options.store_host)
        options = replace(options, shard=known.shard, store_host=host)
    restrict_new_files()
    try:
        store = MessageStore.open(root, config, production_seams(), options)
    except StoreLocked as error:
        raise _other_rebuild(root) or error from None
    with store:
        if store.recovery.plan.read_only is not None:
            raise JobError(f"{root} may only be read: {store.recovery.plan.read_only}")
        yield store


@contextmanager
def unchanged(root: Path) -> Iterator[None]:
    """Ensure that no process has the store open for writing; nothing is written or locked.

    Raises StoreLocked where a process has it open, JobError where one opened it meanwhile.
    """
    files, paths = PosixFileSystem(), StorePaths(root)

    def signs() -> tuple[object, ...]:
        """Return values that change when a process opens the store."""
        return files.stat(paths.lock), files.stat(paths.format), files.is_locked(paths.lock)

    before = signs()
    if files.is_locked(paths.lock):
        raise _other_rebuild(root) or lock_refusal(files, paths)
    yield
    if signs() != before:
        raise JobError(
            f"{root} was opened for writing while it was compared; run the job again, and name the"
            " store-writer behind a comma where one runs"
        )


def note_owner(directory: Path) -> None:
    """Write the owner of the rebuild to a file, which a concurrent rebuild reports."""
    note = {"pid": os.getpid(), "host": os.uname().nodename, "since": time.time()}
    (directory / OWNER_NAME).write_text(json.dumps(note), encoding="utf-8")


def _other_rebuild(root: Path) -> JobError | None:
    try:
        note = json.loads(PosixFileSystem().read(StorePaths(root).index_staging / OWNER_NAME))
        since = time.strftime("%H:%M:%S", time.localtime(note["since"]))
        return JobError(
            f"{root}: another index rebuild (process {note['pid']} on {note['host']}, since"
            f" {since}) works on it; wait for its end"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def log_of(found: RecoveredLog) -> tuple[LogAtPath, list[LogSegment]]:
    """The whole log, as it was recovered."""
    segments = [
        LogSegment(path.name, base, max(base, found.min_offset), min(base + size, found.max_offset))
        for path, base, size in found.segments
        if base < found.max_offset
    ]
    paths = found.paths
    where = LogAtPath(paths.commit_log, paths.consume_queue, found.config.queue_file_size)
    return where, segments
