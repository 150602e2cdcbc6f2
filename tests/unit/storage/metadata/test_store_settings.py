"""Settings live with their store: an opening that is given none uses and keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.errors import StoreUnsupported
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import sealed_json
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.overlay_files import OverlayFileSystem
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify.store_at_rest import StoreAtRest
from tests.unit.storage.stores import CONFIG, open_store

SET: dict[str, Any] = {
    "file_reserved_time": 720,
    "flush_disk_type": FlushDiskType.SYNC,
    "message_delay_level": "1h 2h",
    "keep_for_groups": "audit",
    "auto_create_topic_enable": True,
}
CONFIGURED = CONFIG.model_copy(update=SET)
NOTHING_GIVEN = StoreConfig()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store whose last writer was configured."""
    open_store(tmp_path / "store", CONFIGURED).close()
    return tmp_path / "store"


def settings_of(store: MessageStore) -> dict[str, Any]:
    return {name: getattr(store.config, name) for name in SET}


def broker_conf(root: Path) -> dict[str, str]:
    text = StorePaths(root).broker_conf.read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def content_of(root: Path) -> dict[str, Any]:
    return json.loads(sealed_json.unseal(StorePaths(root).format.read_bytes()))  # type: ignore[no-any-return]


def rewrite(root: Path, **changes: Any) -> None:
    """format.json with these members; None removes one."""
    content = content_of(root) | changes
    kept = {name: value for name, value in content.items() if value is not None}
    StorePaths(root).format.write_text(json.dumps(kept))


def without_recorded_settings(root: Path) -> None:
    """As a version left it that recorded none."""
    rewrite(root, settings=None)


def test_an_opening_that_is_given_none_uses_and_keeps_those_of_the_store(root: Path) -> None:
    before = broker_conf(root)
    for _ in range(2):
        with open_store(root, NOTHING_GIVEN, services=False) as store:
            assert settings_of(store) == SET
    assert broker_conf(root) == before
    assert before["fileReservedTime"] == "720"
    assert before["messageDelayLevel"] == "1h 2h"


def test_what_is_given_wins_is_recorded_and_leaves_the_rest(root: Path) -> None:
    open_store(root, StoreConfig(file_reserved_time=24)).close()
    with open_store(root, NOTHING_GIVEN) as store:
        assert settings_of(store) == SET | {"file_reserved_time": 24}


def test_a_settings_file_is_all_so_what_it_leaves_out_is_rocketmqs_default(root: Path) -> None:
    open_store(root, StoreConfig(file_reserved_time=24), all_settings=True).close()
    with open_store(root, NOTHING_GIVEN) as store:
        assert store.config.file_reserved_time == 24
        assert store.config.flush_disk_type is FlushDiskType.ASYNC
        assert store.config.mapped_file_size_commit_log == CONFIG.mapped_file_size_commit_log


def test_sizes_of_files_are_not_among_the_recorded_settings(root: Path) -> None:
    content = content_of(root)
    assert set(content["settings"]) == {
        "fileReservedTime",
        "flushDiskType",
        "messageDelayLevel",
        "keepForGroups",
        "autoCreateTopicEnable",
    }


def test_a_store_at_rest_is_looked_at_with_its_own_settings(root: Path) -> None:
    files = PosixFileSystem()
    store = StoreAtRest.open(root, NOTHING_GIVEN, production_seams(), files, lambda *_: None)
    assert isinstance(store.seams.files, OverlayFileSystem)
    assert store.config.message_delay_level == "1h 2h"


def test_a_broker_gets_every_setting_that_was_given_and_that_it_has(tmp_path: Path) -> None:
    root = tmp_path / "store"
    given = {
        "autoCreateTopicEnable": False,
        "cleanResourceInterval": 60_000,
        "deleteFileBatchMax": 3,
        "uniqueKeyWindow": 5,
    }
    config = StoreConfig.model_validate(CONFIG.model_dump(include=CONFIG.model_fields_set) | given)
    open_store(root, config).close()
    found = broker_conf(root)
    assert found["autoCreateTopicEnable"] == "false"
    assert found["cleanResourceInterval"] == "60000"
    assert found["deleteFileBatchMax"] == "3"
    assert "uniqueKeyWindow" not in found
    assert "autoCreateSubscriptionGroup" not in found


def test_without_recorded_settings_the_broker_conf_of_an_older_version_counts(root: Path) -> None:
    without_recorded_settings(root)
    before = broker_conf(root)
    with open_store(root, NOTHING_GIVEN, services=False) as store:
        written = {name: SET[name] for name in SET if name != "auto_create_topic_enable"}
        assert {name: getattr(store.config, name) for name in written} == written
    assert broker_conf(root) == before
    assert content_of(root)["settings"]["fileReservedTime"] == 720


def test_without_format_json_the_index_sizes_are_those_of_broker_conf(root: Path) -> None:
    StorePaths(root).format.unlink()
    with open_store(root, NOTHING_GIVEN) as store:
        assert (store.config.max_hash_slot_num, store.config.max_index_num) == (100, 400)
        assert store.config.file_reserved_time == 720


def test_what_an_older_run_wrote_into_broker_conf_is_no_setting_of_the_store(root: Path) -> None:
    without_recorded_settings(root)
    conf = StorePaths(root).broker_conf
    text = conf.read_text().replace("fileReservedTime=720", "fileReservedTime=876000")
    conf.write_text(text.replace("cleanFileForciblyEnable=true", "cleanFileForciblyEnable=false"))
    open_store(root, NOTHING_GIVEN).close()
    assert broker_conf(root)["fileReservedTime"] == "72"
    assert broker_conf(root)["cleanFileForciblyEnable"] == "true"
    assert broker_conf(root)["messageDelayLevel"] == "1h 2h"


def test_a_line_of_broker_conf_that_cannot_be_is_left_out_alone(root: Path) -> None:
    without_recorded_settings(root)
    conf = StorePaths(root).broker_conf
    text = conf.read_text().replace("fileReservedTime=720", "fileReservedTime=long")
    conf.write_text(text + "noLine\nmyOwn = 1\n")
    with open_store(root, NOTHING_GIVEN) as store:
        assert store.config.file_reserved_time == 72
        assert store.config.message_delay_level == "1h 2h"


def test_a_recorded_value_that_cannot_be_used_is_refused_by_name_until_it_is_given(
    root: Path,
) -> None:
    rewrite(root, settings={"fileReservedTime": -1})
    with pytest.raises(StoreUnsupported, match=r"format.json has fileReservedTime=-1: .* give"):
        open_store(root, NOTHING_GIVEN)
    open_store(root, StoreConfig(file_reserved_time=5)).close()
    assert content_of(root)["settings"]["fileReservedTime"] == 5


def test_settings_that_only_a_newer_version_knows_are_kept(root: Path) -> None:
    rewrite(root, settings={"fileReservedTime": 720, "ofTheFuture": "red"})
    open_store(root, NOTHING_GIVEN).close()
    assert content_of(root)["settings"] == {"fileReservedTime": 720, "ofTheFuture": "red"}


def test_an_opening_that_deletes_nothing_leaves_the_stores_settings(root: Path) -> None:
    with open_store(root, NOTHING_GIVEN, deletes=False) as store:
        assert store.retention.plan().rule.file_reserved_time > 700_000
        assert not store.retention.plan().rule.clean_file_forcibly_enable
    assert broker_conf(root)["fileReservedTime"] == "720"
    assert broker_conf(root)["cleanFileForciblyEnable"] == "true"
