"""The rows of ``mqstore shard ls``."""

from __future__ import annotations

import pytest

from mqstore.cli.output import Format, Output
from mqstore.cli.shard_ls import COLUMNS, ShardRow, row_of
from mqstore.client import Replication, Store
from mqstore.wire.examples.replication import FOLLOWER, LEADER, PROMOTED


def _row(replication: object) -> ShardRow:
    store = Store.model_construct(shard=0, min_offset=0, max_offset=196)
    return row_of("http://a:8081", store, Replication.model_validate(replication))


def test_a_leader_has_the_lag_of_its_last_copy_and_the_names_in_sync() -> None:
    row = _row(LEADER)
    assert (row.role, row.epoch, row.in_sync) == ("leader", 4, ("shop-0", "shop-1"))
    assert (row.lag_bytes, row.lag_ms) == (1024, 3)


def test_a_follower_has_its_own_lag() -> None:
    row = _row(FOLLOWER)
    assert (row.role, row.lag_bytes, row.in_sync) == ("follower", 1024, None)


def test_a_table_has_a_line_for_each_shard(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [_row(PROMOTED), ShardRow(1, "http://b:8081")]
    Output(Format.TABLE).items([each.document() for each in rows], COLUMNS)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == [each.heading.upper() for each in COLUMNS]
    assert first.split()[:3] == ["0", "http://a:8081", "leader"]
    assert second.split() == ["1", "http://b:8081", "?", *6 * "-"]
