"""A table that another process saves."""

from __future__ import annotations

import os
from pathlib import Path

from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets
from mqstore.storage.tables.followed_table import SETTLED_MS, FollowedTable
from mqstore.storage.tables.table import Source

SEAMS = production_seams()


def _followed(root: Path) -> FollowedTable[ConsumerOffsets]:
    return FollowedTable(ConsumerOffsets, StorePaths(root), SEAMS)


def _save(root: Path, offset: int) -> ConsumerOffsets:
    table = ConsumerOffsets.load(StorePaths(root), StoreFormat.V4_9, SEAMS)
    table.put("g", "T", 0, offset)
    table.save()
    return table


def _offset(followed: FollowedTable[ConsumerOffsets]) -> int | None:
    return followed.now().table.get("g", "T", 0)


def test_without_a_file_the_table_is_empty_and_has_no_time(tmp_path: Path) -> None:
    now = _followed(tmp_path).now()
    assert (now.table.groups(), now.table.source, now.saved_at_ms) == ({}, Source.NEW, None)


def test_what_is_saved_is_seen_at_the_next_look(tmp_path: Path) -> None:
    followed = _followed(tmp_path)
    for offset in (1, 2, 3):
        _save(tmp_path, offset)
        assert _offset(followed) == offset


def test_time_is_that_of_the_file(tmp_path: Path) -> None:
    table = _save(tmp_path, 5)
    os.utime(table.path, ns=(0, 1_700_000_000_123 * 1_000_000))
    assert _followed(tmp_path).now().saved_at_ms == 1_700_000_000_123


def test_file_that_has_settled_is_read_once(tmp_path: Path) -> None:
    table = _save(tmp_path, 5)
    long_ago = SEAMS.clock.now_ms() - 10 * SETTLED_MS
    os.utime(table.path, ns=(0, long_ago * 1_000_000))
    followed = _followed(tmp_path)
    assert followed.now().table is followed.now().table


def test_file_that_is_away_for_a_moment_leaves_what_was_known(tmp_path: Path) -> None:
    followed, table = _followed(tmp_path), _save(tmp_path, 5)
    assert _offset(followed) == 5
    table.path.unlink()
    assert _offset(followed) == 5


def test_backup_counts_where_the_file_cannot_be_read_and_says_so(tmp_path: Path) -> None:
    table = _save(tmp_path, 5)
    table.save()
    table.path.write_text("{")
    os.utime(table.backup_path, ns=(0, 1_700_000_000_123 * 1_000_000))
    now = _followed(tmp_path).now()
    assert (now.table.get("g", "T", 0), now.table.source) == (5, Source.BACKUP)
    assert now.saved_at_ms == 1_700_000_000_123


def test_an_unreadable_file_leaves_the_known_table(tmp_path: Path) -> None:
    followed, table = _followed(tmp_path), _save(tmp_path, 5)
    assert _offset(followed) == 5
    for path in (table.path, table.backup_path):
        path.write_text("{ nothing")
    assert _offset(followed) == 5


def test_brokers_file_with_bare_keys_is_read(tmp_path: Path) -> None:
    path = StorePaths(tmp_path).config / "consumerOffset.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n\t"offsetTable":{"T@g":{0:7,1:9}\n\t}\n}')
    assert _offset(_followed(tmp_path)) == 7
