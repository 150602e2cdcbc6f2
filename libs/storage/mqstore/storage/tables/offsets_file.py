"""The file of ``config/`` that has the offsets of consumer groups.

A broker with ``enableLmq`` keeps all offsets in ``lmqConsumerOffset.json`` and neither reads nor
writes ``consumerOffset.json``. Source: BrokerController and LmqConsumerOffsetManager of 4.9.7 and
5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import replace_file
from mqstore.storage.tables import java_json

NAME: Final = "consumerOffset.json"
LMQ_NAME: Final = "lmqConsumerOffset.json"
LMQ_TABLE: Final = "lmqOffsetTable"
"""Member of ``lmqConsumerOffset.json`` with the offsets of groups that begin with ``%LMQ%``, by
topic@group: such a group reads queue 0 only."""
NAMES: Final = (NAME, LMQ_NAME)
_BACKUP_SUFFIX: Final = ".bak"

log = logging.getLogger(__name__)


def find(files: FileSystem, paths: StorePaths) -> Path:
    """Return the path of the file with the offsets: the one that exists; of two, the one written
    last. ``consumerOffset.json`` where neither exists. Raises OSError."""
    plain, lmq = (paths.config / name for name in NAMES)
    plain_ms, lmq_ms = (_written_ms(files, path) for path in (plain, lmq))
    return lmq if lmq_ms is not None and (plain_ms is None or lmq_ms > plain_ms) else plain


def settle(
    files: FileSystem,
    paths: StorePaths,
    config: StoreConfig,
    store_format: StoreFormat,
    set_aside: Callable[[Path, str], object],
) -> StoreConfig:
    """Leave one file of offsets, the one that a broker with this ``enableLmq`` reads, and return
    the settings.

    Where the setting was never given it follows the file. A second file is handed to ``set_aside``
    with the reason, and must be gone at its return. Raises OSError; a crash in between loses no
    offset.
    """
    found = find(files, paths)
    if "enable_lmq" not in config.model_fields_set and found.name == LMQ_NAME:
        config = config.model_copy(update={"enable_lmq": True})
        config.model_fields_set.add("enable_lmq")
        log.info("the offsets of groups are in %s: enableLmq is on", LMQ_NAME)
    due = paths.config / (LMQ_NAME if config.enable_lmq else NAME)
    if found != due and _written_ms(files, found) is not None:
        _copy(files, found, due)
    if config.enable_lmq and _written_ms(files, due) is None:
        files.make_directories(due.parent)
        replace_file(files, due, java_json.dump({"offsetTable": {}}, store_format).encode())
    other = paths.config / (NAME if config.enable_lmq else LMQ_NAME)
    for path in (other, _backup(other)):
        if files.stat(path) is not None:
            set_aside(path, f"the offsets of groups are in {due.name}")
    return config


def _copy(files: FileSystem, source: Path, target: Path) -> None:
    """Copy the content of a file and of its ``.bak``; the file last, as it decides."""
    for one, other in ((_backup(source), _backup(target)), (source, target)):
        if files.stat(one) is not None:
            replace_file(files, other, files.read(one))


def _written_ms(files: FileSystem, path: Path) -> int | None:
    """Time of the last write of a file, or of its ``.bak`` alone; None without both."""
    found = files.stat(path) or files.stat(_backup(path))
    return None if found is None else found.modified_ms


def _backup(path: Path) -> Path:
    return path.with_name(path.name + _BACKUP_SUFFIX)
