"""Opens the small files of a backup as a store in memory, without its log.

A restore does so before it copies the log, and ``backup verify`` instead of a restore: a store that
its tables or its format keep from opening is found before anything is written.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from mqstore.storage.backup import small_files
from mqstore.storage.backup.errors import BackupDamaged
from mqstore.storage.backup.manifest import Backup, QueueStart, Tables
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import QUEUE_ENTRY_SIZE
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.options import StoreOptions
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.system.overlay_files import make_overlay
from mqstore.storage.tables.config_tables import ConsumerOffsets
from mqstore.storage.topic_names import is_safe_path

_ROOT: Final = Path("/mqstore-rehearsal")
"""The store's directory in memory; whatever has this name on the disk is not looked at."""


def rehearse(backup: Backup, tables: Tables, seams: Seams) -> FormatFile:
    """Prove that a store opens with these small files; returns its format. Raises BackupDamaged."""
    try:
        return _rehearse(backup, tables, seams)
    except BackupDamaged:
        raise
    except (StorageError, ValueError, OSError, RecursionError) as error:
        raise BackupDamaged(f"no store opens with {backup.tables.name}: {error}") from error


def _rehearse(backup: Backup, tables: Tables, seams: Seams) -> FormatFile:
    inner = dataclasses.replace(seams, files=make_overlay(seams.files))
    paths = StorePaths(_ROOT)
    inner.files.make_directories(paths.commit_log)
    content = small_files.write(tables, paths, inner, backup.end, is_cut=False)
    _require_agreement(backup, content)
    require_starts(backup, tables)
    _set_offsets_aside(paths, content, inner)
    small_files.finish(content, paths, inner.files, backup.end)
    options = dataclasses.replace(options_of(content), services=False)
    with MessageStore.open(_ROOT, StoreConfig(), inner, options):
        return content


def options_of(content: FormatFile) -> StoreOptions:
    """How a restored store is opened for the first time."""
    options = StoreOptions(
        shard=content.shard, create=False, deletes=False, deliver_delayed=False, indexes_all=True
    )
    hosts = content.store_hosts[:1]
    return dataclasses.replace(options, store_host=hosts[0]) if hosts else options


def _set_offsets_aside(paths: StorePaths, content: FormatFile, seams: Seams) -> None:
    """Load the offsets of groups, and remove them: an opening without the log would lower each."""
    ConsumerOffsets.load(paths, content.rocketmq_format, seams)
    path = paths.config / ConsumerOffsets.file_name
    if seams.files.stat(path) is not None:
        seams.files.unlink(path)


def _require_agreement(backup: Backup, content: FormatFile) -> None:
    """Require that manifest and format.json are of one store. Raises BackupDamaged."""
    named = backup.store_id, backup.shard, backup.rocketmq_format, backup.segment_size
    size = content.sizes.mapped_file_size_commit_log
    if named != (content.store_id, content.shard, content.rocketmq_format, size):
        raise BackupDamaged(
            f"{backup.tables.name} and the manifest are of different stores: store, shard, format "
            "or size of the segments differ"
        )
    StoreConfig.model_validate(content.sizes.model_dump())


def require_starts(backup: Backup, tables: Tables) -> None:
    """Require that each begin of a queue can be made. Raises BackupDamaged."""
    known: set[tuple[str, int]] = set()
    for start in tables.queue_starts:
        place = start.topic, start.queue_id
        if not is_safe_path(start.topic):
            raise BackupDamaged(f"{start.topic[:100]!r} is no topic's name")
        if place in known:
            raise BackupDamaged(f"queue {start.queue_id} of {start.topic[:100]!r} begins twice")
        if start.index and not 0 <= start.physical_offset < max(1, backup.begin):
            raise BackupDamaged(
                f"queue {start.queue_id} of {start.topic[:100]!r} begins behind a record at"
                f" {start.physical_offset}, which is not below {backup.begin}"
            )
        known.add(place)


def blank_bytes(start: QueueStart, file_size: int) -> int:
    """Bytes of the file in which a queue begins that entries before its begin take."""
    return start.index * QUEUE_ENTRY_SIZE % file_size
