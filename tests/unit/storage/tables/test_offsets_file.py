"""The file with the offsets of groups, in stores of brokers with and without ``enableLmq``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables import java_json
from mqstore.storage.tables.config_tables import ConsumerOffsets
from mqstore.storage.tables.followed_table import FollowedTable
from tests.field import unpack
from tests.unit.storage.stores import CONFIG, open_store, put_some

SEAMS = production_seams()
V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X


def read_offsets(root: Path, name: str) -> dict[str | int, object]:
    return java_json.parse((root / "config" / name).read_text())


def write_offsets(root: Path, name: str, offset: int, *, at_s: float) -> None:
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(java_json.dump({"offsetTable": {"T@g": {0: offset}}}, V4))
    os.utime(path, (at_s, at_s))


@pytest.mark.parametrize("name", ["lmqc", "lmqc4"])
def test_a_group_of_a_broker_with_lmq_continues_at_its_offsets(tmp_path: Path, name: str) -> None:
    root = unpack(name, tmp_path)
    with open_store(root, StoreConfig()) as store:
        lags = [each.lag for each in store.offsets.of("billing", "orders")]
        assert sum(lag for lag in lags if lag is not None) == 16
        store.offsets.commit("billing", [Commit("orders", 0, 5)])
    saved = read_offsets(root, "lmqConsumerOffset.json")["offsetTable"]
    assert saved == {"orders@billing": {0: 5, **dict.fromkeys(range(1, 8), 3)}}
    assert not (root / "config/consumerOffset.json").exists()
    assert "enableLmq=true\n" in (root / "mqstore/broker.conf").read_text()


def test_offsets_of_lmq_groups_keep_their_place_in_the_file(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    paths.config.mkdir()
    given = {"lmqOffsetTable": {"%LMQ%a@%LMQ%a": 7}, "offsetTable": {"T@g": {0: 3}}}
    (paths.config / "lmqConsumerOffset.json").write_text(java_json.dump(given, V4))
    table = ConsumerOffsets.load(paths, V4, SEAMS)
    assert table.get("%LMQ%a", "%LMQ%a", 0) == 7
    table.put("%LMQ%a", "%LMQ%a", 0, 8)
    table.save()
    given["lmqOffsetTable"] = {"%LMQ%a@%LMQ%a": 8}
    assert read_offsets(tmp_path, "lmqConsumerOffset.json") == given


def test_a_new_store_with_lmq_keeps_its_offsets_where_a_broker_reads_them(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG.model_copy(update={"enable_lmq": True})) as store:
        assert store.offsets.groups() == {}
    assert (tmp_path / "config/lmqConsumerOffset.json").exists()


@pytest.mark.parametrize(("plain_s", "lmq_s", "right"), [(10, 20, 2), (20, 10, 1), (10, 10, 1)])
def test_of_two_files_the_one_written_last_counts(
    tmp_path: Path, plain_s: int, lmq_s: int, right: int
) -> None:
    write_offsets(tmp_path, "consumerOffset.json", 1, at_s=plain_s)
    write_offsets(tmp_path, "lmqConsumerOffset.json", 2, at_s=lmq_s)
    assert ConsumerOffsets.load(StorePaths(tmp_path), V4, SEAMS).get("g", "T", 0) == right


@pytest.mark.parametrize("enabled", [True, False])
def test_a_change_of_the_setting_takes_the_offsets_along(tmp_path: Path, enabled: bool) -> None:
    names = ["consumerOffset.json", "lmqConsumerOffset.json"]
    before, after = names if enabled else reversed(names)
    with open_store(tmp_path) as store:
        put_some(store, 9, queues=1)
    write_offsets(tmp_path, before, 5, at_s=20)
    write_offsets(tmp_path, after, 1, at_s=10)
    config = StoreConfig.model_validate(CONFIG.model_dump() | {"enable_lmq": enabled})
    with open_store(tmp_path, config) as store:
        assert store.offsets.groups() == {"g": ["T"]}
        kept = [entry.source for entry in store.quarantine.entries()]
    assert read_offsets(tmp_path, after)["offsetTable"] == {"T@g": {0: 5}}
    assert not (tmp_path / "config" / before).exists()
    assert f"config/{before}" in kept


def test_a_reader_finds_the_offsets_of_a_store_that_was_empty_before(tmp_path: Path) -> None:
    followed = FollowedTable(ConsumerOffsets, StorePaths(tmp_path), SEAMS)
    assert followed.now().table.groups() == {}
    write_offsets(tmp_path, "lmqConsumerOffset.json", 2, at_s=10)
    assert followed.now().table.groups() == {"g": ["T"]}
