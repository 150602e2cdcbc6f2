"""Making a commit log that lies apart a root's own: after a root was moved, copied or restored.

Called from ``mqstore store adopt``. The plan changes nothing; ``adopt`` makes it again under the
locks of both directories, and writes the owner file and then ``format.json``.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from mqstore.storage.errors import (
    DirectoryNotUsable,
    StoreDamaged,
    StoreOfAnother,
    StoreUnsupported,
)
from mqstore.storage.metadata import format_file, log_owner, regular_files, store_lock
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.paths import StorePaths, segment_offset
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import replace_file


@dataclass(frozen=True, slots=True)
class Adoption:
    """A log directory and the root that becomes its owner."""

    paths: StorePaths
    content: FormatFile | None
    """The root's format.json; None for a root that is new."""
    store_id: str | None
    """None where the log has had no owner and the root is new."""
    former_root: Path | None
    """The root that owned the log, where it is another one."""
    is_needed: bool
    """False where the log is the root's own already."""


def plan(files: FileSystem, root: Path, commit_log: Path | None) -> Adoption:
    """Plan ``adopt``; the default ``commit_log`` is the one that format.json names, if it is in the
    root: nothing is written to a place that only the store directory names.

    Raises DirectoryNotUsable, StoreOfAnother, StoreDamaged, StoreUnsupported, OSError.
    """
    root = files.real_path(root)
    stat = files.stat(root)
    if stat is None or not stat.is_directory:
        raise DirectoryNotUsable(f"{root} is no directory; name a store directory")
    regular_files.require(files, StorePaths(root), writes=True)
    content = format_file.load(files, StorePaths(root))
    if content is None and commit_log is None:
        raise DirectoryNotUsable(f"{root} holds no store; name the log with --commit-log")
    setting = str(commit_log) if commit_log is not None else None
    if setting is None and content is not None:
        setting = content.store_path_commit_log
    paths = log_owner.locate(files, root, setting)
    _require_log(files, paths)
    found = _plan(files, paths, content)
    if found.is_needed and commit_log is None and paths.commit_log_dir is not None:
        raise DirectoryNotUsable(
            f"{root} names {paths.commit_log} as its log, which is outside of it: where that is its"
            f" log, name it with --commit-log {paths.commit_log}"
        )
    return found


def _plan(files: FileSystem, paths: StorePaths, content: FormatFile | None) -> Adoption:
    owner = log_owner.load(files, paths)
    _refuse_another(paths, content, owner)
    _refuse_inside_another(files, paths)
    before = Path(owner.root) if owner else log_owner.root_before(files, paths)
    root = files.real_path(paths.root)
    former = before if before is not None and files.real_path(before) != root else None
    if former is not None and _uses(files, former, paths):
        raise StoreOfAnother(
            f"{former} is still a root of that store and its log is {paths.commit_log}; copy the "
            "log and adopt the copy with --commit-log DIR, or remove or rename that root first"
        )
    known = content or owner
    return Adoption(
        paths=paths,
        content=content,
        store_id=None if known is None else known.store_id,
        former_root=former,
        is_needed=former is not None or not _is_own(paths, content, owner),
    )


def adopt(seams: Seams, root: Path, commit_log: Path | None) -> Adoption:
    """Make the root the log's owner; durable at return. Raises as ``plan``, and StoreLocked."""
    files = seams.files
    root = plan(files, root, commit_log).paths.root
    lock = store_lock.take(files, StorePaths(root), create=False)
    try:
        log_owner.take_lock(files, plan(files, root, commit_log).paths, lock)
        found = plan(files, root, commit_log)
        if found.is_needed:
            _apply(seams, found)
        return found
    finally:
        lock.release()


def _apply(seams: Seams, found: Adoption) -> None:
    files, paths, content = seams.files, found.paths, found.content
    made = uuid.UUID(int=seams.random.getrandbits(128), version=4).hex
    epoch = 0 if content is None else content.epoch
    log_owner.save(files, paths, found.store_id or made, epoch)
    if content is not None:
        log = None if paths.commit_log_dir is None else str(paths.commit_log_dir)
        update = {"store_path_commit_log": log, "commit_log_is_marked": True}
        named = content.model_copy(update=update)
        replace_file(files, paths.format, format_file.text_of(named))


def _require_log(files: FileSystem, paths: StorePaths) -> None:
    """Require a log; an empty one needs an owner file, as a new store writes it."""
    names = files.list(paths.commit_log)
    is_log = any(segment_offset(name) is not None for name in names)
    if not is_log and files.stat(paths.log_owner) is None:
        raise DirectoryNotUsable(
            f"{paths.commit_log} holds no segment of a log; mount its volume, or name the log's "
            "directory with --commit-log"
        )


def _is_own(
    paths: StorePaths, content: FormatFile | None, owner: log_owner.LogOwner | None
) -> bool:
    """Whether the root and its log name each other, and neither is older than the other."""
    if content is None or owner is None:
        return False
    log = None if paths.commit_log_dir is None else str(paths.commit_log_dir)
    is_named = content.commit_log_is_marked and content.store_path_commit_log == log
    return is_named and owner.epoch <= content.epoch


def _refuse_another(
    paths: StorePaths, content: FormatFile | None, owner: log_owner.LogOwner | None
) -> None:
    if content is not None and owner is not None and content.store_id != owner.store_id:
        raise StoreOfAnother(
            f"{paths.commit_log} belongs to store {owner.store_id} with root {owner.root}, and "
            f"{paths.root} holds store {content.store_id}; adopt it with an empty directory as "
            "root: the queues are then made from the log"
        )


def _refuse_inside_another(files: FileSystem, paths: StorePaths) -> None:
    if (holder := log_owner.store_around(files, paths)) is not None:
        raise StoreOfAnother(
            f"{paths.commit_log} is inside the root of {holder}; move it out of there first, with "
            "that store stopped"
        )


def _uses(files: FileSystem, root: Path, paths: StorePaths) -> bool:
    """Whether another root still holds a store whose log this is."""
    try:
        content = format_file.load(files, StorePaths(root))
    except (StoreDamaged, StoreUnsupported):
        return True
    if content is None:
        return False
    return (
        log_owner.locate(files, root, content.store_path_commit_log).commit_log == paths.commit_log
    )
