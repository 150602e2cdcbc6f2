"""The list of shards: what is one, and how a changed one is taken up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.membership import Membership, read
from mqstore.storage.codec.hosts import parse_host


def entry(number: int, **changed: Any) -> dict[str, Any]:
    host = f"10.9.0.{number}"
    urls = {"writerUrl": f"http://{host}:8081", "queryUrl": f"http://{host}:8082"}
    return {"shard": number, "storeHost": f"{host}:10911"} | urls | changed


def put(path: Path, *entries: dict[str, Any]) -> None:
    staged = path.with_suffix(".new")
    staged.write_text(json.dumps({"shards": entries}))
    staged.rename(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shards.json"


def test_without_a_file_a_shard_is_alone() -> None:
    members = Membership(None, 3)
    assert members.alone and members.numbers == [3]
    assert not members.reload_if_changed()


def test_the_others_are_all_but_ones_own(path: Path) -> None:
    put(path, entry(1), entry(0), entry(2))
    members = Membership(path, 1)
    assert [each.shard for each in members.others] == [0, 2]
    assert not members.alone
    found = members.of_host(parse_host("10.9.0.2:10911"))
    assert found is not None and found.query_url == "http://10.9.0.2:8082"
    assert members.of_host(parse_host("10.9.0.2:10912")) is None


def test_a_changed_list_counts_without_a_restart(path: Path) -> None:
    put(path, entry(0))
    members = Membership(path, 0)
    assert members.numbers == [0]
    put(path, entry(0), entry(1))
    assert members.reload_if_changed()
    assert members.numbers == [0, 1] and not members.alone
    assert not members.reload_if_changed()


@pytest.mark.parametrize("text", ["", "{}", '{"shards": []}', '{"shards": 1}', "\0"])
def test_what_is_no_list_leaves_the_one_that_was_known(path: Path, text: str) -> None:
    put(path, entry(0), entry(1))
    members = Membership(path, 0)
    path.write_text(text)
    os.utime(path, ns=(1, 1))
    assert not members.reload_if_changed()
    assert members.numbers == [0, 1]
    path.unlink()
    assert not members.reload_if_changed()
    assert members.numbers == [0, 1]


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([entry(0), entry(0, storeHost="1.2.3.4:1")], "a number twice"),
        ([entry(0), entry(1, storeHost="10.9.0.0:10911")], "a storeHost twice"),
        ([entry(0, storeHost="here")], "shards.0.storeHost"),
        ([entry(0, writerUrl="ftp://x")], "shards.0.writerUrl"),
        ([entry(0, queryUrl="http://x/y?z")], "shards.0.queryUrl"),
        ([entry(0, shard=-1)], "shards.0.shard"),
        ([entry(0, more=1)], "shards.0.more"),
    ],
)
def test_a_wrong_list_is_refused_with_the_place(
    path: Path, entries: list[dict[str, Any]], why: str
) -> None:
    put(path, *entries)
    with pytest.raises(ConfigurationError, match=why):
        read(path)


def test_a_list_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Membership(path, 0)
