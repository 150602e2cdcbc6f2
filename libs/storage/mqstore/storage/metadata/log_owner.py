"""``NAME.mqstore/owner.json`` beside the commit log's directory: the store and root that own it.

A copy of a root carries the store id and the path of the original's log. The owner file names the
root that writes the log, so an opener with another root is rejected. The writer holds ``lock``
beside it. A log inside its root has an owner file only after it was adopted.

The writer replaces the file after ``format.json`` at each opening: a root whose epoch is lower than
the owner's is an older copy of the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mqstore.storage.errors import StoreDamaged, StoreLocked, StoreOfAnother, StoreUnsupported
from mqstore.storage.metadata import format_file, sealed_json
from mqstore.storage.metadata.format_file import AbsolutePath, FormatFile
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.metadata.store_lock import StoreLock
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem

ADOPT: Final = "mqstore store adopt"


class LogOwner(Value):
    """The owner of one log directory."""

    store_id: str
    root: AbsolutePath
    """Real path of the store's root."""
    epoch: int
    """Epoch of the last opening for writing; at most the epoch in the root's format.json."""


def locate(files: FileSystem, root: Path, setting: str | None) -> StorePaths:
    """The paths of a store whose storePathCommitLog is ``setting``; the operator may have made the
    root and the log directory symbolic links."""
    if setting is None:
        return StorePaths(root)
    path = files.real_path(Path(setting))
    return StorePaths(root, None if path == files.real_path(root) / "commitlog" else path)


def load(files: FileSystem, paths: StorePaths) -> LogOwner | None:
    """Load the owner file; None without one. Raises StoreDamaged, OSError."""
    try:
        return sealed_json.read(files, paths.log_owner, LogOwner)
    except ValueError as error:
        raise StoreDamaged(
            f"{paths.log_owner} cannot be read ({type(error).__name__}), so the owner of "
            f"{paths.commit_log} is not known; restore it from a copy, or remove it and adopt the "
            f"log with `{ADOPT} {paths.root} --commit-log {paths.commit_log}`"
        ) from error


def save(files: FileSystem, paths: StorePaths, store_id: str, epoch: int) -> None:
    """Record the store's root as the owner of its log; durable at return. Raises OSError."""
    root = str(files.real_path(paths.root))
    owner = LogOwner(store_id=store_id, root=root, epoch=epoch)
    files.make_directories(paths.log_identity)
    sealed_json.write(files, paths.log_owner, owner)


def check(files: FileSystem, paths: StorePaths, content: FormatFile | None) -> LogOwner | None:
    """The log's owner, which is this root, or None where the log has no owner.

    Changes nothing. Raises StoreOfAnother (names both roots and ids), StoreDamaged, OSError.
    """
    owner = load(files, paths)
    if owner is None:
        _refuse_unmarked(files, paths, content)
        return None
    root = str(files.real_path(paths.root))
    if owner.root != root or (content is not None and content.store_id != owner.store_id):
        raise StoreOfAnother(
            f"the commit log {paths.commit_log} belongs to store {owner.store_id} with root "
            f"{owner.root}; {root} holds {_store_of(content)}, which may not use it. "
            + _how_to_adopt(paths)
        )
    if content is not None and _epoch_now(files, paths, content) < owner.epoch:
        raise StoreOfAnother(
            f"{root} is an older copy of the root of store {owner.store_id}: its last opening was "
            f"number {content.epoch}, and the commit log {paths.commit_log} was opened as number "
            f"{owner.epoch} since. " + _how_to_adopt(paths)
        )
    return owner


def hold(
    files: FileSystem, paths: StorePaths, content: FormatFile | None, lock: StoreLock
) -> LogOwner | None:
    """``check``, and lock a log outside of the root.

    Raises StoreLocked and StoreUnsupported too.
    """
    owner = check(files, paths, content)
    if paths.commit_log_dir is None and owner is None:
        return None
    if paths.commit_log_dir is not None and files.is_mount_point(paths.commit_log):
        raise StoreUnsupported(
            f"storePathCommitLog {paths.commit_log} is a mount point: new segments are made beside "
            "it and renamed into it, which no file system allows across a mount; name a directory "
            f"inside it, such as {paths.commit_log / 'commitlog'}, and move the segments there"
        )
    take_lock(files, paths, lock)
    return check(files, paths, content)


