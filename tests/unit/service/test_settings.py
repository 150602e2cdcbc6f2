from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import load, split_address
from mqstore.storage import setting_names
from mqstore.storage.settings import BROKER_SETTINGS
from mqstore.wire import environment


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("MQSTORE_"):
            monkeypatch.delenv(name)


def _file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mqstore.conf"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("MQSTORE_CONFIG_FILE", str(path))
    return path


def test_defaults_listen_on_loopback_with_rocketmq_sizes() -> None:
    settings = load()
    assert (settings.host, settings.writer_port, settings.query_port) == ("127.0.0.1", 8081, 8082)
    assert settings.store_config.mapped_file_size_commit_log == 1 << 30


@pytest.mark.parametrize(
    "name",
    [
        "MQSTORE_MAPPED_FILE_SIZE_COMMIT_LOG",
        "MQSTORE_mappedFileSizeCommitLog",
        "MQSTORE_mapedFileSizeCommitLog",
    ],
)
def test_environment_takes_rocketmq_names_in_any_spelling(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "67108864")
    assert load().store_config.mapped_file_size_commit_log == 67108864


def test_file_has_the_form_of_broker_conf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "# a comment\nflushDiskType = SYNC_FLUSH\n\nstorePathRootDir=/data/store\n"
    _file(monkeypatch, tmp_path, text)
    settings = load()
    assert settings.store == Path("/data/store")
    assert settings.store_config.flush_disk_type.value == "SYNC_FLUSH"


def test_environment_goes_before_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _file(monkeypatch, tmp_path, "writerPort = 1\nqueryPort = 2\n")
    monkeypatch.setenv("MQSTORE_WRITER_PORT", "3")
    settings = load()
    assert (settings.writer_port, settings.query_port) == (3, 2)


def test_given_values_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSTORE_STORE", "/from/environment")
    assert load(store=Path("/given")).store == Path("/given")


def test_unknown_name_in_the_file_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _file(monkeypatch, tmp_path, "flushDiskTyp = SYNC_FLUSH\n")
    with pytest.raises(ConfigurationError, match="flushDiskTyp"):
        load()


def test_wrong_value_is_refused_with_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSTORE_MAX_INDEX_NUM", "many")
    with pytest.raises(ConfigurationError, match="setting maxIndexNum: "):
        load()


def test_what_kubernetes_injects_for_a_service_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for prefix in ("MQSTORE", "MQSTORE_WRITER", "MQSTORE_QUERY_2"):
        monkeypatch.setenv(f"{prefix}_SERVICE_HOST", "10.0.0.1")
        monkeypatch.setenv(f"{prefix}_SERVICE_PORT", "8081")
        monkeypatch.setenv(f"{prefix}_SERVICE_PORT_HTTP", "8081")
        monkeypatch.setenv(f"{prefix}_PORT", "tcp://10.0.0.1:8081")
        monkeypatch.setenv(f"{prefix}_PORT_8081_TCP", "tcp://10.0.0.1:8081")
        monkeypatch.setenv(f"{prefix}_PORT_8081_TCP_PROTO", "tcp")
        monkeypatch.setenv(f"{prefix}_PORT_8081_TCP_PORT", "8081")
        monkeypatch.setenv(f"{prefix}_PORT_8081_TCP_ADDR", "10.0.0.1")
    assert load().writer_port == 8081


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("MQSTORE_FLUSH_DSK_TYPE", "SYNC_FLUSH", "MQSTORE_FLUSH_DISK_TYPE"),
        ("mqstore_flushDiskTyp", "SYNC_FLUSH", "MQSTORE_FLUSH_DISK_TYPE"),
        ("MQSTORE_TOKEN_ADMN", "x" * 32, "MQSTORE_TOKEN_ADMIN"),
        ("MQSTORE_CONFIG_FLE", "/etc/mqstore.conf", "MQSTORE_CONFIG_FILE"),
        ("MQSTORE_QUERY_PRT", "1", "MQSTORE_QUERY_PORT"),
        ("MQSTORE_STORE_CONFIG", "{}", None),
        ("MQSTORE_PORT", "8081", None),
        ("MQSTORE_SOMETHING_QUITE_DIFFERENT", "", None),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(
    name: str, value: str, nearest: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(
        ConfigurationError, match=rf"unknown variable MQSTORE_{name[8:]}"
    ) as refusal:
        load()
    if nearest is not None:
        assert f"(did you mean {nearest}?)" in str(refusal.value)


def test_variables_of_other_programs_of_the_project_are_no_settings_and_no_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "TOKEN",
        "TOKEN_FILE",
        "CA",
        "EXPLORE",
        "REQUIRE_REFEREE",
        "REQUIRE_BROWSER",
        "CHROMIUM",
        "E2E_KUBE",
    ):
        monkeypatch.setenv(f"MQSTORE_{name}", "x")
    assert load() == load()


