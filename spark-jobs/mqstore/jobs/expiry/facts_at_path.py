"""Reads the facts of a store directory, at rest or beside its writer; writes and locks nothing.

The rule in force is the store's own (format.json), which store-writer records at each start; for a
broker's store, its own broker.conf, if it is named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from pydantic import ValidationError

from mqstore.jobs.errors import NoStore, WrongUsage
from mqstore.jobs.expiry.facts import ShardFacts
from mqstore.storage import StoreConfig
from mqstore.storage.admin import ConsumerOffsets, DelayOffsets
from mqstore.storage.directory import has_sign_of_ours
from mqstore.storage.errors import StorageError
from mqstore.storage.host import PosixFileSystem, PrivateBase, production_seams
from mqstore.storage.retention import (
    NO_DELETION,
    DiskWatch,
    Hold,
    RetentionRule,
    SegmentFacts,
    read_archive,
    read_pins,
)
from mqstore.storage.settings import fields_by_name, file_refusals, fold, parse_settings_file
from mqstore.storage.verify import StoreAtRest

ID_DIGITS: Final = 8
_READ: Final = (*RetentionRule.model_fields, "message_delay_level")

log = logging.getLogger(__name__)


def look(root: Path, settings: Path | None = None) -> ShardFacts:
    """``settings``: a broker.conf. Raises NoStore, WrongUsage for settings that cannot be."""
    seams = production_seams()
    try:
        base = cast(PrivateBase, seams.files)
        store = StoreAtRest.open(root.absolute(), StoreConfig(), seams, base, lambda *_: None)
        return _facts(store, _rule_in_force(store) if settings is None else _config(settings))
    except (StorageError, OSError) as error:
        raise NoStore(str(error)) from error


def _rule_in_force(store: StoreAtRest) -> StoreConfig:
    """Return the store's settings, with which nothing is deleted if its last process said so."""
    deletes = store.content is None or store.content.deletes
    return store.config if deletes else store.config.model_copy(update=NO_DELETION)


def _facts(store: StoreAtRest, config: StoreConfig) -> ShardFacts:
    files, usable = PosixFileSystem(), store.view.segments.usable
    now_ms = time.time_ns() // 1_000_000
    return ShardFacts(
        name=_name(store),
        now_ms=now_ms,
        config=config,
        segments=_segments(store, files),
        newest=usable[-1].path.name if usable else None,
        dispatched=store.end,
        disks=DiskWatch(files, store.paths, config).measure(),
        pins=[pin for pin in _pins(store) if pin.until_ms is None or pin.until_ms > now_ms],
        honours_holds=_is_ours(store),
        consumed=_consumed(ConsumerOffsets.load(store.paths, store.format, store.seams)),
        delivered=DelayOffsets.load(store.paths, store.format, store.seams).all(),
    )


def _segments(store: StoreAtRest, files: PosixFileSystem) -> list[SegmentFacts]:
    found = []
    for each in store.view.segments.usable:
        stat = files.stat(each.path)
        if stat is not None and each.base < store.end and each.end > store.min_offset:
            end = min(each.end, store.end)
            start = max(each.base, store.min_offset)
            found.append(SegmentFacts(each.path.name, start, end, stat.modified_ms))
    return found


def _config(path: Path) -> StoreConfig:
    """The settings that count here, of a broker's file."""
    fields = StoreConfig.model_fields
    names = fields_by_name(fields)
    try:
        said = parse_settings_file(path.read_bytes())
    except ValueError as error:
        raise WrongUsage(f"{path} is no broker.conf ({error})") from error
    refused = "; ".join(file_refusals(said, names))
    if refused:
        raise WrongUsage(f"{path}: {refused}")
    chosen = {
        names[fold(name)]: value for name, value in said.items() if names.get(fold(name)) in _READ
    }
    try:
        return StoreConfig.model_validate(chosen)
    except ValidationError as error:
        first = error.errors()[0]
        name = fields[str(first["loc"][0])].alias
        raise WrongUsage(f"{path}: {name}: {first['msg']}") from error


def _name(store: StoreAtRest) -> str:
    if store.content is None:
        return store.paths.root.name
    return f"{store.content.store_id[:ID_DIGITS]}-{store.content.shard}"


def _is_ours(store: StoreAtRest) -> bool:
    """Whether a writer of ours had it last: a broker rewrites ``lock`` at each start."""
    if store.content is None:
        return False
    lock = store.seams.files.stat(store.paths.lock)
    is_as_left = lock is not None and lock.modified_ms == store.content.lock_modified_ms
    return is_as_left or has_sign_of_ours(store.seams.files, store.paths)


def _pins(store: StoreAtRest) -> list[Hold]:
    """Read the pins, and the hold on messages that are not archived."""
    files, paths = store.seams.files, store.paths
    try:
        found = [pin.hold for pin in read_pins(files, paths.pins)]
        mark = read_archive(files, paths.archive)
    except ValueError as error:
        log.warning("what is pinned cannot be read, so nothing counts as pinned: %s", error)
        return []
    return found if mark is None else [*found, mark.hold]


def _consumed(table: ConsumerOffsets) -> Mapping[tuple[str, str], dict[int, int]]:
    return {
        (group, topic): table.of(group, topic)
        for group, topics in table.groups().items()
        for topic in topics
    }