def require_marked(files: FileSystem, paths: StorePaths, content: FormatFile) -> None:
    """Require that a log which only format.json names has an owner file: otherwise a store
    directory could make any other directory its log. Raises StoreOfAnother, OSError.
    """
    is_apart = paths.commit_log_dir is not None and not content.commit_log_is_marked
    if is_apart and files.stat(paths.log_owner) is None:
        _refuse_unmarked(files, paths, content)
        raise StoreOfAnother(
            f"{paths.root} names {paths.commit_log} as its commit log, which is outside of it and "
            f"has no {paths.log_owner.name} that names this root: set storePathCommitLog to it, or "
            f"run `{ADOPT} {paths.root} --commit-log {paths.commit_log}`"
        )


def take_lock(files: FileSystem, paths: StorePaths, lock: StoreLock) -> None:
    """Lock a log outside of the root. Raises StoreLocked, OSError."""
    files.make_directories(paths.log_identity)
    try:
        lock.add(files, paths.log_lock)
    except StoreLocked as error:
        raise StoreLocked(
            f"the commit log {paths.commit_log} of {paths.root} is in use by another process "
            f"({error}); stop it first"
        ) from error


def _refuse_unmarked(files: FileSystem, paths: StorePaths, content: FormatFile | None) -> None:
    if content is not None and content.commit_log_is_marked:
        raise StoreOfAnother(
            f"{paths.commit_log} is not the commit log of {_store_of(content)} with root "
            f"{paths.root}: {paths.log_owner} is missing, which every opening leaves there. Mount "
            "the volume of the log, or put the log back together with "
            f"{paths.log_identity.name}. " + _how_to_adopt(paths)
        )
    if paths.commit_log_dir is None:
        return
    if (holder := store_around(files, paths)) is not None:
        raise StoreOfAnother(
            f"the commit log {paths.commit_log} belongs to {holder} with root "
            f"{paths.commit_log.parent}; {paths.root} holds {_store_of(content)}, which may not "
            "use it. " + _how_to_adopt(paths)
        )
    is_named = content is not None and content.store_path_commit_log is not None
    before = root_before(files, paths) if is_named else None
    if before is not None and files.real_path(before) != files.real_path(paths.root):
        raise StoreOfAnother(
            f"{paths.root} was moved or copied: {_store_of(content)} was last opened as {before}, "
            f"and the commit log {paths.commit_log} belongs to that root. " + _how_to_adopt(paths)
        )
    if content is None and files.stat(paths.staging) and files.stat(paths.state) is None:
        raise StoreOfAnother(
            f"the commit log {paths.commit_log} belongs to a store of another root "
            f"({paths.staging.name} beside it says that mqstore wrote it); {paths.root} holds no "
            "store yet, and may not use it. " + _how_to_adopt(paths)
        )


def _how_to_adopt(paths: StorePaths) -> str:
    return (
        f"To give this root a log of its own, copy the log and adopt the copy: `{ADOPT} "
        f"{paths.root} --commit-log DIR`; where the root was moved: `{ADOPT} {paths.root} "
        f"--commit-log {paths.commit_log}`"
    )


def _store_of(content: FormatFile | None) -> str:
    return "no store of mqstore yet" if content is None else f"store {content.store_id}"


def store_around(files: FileSystem, paths: StorePaths) -> str | None:
    """The store whose own ``commitlog`` this is, or None."""
    around = StorePaths(paths.commit_log.parent)
    if paths.commit_log.name != "commitlog" or around.root == files.real_path(paths.root):
        return None
    try:
        content = format_file.load(files, around)
    except (StoreDamaged, StoreUnsupported):
        return "a store of mqstore"
    if content is not None:
        inside = content.store_path_commit_log is None
        return f"store {content.store_id}" if inside else None
    return "a RocketMQ broker's store" if files.stat(around.lock) is not None else None


def root_before(files: FileSystem, paths: StorePaths) -> Path | None:
    """The root that the last opening noted in broker.conf, or None: earlier releases marked no
    log."""
    if files.stat(paths.broker_conf) is None:
        return None
    root = format_file.read_broker_conf(files, paths).get("storePathRootDir")
    return None if root is None or "\0" in root else Path(root)


def _epoch_now(files: FileSystem, paths: StorePaths, content: FormatFile) -> int:
    """Read the epoch in format.json after the owner file: a writer may have opened meanwhile."""
    now = format_file.load(files, paths)
    return content.epoch if now is None else max(content.epoch, now.epoch)