def test_the_variables_of_a_client_are_no_misspelt_settings() -> None:
    named = {value for name, value in vars(environment).items() if name.endswith("_VARIABLE")}
    assert named == environment.VARIABLES
    assert setting_names.unknown_variables(dict.fromkeys(named, "x")) is None


SLAVE_CONF = """
brokerRole = SLAVE
brokerId = 1
haMasterAddress = 10.0.0.1:10912
masterAddress = [fd00::1]:10911
"""


def test_the_file_of_a_slave_with_its_master_is_a_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _file(monkeypatch, tmp_path, SLAVE_CONF)
    settings = load()
    assert settings.follows
    assert settings.ha_master_address is not None
    assert settings.master_address is not None
    assert split_address(settings.ha_master_address) == ("10.0.0.1", 10912)
    assert split_address(settings.master_address) == ("fd00::1", 10911)


def test_a_slave_without_its_master_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSTORE_BROKER_ROLE", "SLAVE")
    with pytest.raises(ConfigurationError, match="settings: brokerRole=SLAVE needs"):
        load()


STOCK_BROKER_CONF = """\
# Licensed to the Apache Software Foundation (ASF) under one or more
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
brokerIP1 = 10.0.0.1
listenPort = 10911
namesrvAddr = 10.0.0.2:9876;10.0.0.3:9876
autoCreateTopicEnable = true
defaultTopicQueueNums = 4
storePathRootDir = /data/store
"""


