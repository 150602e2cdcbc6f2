"""The small files of a store in a backup: read beside a writer, and made to fit a restored log.

Offsets of groups, levels and members refer to the log; they are read before its end is chosen, and
no writer saves them ahead of the log's own sync. Topics, groups and settings are read after it, so
that the backup has every topic of its messages. A journal is read before its file: what a save
removes from it meanwhile is then in the file.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from mqstore.storage import own_files
from mqstore.storage.backup.errors import BackupDamaged
from mqstore.storage.backup.manifest import QueueStart, Tables
from mqstore.storage.layout import TRANSACTION_GROUP, StoreFormat
from mqstore.storage.metadata import format_file, sealed_json, store_lock
from mqstore.storage.metadata.epochs import EpochFile
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.own_files import OWN_FILES, Backup
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.tables import offsets_file
from mqstore.storage.tables.config_tables import ConsumerOffsets

_AHEAD: Final = (*offsets_file.NAMES, "delayOffset.json", "timercheck")
"""Files of ``config/`` that refer to the log."""
_NOT_COPIED: Final = (".bak", ".tmp")
_FOLDERS: Final = ("config", "mqstore")
_NAME_MAX: Final = 255
"""Bytes of a file's name."""
_BEHIND_A_CUT: Final = (
    *("config/delayOffset.json", "config/timercheck"),
    *(f"mqstore/{each.name}" for each in OWN_FILES if each.is_progress),
)
"""Progress that may be ahead of a log that is cut. Without these files the store finds from the log
which delayed messages were delivered, and delivers what groups acknowledged out of order again."""
_REPLICATION: Final = tuple(
    f"mqstore/{each.name}" for each in (own_files.EPOCHS, own_files.FOLLOWER)
)

_Files = dict[str, bytes]


def read_ahead(files: FileSystem, paths: StorePaths) -> _Files:
    """Read the files that refer to the log, before its end is chosen. Raises OSError."""
    return {
        **_read(files, paths.config, _AHEAD),
        **_read(files, paths.ours, _ours(Backup.BEFORE)),
    }


def read_behind(files: FileSystem, paths: StorePaths) -> _Files:
    """Read the other files, after the log's end was chosen. Raises OSError."""
    suffix = own_files.JOURNALS.name.removeprefix("*")
    journals = [name for name in files.list(paths.ours) if name.endswith(suffix)]
    found = _read(files, paths.ours, journals)
    names = (name for name in files.list(paths.config) if name not in _AHEAD)
    copied = (n for n in names if _is_file_name(n) and not n.endswith(_NOT_COPIED))
    found |= _read(files, paths.config, copied)
    return found | _read(files, paths.ours, _ours(Backup.AFTER))


def _ours(when: Backup) -> Iterator[str]:
    return (each.name for each in OWN_FILES if each.backup is when)


def _is_file_name(name: str) -> bool:
    """Whether a backup holds a file of this name; hidden files are of other programs."""
    return name.isprintable() and not name.startswith(".") and len(name.encode()) <= _NAME_MAX


def _read(files: FileSystem, directory: Path, names: Iterable[str]) -> _Files:
    found = {}
    for name in names:
        path = directory / name
        stat = files.stat(path)
        if stat is not None and not stat.is_directory:
            found[f"{directory.name}/{name}"] = files.read(path)
    return found


def queue_starts(reader: StoreReader, begin: int) -> Iterator[QueueStart]:
    """Yield the begin of each queue with expired entries, for a log that begins at ``begin``."""
    if begin == 0:
        return
    for topic in reader.queues.topics():
        for queue in reader.queues.of_topic(topic):
            index = queue.find_by_physical(begin)
            if index == 0:
                continue
            entry = queue.entry(index - 1)
            if entry is None or entry.is_hole or not 0 <= entry.physical_offset < begin:
                yield _start(topic, queue.queue_id, index, (begin - 1, 1, 0))
            else:
                yield _start(topic, queue.queue_id, index, entry)


def _start(topic: str, queue_id: int, index: int, entry: tuple[int, int, int]) -> QueueStart:
    offset, size, tags_code = entry
    return QueueStart(
        topic=topic,
        queue_id=queue_id,
        index=index,
        physical_offset=offset,
        size=size,
        tags_code=tags_code,
    )


def encode(files: _Files, starts: Iterable[QueueStart]) -> Tables:
    """The document of these files."""
    coded = {name: base64.b64encode(data) for name, data in files.items()}
    return Tables(files=coded, queue_starts=tuple(starts))


def write(tables: Tables, paths: StorePaths, seams: Seams, end: int, *, is_cut: bool) -> FormatFile:
    """Write the files below a new root for a log that ends at ``end``; lock and format.json are
    left to ``finish``, which gets what is returned.

    Raises BackupDamaged, OSError.
    """
    found = dict(tables.files)
    raw = found.pop("mqstore/format.json", b"")
    if any(name in found for name in _REPLICATION):
        found["mqstore/epochs.json"] = _other_log()
        found.pop("mqstore/follower.json", None)
    if "mqstore/clock.json" in found:
        found["mqstore/clock.json"] = _steps_up_to(end, found["mqstore/clock.json"])
    for name, data in found.items():
        if is_cut and name in _BEHIND_A_CUT:
            continue
        path = paths.root / _checked(name)
        seams.files.make_directories(path.parent)
        seams.files.write(path, data)
    content = _format_of(raw)
    if is_cut:
        _forget_decided(paths, content.rocketmq_format, seams)
    return content


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if len(path.parts) != 2 or path.parts[0] not in _FOLDERS or not _is_file_name(path.name):
        raise BackupDamaged(f"{name[:100]!r} is no file of a store")
    return path


def _format_of(raw: bytes) -> FormatFile:
    try:
        return FormatFile.model_validate_json(sealed_json.unseal(raw))
    except (ValueError, RecursionError) as error:
        raise BackupDamaged("the backup's format.json cannot be read") from error


def _forget_decided(paths: StorePaths, store_format: StoreFormat, seams: Seams) -> None:
    """Let transactions be read from the whole log: those decided behind its end are pending
    again."""
    offsets = ConsumerOffsets.load(paths, store_format, seams)
    offsets.remove_group(TRANSACTION_GROUP)
    if offsets.is_changed:
        offsets.save()


def _other_log() -> bytes:
    """Epochs of a log that no follower of the former one goes on with."""
    content = EpochFile(log_id=uuid.uuid4().hex, epochs=(), led=False)
    return sealed_json.encode(content)


def _steps_up_to(end: int, raw: bytes) -> bytes:
    """Clock steps whose offsets are at most the log's end: new records come after all of them."""
    try:
        content = json.loads(sealed_json.unseal(raw))
        for step in content["steps"]:
            step["offset"] = min(step["offset"], end)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackupDamaged("the backup's clock.json cannot be read") from error
    return sealed_json.seal(json.dumps(content))


def finish(content: FormatFile, paths: StorePaths, files: FileSystem, begin: int) -> None:
    """Write lock and format.json of a restored store whose log, in its root, begins at
    ``begin``."""
    files.write(paths.lock, store_lock.SIGN)
    lock = files.stat(paths.lock)
    assert lock is not None
    restored = content.model_copy(
        update={
            "store_path_commit_log": None,
            "commit_log_is_marked": False,
            "lock_modified_ms": lock.modified_ms,
            "block_epoch": None,
            "facts_epoch": None,
            "running_from": None,
            "log_begin": begin,
            "owner": None,
        }
    )
    files.make_directories(paths.ours)
    files.write(paths.format, format_file.text_of(restored))
