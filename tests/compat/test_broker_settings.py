"""Settings files as a broker reads them: names, syntax and values."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings, load
from mqstore.storage import StoreConfig, broker_settings
from mqstore.storage.java_properties import parse
from mqstore.storage.setting_names import fields_by_name, fold, is_setting
from tests.compat.referee import Referee

pytestmark = pytest.mark.referee

_PARTS = (
    *(b"a", b"b", b"=", b":", b" ", b"\t", b"\f", b"\\", b"\\", b"\n", b"\r", b"#", b"!", b"\0"),
    *(b"\\u0041", b"\\u", b"\xe9", b"\x85", b"\x0b", b"\x1c", b"\\t", b"\\q", b"\\ud83d\\ude00"),
)
_VALUES = (
    *("1", "48", "48 ", " 48", "+48", "-1", "4_8", "48.0", "4e1", "0x30", "48L", "", "9" * 10),
    *("true", "TRUE", "true ", "yes", "on", "1", "false", "False", "no", "0", "t"),
    *("/data", "/data ", "\\ /data", "SYNC_FLUSH", "sync_flush", "SYNC_FLUSH ", "04", "04 ", "1s"),
)


@pytest.mark.slow
def test_every_setting_of_a_broker_is_known_by_its_name(referee: Referee) -> None:
    found = {name for name, _ in referee.properties()}
    assert {"brokerId", "brokerRole", "namesrvAddr", "listenPort", "deleteWhen"} <= found
    assert found - broker_settings.NAMES == set()


@pytest.mark.slow
def test_every_setting_that_we_read_has_the_type_that_a_broker_has(referee: Referee) -> None:
    types = {"boolean", "int", "long", "String"}
    for name, kind in referee.properties():
        if name not in broker_settings._READ_BY_US or kind not in types:
            continue
        ours = "String"
        if name in broker_settings._BOOLEANS:
            ours = "boolean"
        elif name in broker_settings._INTEGERS:
            ours = "int"
        elif name in broker_settings._LONGS:
            ours = "long"
        assert (name, ours) == (name, kind)


@pytest.mark.slow
def test_a_file_has_the_properties_that_java_reads(referee: Referee) -> None:
    """The empty name, which is no setting, is left out; half of a character is printed as ?."""
    random = Random(37)
    files = [b"".join(random.choices(_PARTS, k=random.randint(0, 14))) for _ in range(5_000)]
    for content, theirs in zip(files, referee.parse(files), strict=True):
        try:
            ours = {_printed(each.name): _printed(each.value) for each in parse(content)}
        except ValueError:
            assert theirs is None, content
            continue
        assert theirs is not None, content
        assert ours | {"": ""} == theirs | {"": ""}, content


@pytest.mark.slow
def test_a_file_that_a_broker_saved_is_a_settings_file(
    referee: Referee, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broker saves all that it has when a setting is changed while it runs."""
    [saved] = referee.configure(
        [b"listenPort=10911\nfileReservedTime=480\nflushDiskType=SYNC_FLUSH"]
    )
    text = "".join(f"{name}={value}\n" for name, value in saved.items())
    path = tmp_path / "broker.conf"
    path.write_text(text)
    monkeypatch.setenv("MQSTORE_CONFIG_FILE", str(path))
    settings = load()
    assert settings.store_config.file_reserved_time == 480
    assert settings.store_config.flush_disk_type == "SYNC_FLUSH"


@pytest.mark.slow
def test_a_value_is_read_as_a_broker_reads_it_or_refused(
    referee: Referee, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = sorted({name for name, _ in referee.properties()} & broker_settings._READ_BY_US)
    lines = [f"{name}={value}\n" for name in names for value in _VALUES]
    path = tmp_path / "broker.conf"
    monkeypatch.setenv("MQSTORE_CONFIG_FILE", str(path))
    accepted = 0
    for line, theirs in zip(lines, referee.configure([x.encode() for x in lines]), strict=True):
        path.write_text(line)
        try:
            settings = load()
        except ConfigurationError:
            continue
        accepted += 1
        name = line.partition("=")[0]
        if is_setting(name):
            assert _value(settings, name) == theirs.get(name), line
    assert accepted > len(names)


def _printed(text: str) -> str:
    return text.encode(errors="replace").decode()


def _value(settings: Settings, name: str) -> str:
    for model in (settings, settings.store_config):
        field = fields_by_name(type(model).model_fields).get(fold(name))
        if field is not None:
            value = getattr(model, field)
            return str(value).lower() if isinstance(value, bool) else str(value)
    raise AssertionError(f"{StoreConfig} and {Settings} have no {name}")