def test_a_stock_broker_conf_is_a_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _file(monkeypatch, tmp_path, STOCK_BROKER_CONF)
    settings = load()
    assert (settings.broker_name, settings.store) == ("broker-a", Path("/data/store"))
    assert settings.store_config.file_reserved_time == 48
    assert settings.store_config.auto_create_topic_enable
    assert settings.unused_names() == [
        "brokerIP1",
        "brokerId",
        "namesrvAddr",
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("brokerRole = SLAVE", "a slave's"),
        ("brokerrole = slave", "a slave's"),
        ("brokerId = 1", "a slave's"),
        ("enableDLegerCommitLog = true", "DLedger"),
        ("duplicationEnable = true", "another program confirms"),
        ("enableControllerMode = true", "no controller"),
        ("storeType = defaultRocksDB", "RocksDB"),
        ("brokerPermission = 4", "pause writes"),
        ("readOnlyCommitLogStorePaths = /old", "one directory"),
        ("configManagerVersion = v2", "follow the running broker"),
        ("transRocksDBEnable = true", "decide them with the broker"),
        ("timerRocksDBEnable = true", "delivered from the log"),
        ("popConsumerKVServiceEnable = true", "exportPopRecord"),
        ("messageStorePlugIn = org.apache.rocketmq.tieredstore.TieredMessageStore", "tiered"),
    ],
)
def test_a_brokers_setting_that_it_would_be_dangerous_to_ignore_is_refused(
    line: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _file(monkeypatch, tmp_path, line + "\n")
    with pytest.raises(ConfigurationError, match=why):
        load()


def test_a_brokers_setting_that_is_done_without_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _file(monkeypatch, tmp_path, "aclEnable=true\nreplicasPerDiskPartition=3\nindexRocksDBEnable=")
    with pytest.raises(ConfigurationError, match="indexRocksDBEnable"):
        load()
    _file(monkeypatch, tmp_path, "aclEnable=true\nreplicasPerDiskPartition=3\naclenable=true")
    assert [each.partition(":")[0] for each in load().lacks()] == [
        "aclEnable=true",
        "replicasPerDiskPartition=3",
        "aclenable=true",
    ]


def test_what_a_broker_has_by_default_is_accepted_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for each in BROKER_SETTINGS[1:]:  # brokerRole is a setting of ours
        _file(monkeypatch, tmp_path, f"{each.name} = {each.harmless[0]}\n")
        assert load().lacks() == []


def test_a_name_in_the_file_that_is_neither_is_refused_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _file(monkeypatch, tmp_path, "namesrvAdr = a:1\nqueryPrt = 1\n")
    with pytest.raises(
        ConfigurationError, match=r"'namesrvAdr' \(did you mean namesrvAddr\?\)"
    ) as refusal:
        load()
    assert "'queryPrt' (did you mean queryPort?)" in str(refusal.value)


def test_a_file_is_read_as_java_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(
        b"! \xd6\xd0\xce\xc4\nfileReservedTime:480\rbrokerName broker-\\\n    \\u0061\n"
        b"storePathRootDir = /data/\\u4e2d\nmetricsLabel=\xe4\xb8\xad\nreplicaName = r1 \n"
    )
    monkeypatch.setenv("MQSTORE_CONFIG_FILE", str(path))
    settings = load()
    assert settings.store_config.file_reserved_time == 480
    assert (settings.broker_name, settings.store) == ("broker-a", Path("/data/中"))
    assert settings.replica_name == "r1"
    assert settings.unused_names() == ["metricsLabel"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            b"fileReservedTime = 48 \n",
            "reads no integer of 32 bits from '48 ' and uses its default",
        ),
        (b"fileReservedTime = 99999999999\n", "reads no integer of 32 bits"),
        (b"autoCreateTopicEnable = yes\n", "takes 'yes' for false; write true or false"),
        (b"enableLmq = true \n", "takes 'true ' for false"),
        (b"storePathRootDir = /data/store \n", "4.9 uses '/data/store ' with its space"),
        (b"storePathRootDir = /data/\xc3\xbc\n", r"line 1: storePathRootDir has a byte .* \\uXXXX"),
        (b"storePathRootDir = C:\\users\n", r"line 1: \\u is not followed by"),
        (b"\xef\xbb\xbffileReservedTime = 48\n", "byte order mark"),
        (
            b"mappedFileSizeCommitLog=65536\nmapedFileSizeCommitLog=131072\n",
            "mappedFileSizeCommitLog and mapedFileSizeCommitLog are one setting",
        ),
    ],
)
def test_a_value_that_a_broker_reads_otherwise_is_refused(
    content: bytes, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(content)
    monkeypatch.setenv("MQSTORE_CONFIG_FILE", str(path))
    with pytest.raises(ConfigurationError, match=why):
        load()


def test_missing_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MQSTORE_CONFIG_FILE", str(tmp_path / "none.conf"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load()


def test_tokens_come_from_a_directory_as_kubernetes_mounts_a_secret(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text("a" * 32 + "\n", encoding="utf-8")
    (tmp_path / "produce").write_text("p" * 32 + "\n" + "q" * 32 + "\n")
    tokens = load(tokens_dir=tmp_path).tokens()
    assert tokens == {"admin": ("a" * 32,), "produce": ("p" * 32, "q" * 32)}


@pytest.mark.parametrize("text", [" ".join(["a" * 16] * 3), "a" * 16 + " b", ""])
def test_tokens_of_a_role_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="admin token"):
        load(token_admin=text).tokens()


def test_short_token_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="shorter than 16"):
        load(token_admin="short").tokens()


def test_an_error_names_a_setting_as_rocketmq_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSTORE_FILE_RESERVED_TIME", "abc")
    with pytest.raises(ConfigurationError, match="setting fileReservedTime: input should be"):
        load()
