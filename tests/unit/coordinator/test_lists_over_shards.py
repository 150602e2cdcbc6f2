"""The list of transactions over several shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from mqstore.service import problems
from mqstore.service.transaction_lists import query_of
from mqstore.storage.codec import cursors
from tests.unit.coordinator.fake_shards import (
    Answer,
    Bench,
    FakeShard,
    Received,
    Replying,
    fakes,
    problem,
    run,
    view,
)

PATH = "/v1/transactions"


def having(shard: int, *born_ms: int) -> Replying:
    """A shard with transactions of these ages, which pages as store-writer does."""

    def reply(received: Received) -> Answer:
        wanted = {k: v[0] for k, v in parse_qs(urlsplit(received.target).query).items()}
        limit = int(wanted.get("limit", 100))
        after = ""
        if "cursor" in wanted:
            after = cursors.decode_name(wanted["cursor"], query_of(None, wanted.get("group")))
        every = [view(f"{shard}-k{at}", at) for at in sorted(born_ms)]
        left = [each for each in every if place(each) > after]
        shown = left[:limit]
        cursor = None
        if len(left) > limit:
            query = query_of(None, wanted.get("group"))
            cursor = cursors.encode_name(place(shown[-1]), query)
        found = {"transactions": shown, "next": cursor, "complete": True, "missing": []}
        return Answer(200, found)

    return reply


def place(shown: dict[str, Any]) -> str:
    shard, _, key = shown["transactionId"].partition("-")
    return f"{shown['bornTimestamp']:015d}.{int(shard):05d}.{key}"


def get(shards: list[FakeShard], tmp_path: Path, **params: Any) -> httpx.Response:
    async def act(bench: Bench) -> httpx.Response:
        return await bench.http.get(PATH, params=params)

    return run(shards, tmp_path, act)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 100])
def test_pages_hold_each_transaction_once_and_by_age(limit: int, tmp_path: Path) -> None:
    found: list[str] = []
    cursor: dict[str, str] = {}
    with fakes(having(0, 1, 4, 5, 6), having(1, 2, 3, 6), having(2)) as shards:
        for _ in range(10):
            page = get(shards, tmp_path, limit=limit, **cursor).json()
            assert (page["complete"], page["missing"]) == (True, [])
            assert len(page["transactions"]) <= limit
            found += [each["transactionId"] for each in page["transactions"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
    assert found == ["0-k1", "1-k2", "1-k3", "0-k4", "0-k5", "0-k6", "1-k6"]


@pytest.mark.parametrize(
    "reply", [None, lambda _: None, lambda _: problem(problems.NOT_FOUND), lambda _: Answer(500)]
)
def test_a_shard_without_an_answer_is_missing(reply: Replying | None, tmp_path: Path) -> None:
    with fakes(having(0, 1), reply) as shards:
        page = get(shards, tmp_path).json()
    assert [each["transactionId"] for each in page["transactions"]] == ["0-k1"]
    assert (page["complete"], page["missing"]) == (False, [1])


def test_where_no_shard_answers_there_is_no_list(tmp_path: Path) -> None:
    with fakes(None, lambda _: problem(problems.STORE_NOT_READY)) as shards:
        answer = get(shards, tmp_path)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (
        *(503, "coordinator-not-ready"),
    )


def test_parameters_go_on_to_each_shard_as_they_came(tmp_path: Path) -> None:
    with fakes(having(0), having(1)) as shards:
        get(shards, tmp_path, state="committed", group="a b", olderThan=7, limit=3)
        for each in shards:
            (seen,) = each.seen
            assert parse_qs(urlsplit(seen.target).query) == {
                "state": ["committed"],
                "group": ["a b"],
                "olderThan": ["7"],
                "limit": ["3"],
            }


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ({"cursor": "x"}, "bad-cursor"),
        ({"cursor": ""}, "bad-cursor"),
        ({"limit": 0}, "bad-parameter"),
        ({"state": "gone"}, "bad-parameter"),
        ({"shard": 1}, "bad-parameter"),
    ],
)
def test_wrong_parameters_are_rejected_here(
    params: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    with fakes(having(0, 1, 2)) as shards:
        answer = get(shards, tmp_path, **params)
        assert not shards[0].seen
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (400, kind)


def test_a_cursor_of_another_query_is_rejected(tmp_path: Path) -> None:
    with fakes(having(0, 1, 2)) as shards:
        cursor = get(shards, tmp_path, limit=1).json()["next"]
        answer = get(shards, tmp_path, cursor=cursor, group="g")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (400, "bad-cursor")
