"""Merged results of many look-ups: whatever the limits, each id has its result once, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mqstore.query import bulk_merging
from mqstore.service.problems import MESSAGE_UNKNOWN, Problem
from mqstore.service.shards import ShardReplies
from mqstore.wire.examples.lookups import MESSAGE

SIZE: Final = 100
Stored = dict[str, dict[int, int]]
"""By unique key, the store time of its message on each shard that has one."""


def page(shard: int, ids: Sequence[str], stored: Stored, room: int) -> bytes:
    """The reply of one shard with room for some messages."""
    results: list[dict[str, Any]] = []
    for each in ids:
        time = stored.get(each, {}).get(shard)
        if time is None:
            problem = {"type": MESSAGE_UNKNOWN.urn, "title": "", "status": 404, "detail": ""}
            results.append({"id": each, "problem": {**problem, "complete": True}})
        elif room == 0:
            break
        else:
            room -= 1
            head = {"storeTimestamp": time, "shard": shard, "size": SIZE}
            results.append({"id": each, "message": MESSAGE | head})
    return msgspec.json.encode({"results": results, "remaining": ids[len(results) :]})


def merged(
    ids: Sequence[str],
    parts: dict[int, list[int]],
    stored: Stored,
    room: int,
    missing: Sequence[int] = (),
) -> dict[str, Any]:
    spread = ShardReplies()
    for shard, numbers in parts.items():
        if shard in missing:
            spread.missing[shard] = "it is down"
        else:
            spread.answers[shard] = page(shard, [ids[n] for n in numbers], stored, room)
    found: dict[str, Any] = msgspec.json.decode(
        bulk_merging.messages(spread, ids, parts, room * SIZE)
    )
    return found


@given(
    stored=st.dictionaries(
        st.sampled_from("abcdef"), st.dictionaries(st.integers(0, 2), st.integers(1, 3)), max_size=6
    ),
    ids=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=12),
    room=st.integers(1, 4),
)
def test_repeated_requests_have_the_newest_message_of_each_key(
    stored: Stored, ids: list[str], room: int
) -> None:
    results: list[dict[str, Any]] = []
    left = ids
    while left:
        parts = {shard: list(range(len(left))) for shard in range(3)}
        found = merged(left, parts, stored, room)
        assert found["results"]
        assert sum("message" in each for each in found["results"]) <= room
        results += found["results"]
        left = found["remaining"]
    assert [each["id"] for each in results] == ids
    for each in results:
        times = stored.get(each["id"], {})
        if times:
            newest = max((time, shard) for shard, time in times.items())
            message = each["message"]
            assert (message["storeTimestamp"], message["shard"]) == newest
        else:
            assert (each["problem"]["status"], each["problem"]["complete"]) == (404, True)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 2))
def test_ids_of_a_shard_that_is_missing_say_so(holders: list[int], room: int, lost: int) -> None:
    ids = [f"{number}" for number in range(len(holders))]
    stored = {each: {shard: 1} for each, shard in zip(ids, holders, strict=True)}
    parts: dict[int, list[int]] = {}
    for number, shard in enumerate(holders):
        parts.setdefault(shard, []).append(number)
    found = merged(ids, parts, stored, room, missing=[lost])
    assert [each["id"] for each in found["results"]] + found["remaining"] == ids
    for each, shard in zip(found["results"], holders, strict=False):
        if shard == lost:
            assert each["problem"]["type"].endswith("shard-unreachable")
            assert each["problem"]["detail"].endswith("it is down")
        else:
            assert each["message"]["shard"] == shard


def test_a_shard_of_an_earlier_release_counts_as_missing() -> None:
    spread = ShardReplies({0: page(0, ["a"], {}, 1), 1: b"[]"})
    spread.refusals[2] = Problem(MESSAGE_UNKNOWN, "no such path")
    parts = {0: [0], 1: [0], 2: [0]}
    found = msgspec.json.decode(bulk_merging.messages(spread, ["a"], parts, SIZE))
    assert found["results"][0]["problem"]["complete"] is False
    assert found["shards"]["missing"] == [1, 2]


def test_damage_comes_before_the_absence_on_other_shards() -> None:
    problem = {"type": "urn:mqstore:problem:message-damaged", "title": "", "status": 500}
    damaged = {"id": "a", "problem": {**problem, "detail": ""}}
    reply = msgspec.json.encode({"results": [damaged], "remaining": []})
    spread = ShardReplies({0: page(0, ["a"], {}, 1), 1: reply})
    found = msgspec.json.decode(bulk_merging.messages(spread, ["a"], {0: [0], 1: [0]}, SIZE))
    assert found["results"][0]["problem"]["status"] == 500
