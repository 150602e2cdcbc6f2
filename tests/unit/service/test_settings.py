from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.service.refusal import Refused
from mqstore.service.settings import load, read_properties


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
    with pytest.raises(Refused, match="flushDiskTyp"):
        load()


def test_wrong_value_is_refused_with_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSTORE_MAX_INDEX_NUM", "many")
    with pytest.raises(Refused, match=r"max.?index.?num"):
        load()


def test_what_kubernetes_injects_for_a_service_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MQSTORE_WRITER_PORT", "tcp://10.0.0.1:8081")
    monkeypatch.setenv("MQSTORE_SERVICE_HOST", "10.0.0.1")
    assert load().writer_port == 8081


def test_line_without_equals_sign_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "broken.conf"
    path.write_text("a = 1\nnonsense\n", encoding="utf-8")
    with pytest.raises(Refused, match="line 2"):
        read_properties(path)


def test_missing_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MQSTORE_CONFIG_FILE", str(tmp_path / "none.conf"))
    with pytest.raises(Refused, match="cannot be read"):
        load()


def test_tokens_come_from_a_directory_as_kubernetes_mounts_a_secret(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text("a" * 32 + "\n", encoding="utf-8")
    (tmp_path / "produce").write_text("p" * 32 + "\n" + "q" * 32 + "\n")
    tokens = load(tokens_dir=tmp_path).tokens()
    assert tokens == {"admin": ("a" * 32,), "produce": ("p" * 32, "q" * 32)}


@pytest.mark.parametrize("text", [" ".join(["a" * 16] * 3), "a" * 16 + " b", ""])
def test_tokens_of_a_role_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="admin token"):
        load(token_admin=text).tokens()


def test_short_token_is_refused() -> None:
    with pytest.raises(Refused, match="shorter than 16"):
        load(token_admin="short").tokens()
