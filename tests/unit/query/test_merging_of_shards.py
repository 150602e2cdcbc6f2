"""Merged pages of several shards: whatever the limits, each message comes once and in order."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.query import merging
from mqstore.query.merging import Paging
from mqstore.service import shard_cursor, shards
from mqstore.service.problems import MESSAGE_UNKNOWN, SHARD_UNREACHABLE, Problem
from mqstore.service.shard_cursor import ShardPosition
from mqstore.service.shards import ShardReplies
from mqstore.storage.errors import CursorError
from mqstore.wire.examples.lags import LAG, LAGS
from mqstore.wire.examples.traces import TRACE, TRACES

QUERY = "of these"
SIZE = 100


@dataclass(frozen=True)
class Found:
    """One record: a message, or one that cannot be read."""

    shard: int
    offset: int
    time: int
    damaged: bool = False


@dataclass
class Store:
    """Pages of one shard, in its own order; a cursor is the next offset in decimal."""

    records: list[Found]
    newest_first: bool

    def page(self, limit: int, cursor: str | None) -> bytes:
        place = None if cursor is None else int(cursor)
        ordered = sorted(self.records, key=lambda each: each.offset, reverse=self.newest_first)
        left = [each for each in ordered if place is None or self._is_left(each, place)]
        page, rest = left[:limit], left[limit:]
        following = None
        if rest:
            following = str(rest[0].offset + 1 if self.newest_first else rest[0].offset)
        return msgspec.json.encode(
            {
                "messages": [_message(each) for each in page if not each.damaged],
                "unreadable": [_unreadable(each) for each in page if each.damaged],
                "next": following,
                "complete": following is None,
                "scanned": {"from": 0, "to": 9, "candidates": 1, "minOffset": 0, "maxOffset": 9},
            }
        )

    def _is_left(self, each: Found, place: int) -> bool:
        return each.offset < place if self.newest_first else each.offset >= place


def _message(each: Found) -> dict[str, Any]:
    place = {"physicalOffset": each.offset, "shard": each.shard}
    return place | {"size": SIZE, "storeTimestamp": each.time, "body": "\u00e4"}


def _unreadable(each: Found) -> dict[str, Any]:
    return {"physicalOffset": each.offset, "type": "t", "detail": "d"}


@st.composite
def stores(draw: st.DrawFn) -> dict[int, list[Found]]:
    """Some shards, each with times that grow with its offsets."""
    found: dict[int, list[Found]] = {}
    for shard in range(draw(st.integers(1, 4))):
        steps = draw(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8))
        time, records = 0, []
        for place, (step, damaged) in enumerate(steps):
            time += step
            records.append(Found(shard, place * SIZE, time, damaged and place % 3 == 0))
        found[shard] = records
    return found


@given(stores(), st.integers(1, 6), st.integers(1, 10), st.booleans(), st.data())
def test_each_message_comes_once_and_in_order(
    found: dict[int, list[Found]],
    limit: int,
    bytes_in_sizes: int,
    newest: bool,
    data: st.DataObject,
) -> None:
    paging = Paging(
        *(0, 9, newest, limit, bytes_in_sizes * SIZE),
        cursor_at=lambda place, _: str(place),
        cursor_of=partial(shard_cursor.encode, query=QUERY),
    )
    shards = {number: Store(records, newest) for number, records in found.items()}
    cursor: str | None = None
    seen: list[tuple[int, int, int]] = []
    damaged: list[tuple[int, int]] = []
    for _ in range(200):
        begun = shard_cursor.decode(cursor, QUERY)
        spread = ShardReplies()
        for number, store in shards.items():
            part = begun.get(number, ShardPosition())
            if not part.is_finished:  # a shard may return less than was requested
                own_limit = data.draw(st.integers(1, limit))
                spread.answers[number] = store.page(own_limit, part.cursor)
        page = msgspec.json.decode(merging.messages(spread, begun, paging))
        assert len(page["messages"]) <= limit
        seen += [(m["storeTimestamp"], m["shard"], m["physicalOffset"]) for m in page["messages"]]
        damaged += [(each["shard"], each["physicalOffset"]) for each in page["unreadable"]]
        cursor = page["next"]
        assert page["complete"] == (cursor is None)
        if cursor is None:
            break
    assert cursor is None
    every = [each for records in found.values() for each in records]
    whole = [(each.time, each.shard, each.offset) for each in every if not each.damaged]
    assert sorted(seen) == sorted(whole)
    times = [time for time, _, _ in seen]
    assert times == sorted(times, reverse=newest)
    assert sorted(damaged) == sorted((each.shard, each.offset) for each in every if each.damaged)


def test_a_missing_shard_makes_it_incomplete_and_goes_on_where_it_was() -> None:
    paging = Paging(
        *(0, 9, True, 10, 1 << 20),
        cursor_at=lambda place, _: str(place),
        cursor_of=partial(shard_cursor.encode, query=QUERY),
    )
    one = Store([Found(0, n * SIZE, n) for n in range(3)], newest_first=True)
    begun = {1: ShardPosition("500")}
    spread = ShardReplies(answers={0: one.page(2, None)}, missing={1: "no answer"})
    page = msgspec.json.decode(merging.messages(spread, begun, paging))
    assert page["shards"] == {"asked": [0, 1], "missing": [1], "why": {"1": "no answer"}}
    assert not page["complete"]
    parts = shard_cursor.decode(page["next"], QUERY)
    assert parts == {0: ShardPosition("1"), 1: ShardPosition("500")}
    last = ShardReplies(answers={0: one.page(2, "100")}, missing={1: "no answer"})
    page = msgspec.json.decode(merging.messages(last, parts, paging))
    assert (page["next"], page["complete"]) == (None, False)


def test_paging_ends_where_a_shard_was_removed() -> None:
    paging = Paging(
        *(0, 9, True, 10, 1 << 20),
        cursor_at=lambda place, _: str(place),
        cursor_of=partial(shard_cursor.encode, query=QUERY),
    )
    one = Store([Found(0, 0, 1)], newest_first=True)
    begun = {0: ShardPosition("1"), 1: ShardPosition("500")}
    page = msgspec.json.decode(
        merging.messages(ShardReplies(answers={0: one.page(2, "1")}), begun, paging)
    )
    assert (page["next"], page["complete"]) == (None, False)
    assert page["shards"]["missing"] == [1]


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"topic":"t","queues":[{"queueId":0}]}'])
def test_a_shard_whose_answer_cannot_be_decoded_is_missing(answer: bytes) -> None:
    whole = b'{"topic":"t","queues":[]}'
    merged = msgspec.json.decode(merging.queues(ShardReplies(answers={0: whole, 1: answer})))
    assert merged["shards"]["missing"] == [1]
    assert "cannot be read" in merged["shards"]["why"]["1"]
    with pytest.raises(Problem) as refused:
        merging.queues(ShardReplies(answers={1: answer}))
    assert refused.value.kind is SHARD_UNREACHABLE


def test_a_shard_of_an_earlier_release_is_named_as_missing_in_lags() -> None:
    earlier = {name: value for name, value in LAG.items() if name not in ("states", "deadLetters")}
    answers = {0: msgspec.json.encode(LAG), 1: msgspec.json.encode(earlier)}
    of_one = msgspec.json.decode(merging.lag(ShardReplies(answers=answers)))
    sums = [{n: each[n] for n in each if n != "states"} for each in LAGS["groups"]]
    answers = {0: msgspec.json.encode(LAGS), 1: msgspec.json.encode(LAGS | {"groups": sums})}
    of_all = msgspec.json.decode(merging.lags(ShardReplies(answers=answers), 10, str))
    for merged in (of_one, of_all):
        assert (merged["shards"]["asked"], merged["shards"]["missing"]) == ([0, 1], [1])
        assert "may run another release" in merged["shards"]["why"]["1"]
    assert (of_one["lag"], of_all["groups"][0]["lag"]) == (LAG["lag"], LAG["lag"])


def test_no_answer_at_all_raises_the_refusal_of_the_shards() -> None:
    spread = ShardReplies(
        refusals={0: Problem(MESSAGE_UNKNOWN, "no such message")}, missing={1: "gone"}
    )
    with pytest.raises(Problem) as refused:
        merging.queues(spread)
    assert refused.value.kind is MESSAGE_UNKNOWN
    assert refused.value.extra["complete"] is False
    assert refused.value.extra["shards"].missing == (1,)


@pytest.mark.parametrize("complete", [True, False])
def test_a_shard_that_could_not_look_at_all_it_has_leaves_a_trace_incomplete(
    *, complete: bool
) -> None:
    """As one without an index that is whole answers, when it has not found the key."""
    refusal = Problem(MESSAGE_UNKNOWN, "no such key", extra={"complete": complete})
    spread = ShardReplies(answers={0: msgspec.json.encode(TRACE)})
    shards._sort_in(spread, 1, 404, refusal.body("id"))
    assert merging.trace(spread).trace.complete == complete
    page = msgspec.json.decode(
        _traces(ShardReplies({0: msgspec.json.encode(TRACES)}, spread.refusals))
    )
    assert (page["complete"], page["traces"][0]["complete"]) == (complete, complete)
    with pytest.raises(Problem) as refused:
        merging.trace(ShardReplies(refusals=spread.refusals))
    assert (refused.value.kind, refused.value.extra["complete"]) == (MESSAGE_UNKNOWN, complete)


def _traces(spread: ShardReplies) -> bytes:
    return merging.traces(spread, {}, partial(shard_cursor.encode, query=QUERY))


@given(
    st.dictionaries(
        st.integers(0, 2**31),
        st.builds(ShardPosition, st.none() | st.text(max_size=30), st.booleans(), st.booleans()),
        max_size=20,
    ),
    st.text(max_size=20),
)
def test_a_cursor_comes_back_as_it_was(parts: dict[int, ShardPosition], query: str) -> None:
    assert shard_cursor.decode(shard_cursor.encode(parts, query), query) == parts


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda b: base64.b64encode(b).decode()))
def test_any_other_text_is_rejected(text: str) -> None:
    with pytest.raises(CursorError):
        shard_cursor.decode(text, QUERY)


def test_a_cursor_belongs_to_one_query() -> None:
    text = shard_cursor.encode({0: ShardPosition("a"), 1: ShardPosition(is_finished=True)}, QUERY)
    with pytest.raises(CursorError, match="another query"):
        shard_cursor.decode(text, "others")
