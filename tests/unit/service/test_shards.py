"""Requests to all shards: the reply does not depend on the shard that a client calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.service.settings import load
from mqstore.service.shards import ShardReplies, Shards
from mqstore.storage.errors import StoreFailed, TopicUnknown

NOWHERE = "http://127.0.0.1:1"
SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}


def _entry(number: int) -> dict[str, Any]:
    host = f"10.9.0.{number}:10911"
    return {"shard": number, "storeHost": host, "writerUrl": NOWHERE, "queryUrl": NOWHERE}


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Two shards, of which the other one is away."""
    path = tmp_path / "shards.json"
    path.write_text(json.dumps({"shards": [_entry(0), _entry(1)]}))
    return path


def _fan_out(listed: Path, refusal: Exception, *, as_change: bool = False) -> ShardReplies:
    """Result of a request to shard 0, which refuses its part."""

    async def own() -> bytes:
        raise refusal

    async def fan_out() -> ShardReplies:
        shards = Shards(load(shards_file=listed), lambda entry: entry.query_url)
        request = Request({**SCOPE, "query_string": b""})
        try:
            if as_change:
                return await shards.apply_here_first(request, own, lambda: None)
            async with shards.fan_out(request, own) as spread:
                return spread
        finally:
            await shards.stop()

    return asyncio.run(fan_out())


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        (Problem(problems.MESSAGE_LOST, "it is gone"), "it answered 410: it is gone"),
        (Problem(problems.MESSAGE_DAMAGED, "at 7"), "it answered 500: at 7"),
        (Problem(problems.DISK_REFUSES, "no disk"), "it answered 503: no disk"),
        (StoreFailed("no sync"), "it answered 503: no sync"),
    ],
)
def test_a_failure_of_this_shard_is_missing_as_that_of_another(
    listed: Path, refusal: Exception, why: str
) -> None:
    spread = _fan_out(listed, refusal)
    assert spread.missing[0] == why
    assert sorted(spread.missing) == [0, 1]
    with pytest.raises(Problem) as caught:
        _fan_out(listed, refusal, as_change=True)
    assert caught.value.detail == why.partition(": ")[2]


def test_what_this_shard_does_not_have_others_may_have(listed: Path) -> None:
    for as_change in (False, True):
        spread = _fan_out(listed, TopicUnknown("no topic t"), as_change=as_change)
        assert (spread.refusals[0].detail, sorted(spread.missing)) == ("no topic t", [1])


@pytest.mark.parametrize("kind", [problems.BAD_CURSOR, problems.BODY_INVALID])
def test_what_every_shard_would_refuse_is_refused(listed: Path, kind: problems.ProblemType) -> None:
    with pytest.raises(Problem) as caught:
        _fan_out(listed, Problem(kind, "no"))
    assert caught.value.kind is kind
