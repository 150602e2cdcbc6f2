"""A command whose result is incomplete prints the reason and exits with 1."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from mqstore.cli import trace
from mqstore.cli.main import app
from mqstore.client import Client, GroupLag, GroupLags, Traces
from mqstore.wire.examples.lags import LAG, LAGS
from mqstore.wire.examples.traces import TRACES

SHARDS = {"asked": [0, 1], "missing": [1], "why": {"1": "no answer within 3 s"}}


def run(monkeypatch: pytest.MonkeyPatch, method: str, answer: BaseModel, *command: str) -> Result:
    """The result of a command whose client's ``method`` returns ``answer``."""
    monkeypatch.setattr(Client, method, lambda *_, **__: answer)
    return CliRunner().invoke(app, command)


def lags(**more: Any) -> tuple[GroupLags, GroupLag]:
    whole = {**LAGS, "shard": None, "next": None, **more}
    one = {**LAG, "shard": None, **more}
    return GroupLags.model_validate(whole), GroupLag.model_validate(one)


@pytest.mark.parametrize("form", ["table", "json"])
def test_lags_name_the_shards_that_are_missing(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    for whole, one in (lags(shards=SHARDS), lags(shards=SHARDS | {"missing": [], "why": {}})):
        assert whole.shards is not None
        results = [
            run(monkeypatch, "lags", whole, "group", "lag", "-o", form),
            run(monkeypatch, "lag", one, "lag", "g", "-o", form),
        ]
        for each in results:
            assert each.exit_code == len(whole.shards.missing), each.output
            assert ("no answer within 3 s" in each.stdout) == bool(whole.shards.missing)


def test_a_queue_is_shown_with_its_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    _, one = lags()
    queue = one.topics[0].queues[0]
    for shard, shown in ((7, "7"), (None, "-")):
        queues = (queue.model_copy(update={"shard": shard, "queue_id": 3}),)
        topics = (one.topics[0].model_copy(update={"queues": queues}),)
        result = run(
            monkeypatch, "lag", one.model_copy(update={"topics": topics}), "lag", "g", "-o", "table"
        )
        assert result.stdout.splitlines()[2].split()[1:3] == [shown, "3"]


def test_more_messages_with_a_key_than_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "PAGES_MAX", 2)
    for cursor, code in ((None, 0), ("there is more", 1)):
        page = Traces.model_validate({**TRACES, "next": cursor})
        result = run(monkeypatch, "traces", page, "message", "trace", "k", "--topic", "orders")
        assert result.exit_code == code
        assert ("there are more than these 1 messages" in result.stderr) == bool(cursor)
