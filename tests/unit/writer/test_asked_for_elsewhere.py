"""What other shards have asked for: for a while, of a bounded number, and not of who asks later."""

from __future__ import annotations

import pytest

from mqstore.service.auth import OwnToken
from mqstore.service.problems import OVERLOADED, REPEAT_AMBIGUOUS, Problem
from mqstore.service.settings import load
from mqstore.service.shards import Shards
from mqstore.writer.repeats import ASKED_MAX, GRACE_S, Repeats

RECEIVE_S = 5.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repeats(clock: Clock) -> Repeats:
    shards = Shards(load(), lambda entry: entry.writer_url)
    return Repeats(shards, OwnToken(dict), RECEIVE_S, clock)


def test_what_was_asked_for_is_refused_while_an_attempt_may_be_on_its_way(
    repeats: Repeats, clock: Clock
) -> None:
    repeats.note_asked("t", ["k"])
    repeats.require_not_asked("t", ["other"])
    repeats.require_not_asked("other", ["k"])
    clock.now = RECEIVE_S + GRACE_S
    with pytest.raises(Problem) as refused:
        repeats.require_not_asked("t", ["other", "k"])
    assert refused.value.kind is REPEAT_AMBIGUOUS
    clock.now += 0.001
    repeats.require_not_asked("t", ["k"])
    assert not repeats.asked


def test_who_asks_by_himself_afterwards_may_store_it(repeats: Repeats) -> None:
    before = repeats.turn()
    repeats.note_asked("t", ["k"])
    since = repeats.turn()
    repeats.require_not_asked("t", ["k"], since)
    with pytest.raises(Problem):
        repeats.require_not_asked("t", ["k"], before)
    repeats.note_stored("t", ["k"])
    repeats.require_not_asked("t", ["k"])


def test_no_more_is_kept_than_there_is_room_for(repeats: Repeats, clock: Clock) -> None:
    repeats.note_asked("t", [str(number) for number in range(ASKED_MAX)])
    with pytest.raises(Problem) as refused:
        repeats.note_asked("t", ["one more"])
    assert refused.value.kind is OVERLOADED
    clock.now = RECEIVE_S + GRACE_S + 1
    repeats.note_asked("t", ["one more"])
    assert len(repeats.asked) == 1
