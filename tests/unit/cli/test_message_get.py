"""``mqstore message get`` prints the result of each id, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner, Result

from mqstore.cli import get
from mqstore.cli.main import app
from mqstore.client import Client, MessagesById
from mqstore.wire.examples.lookups import BY_IDS, MESSAGE

PROBLEM = BY_IDS["results"][1]["problem"]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of each request; a reply has room for two. An id that begins with x is unknown."""
    made: list[list[str]] = []

    def find(_: Client, ids: Sequence[str], *, topic: str | None) -> MessagesById:
        made.append(list(ids))
        results = [
            {"id": each} | ({"problem": PROBLEM} if each[0] == "x" else {"message": MESSAGE})
            for each in ids[:2]
        ]
        return MessagesById.model_validate({"results": results, "remaining": ids[2:]})

    monkeypatch.setattr(Client, "messages_by_id", find)
    monkeypatch.setattr(get, "BATCH", 3)
    return made


def run(*ids: str, stdin: str = "") -> Result:
    env = {"MQSTORE_OUTPUT": "json"}
    return CliRunner().invoke(app, ["message", "get", *ids], input=stdin, env=env)


def test_each_id_has_a_line_in_order(requests: list[list[str]]) -> None:
    found = run("a", "b", "c", "d")
    assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == ["a", "b", "c", "d"]
    assert requests == [["a", "b", "c"], ["c"], ["d"]]
    assert found.exit_code == 0


def test_ids_are_read_from_stdin(requests: list[list[str]]) -> None:
    found = run("-", stdin="a\n\n  b \nc\nd\n")
    assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == ["a", "b", "c", "d"]
    assert requests[0] == ["a", "b", "c"]


@pytest.mark.parametrize("form", ["json", "table"])
def test_an_id_without_a_message_is_named(requests: list[list[str]], form: str) -> None:
    found = run("a", "x", "-o", form)
    assert found.exit_code == 1
    said = found.stdout if form == "json" else found.stderr
    assert "x" in said and PROBLEM["detail"] in said
    lines = found.stdout.splitlines()
    assert "hello" in found.stdout
    assert lines[0].startswith('{"id":"a"') or lines[1].split()[:2] == ["a", "orders"]
