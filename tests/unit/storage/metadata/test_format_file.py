from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StoreDamaged, StoreOfAnother, StoreUnsupported
from mqstore.storage.layout import StoreFormat
from mqstore.storage.metadata import format_file
from mqstore.storage.metadata.format_file import FormatFile, Sizes
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.rule import RetentionRule
from mqstore.storage.system.posix_files import PosixFileSystem

FILES = PosixFileSystem()
CONFIG = StoreConfig(mapped_file_size_consume_queue=1000 * 20 - 7)
CONTENT = FormatFile(
    store_id="0123456789abcdef0123456789abcdef",
    shard="3",
    epoch=7,
    rocketmq_format=StoreFormat.V5_X,
    sizes=Sizes.of(CONFIG),
    store_hosts=("10.0.0.3:10911", "[::1]:10912"),
)


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    paths = StorePaths(tmp_path)
    paths.ours.mkdir()
    return paths


def test_what_is_saved_is_loaded(paths: StorePaths) -> None:
    assert format_file.load(FILES, paths) is None
    paths.format.write_bytes(format_file.text_of(CONTENT))
    assert format_file.load(FILES, paths) == CONTENT


def test_the_file_says_what_it_is_in_rocketmqs_names(paths: StorePaths) -> None:
    paths.format.write_bytes(format_file.text_of(CONTENT))
    written = json.loads(paths.format.read_text())
    assert (written["magic"], written["version"], written["leastReader"]) == (
        "mqstore-format",
        1,
        1,
    )
    assert written["rocketmqFormat"] == "5.x"
    assert written["sizes"] == {
        "mappedFileSizeCommitLog": 1 << 30,
        "mappedFileSizeConsumeQueue": 20_000,
        "maxHashSlotNum": 5_000_000,
        "maxIndexNum": 20_000_000,
    }


def test_fields_of_a_newer_version_are_kept(paths: StorePaths) -> None:
    written = json.loads(CONTENT.model_dump_json(by_alias=True)) | {"version": 2, "colour": "red"}
    paths.format.write_text(json.dumps(written))
    found = format_file.load(FILES, paths)
    assert found is not None
    paths.format.write_bytes(format_file.text_of(found))
    assert json.loads(paths.format.read_text())["colour"] == "red"


def test_a_file_that_needs_a_newer_reader_is_refused(paths: StorePaths) -> None:
    written = json.loads(CONTENT.model_dump_json(by_alias=True)) | {"leastReader": 2}
    paths.format.write_text(json.dumps(written))
    with pytest.raises(StoreUnsupported, match="version 2"):
        format_file.load(FILES, paths)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"magic":"other"}', "\x00" * 40, "[" * 3000]
)
def test_a_damaged_file_is_named(paths: StorePaths, text: str) -> None:
    paths.format.write_text(text)
    with pytest.raises(StoreDamaged, match=r"format\.json"):
        format_file.load(FILES, paths)


def test_ids_may_be_written_either_way() -> None:
    format_file.refuse_another(CONTENT, "01234567-89AB-CDEF-0123-456789ABCDEF", "3")
    format_file.refuse_another(CONTENT, None, "3")


def test_another_store_or_shard_is_refused_with_both_named() -> None:
    other = "f" * 32
    with pytest.raises(StoreOfAnother, match=f"{CONTENT.store_id}.*{other}"):
        format_file.refuse_another(CONTENT, other, "3")
    with pytest.raises(StoreOfAnother, match=r"shard 3 .* shard 4"):
        format_file.refuse_another(CONTENT, None, "4")


def test_broker_conf_boots_this_very_directory(paths: StorePaths) -> None:
    text = format_file.broker_conf(CONTENT, CONFIG, paths)
    settings = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    assert settings["storePathRootDir"] == str(paths.root)
    assert settings["storePathCommitLog"] == str(paths.commit_log)
    assert settings["mappedFileSizeConsumeQueue"] == "20000"
    rule = RetentionRule.of(CONFIG).model_dump(by_alias=True)
    of_broker = {name: settings[name] for name in rule.keys() & settings.keys()}
    assert rule.keys() - settings.keys() == {"cleanFileForciblyMinAge"}, "ours alone"
    assert RetentionRule.model_validate(rule | of_broker) == RetentionRule.of(CONFIG)
    assert (settings["brokerIP1"], settings["listenPort"]) == ("10.0.0.3", "10911")
