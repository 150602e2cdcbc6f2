"""Begins and decisions of one turn of the event loop are one append."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage.errors import (
    FlushTimeout,
    StoreFailed,
    TransactionDecided,
    TransactionUnknown,
)
from mqstore.storage.transactions import (
    Begin,
    BeginResult,
    Decide,
    DecisionResult,
    NewRecord,
    State,
    Taken,
    TransactionEngine,
    TransactionSnapshot,
    Verdict,
)
from mqstore.writer.transactions import turns
from mqstore.writer.transactions.turns import TURN_MAX, Turns

STORY = TransactionSnapshot("k", State.COMMITTED, "g", 1, 0, 0, (), 0, "", ())


class Engine:
    """In a ``TransactionEngine``'s place: notes what each append takes."""

    def __init__(self) -> None:
        self.appends: list[list[str]] = []
        self.is_busy = False
        """Whether nothing is at hand."""
        self.error: Exception | None = None
        self.unknown: set[str] = set()
        self.decided: set[str] = set()
        """Keys of transactions that were decided otherwise."""
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def take_at_hand(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken | None:
        return None if self.is_busy else self._take("", begins, decisions)

    def take(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken:
        assert self.may_go_on.wait(60)
        return self._take("thread ", begins, decisions)

    def _take(self, where: str, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken:
        if self.error is not None:
            raise self.error
        keys = [each.key for each in begins] + [each.key for each in decisions]
        self.appends.append([where + key for key in keys])
        end = len(self.appends)
        return (
            [BeginResult(each.key, State.PENDING, end) for each in begins],
            [self._decide(each.key, end) for each in decisions],
        )

    def _decide(
        self, key: str, end: int
    ) -> DecisionResult | TransactionDecided | TransactionUnknown:
        if key in self.unknown:
            return TransactionUnknown(key)
        if key in self.decided:
            return TransactionDecided(key, "rollback", 0, "producer", end)
        return DecisionResult(STORY, repeated=False, end=end)


def begin(key: str) -> Begin:
    return Begin("g", [NewRecord("t", 0, b"x", {"UNIQ_KEY": key}, "10.0.0.1:1", 0)])


def commit(key: str) -> Decide:
    return Decide(key, Verdict.COMMIT, "")


def live(
    act: Callable[[Turns, Engine], Coroutine[Any, Any, None]],
    settle: turns.Settle | None = None,
    failures: list[BaseException] | None = None,
) -> None:
    async def run() -> None:
        engine, failed = Engine(), [] if failures is None else failures
        made = Turns(cast(TransactionEngine, engine), settle, failed.append)
        await act(made, engine)
        await made.stop()
        assert failures is not None or not failed

    asyncio.run(asyncio.wait_for(run(), 60))


def test_all_that_one_turn_of_the_loop_brings_is_one_append() -> None:
    async def act(made: Turns, engine: Engine) -> None:
        futures = made.begin(begin("a")), made.begin(begin("b")), made.decide(commit("c"))
        assert engine.appends == []
        await asyncio.gather(*futures)
        assert engine.appends == [["a", "b", "c"]]

    live(act)


def test_an_append_is_bounded() -> None:
    async def act(made: Turns, engine: Engine) -> None:
        await asyncio.gather(*(made.begin(begin(str(each))) for each in range(TURN_MAX + 1)))
        assert [len(each) for each in engine.appends] == [TURN_MAX, 1]

    live(act)


def test_a_decision_about_a_transaction_of_the_same_turn_comes_behind_its_begin() -> None:
    async def act(made: Turns, engine: Engine) -> None:
        futures = made.decide(commit("z")), made.begin(begin("a")), made.decide(commit("a"))
        await asyncio.gather(*futures)
        assert engine.appends == [["a", "z"], ["a"]]

    live(act)


def test_what_is_not_at_hand_is_taken_in_a_thread_and_all_that_comes_meanwhile_is_one_append() -> (
    None
):
    async def act(made: Turns, engine: Engine) -> None:
        engine.is_busy = True
        engine.may_go_on.clear()
        first = made.begin(begin("a"))
        await asyncio.sleep(0)
        engine.is_busy = False
        later = made.begin(begin("b")), made.decide(commit("c"))
        await asyncio.sleep(0)
        assert engine.appends == []
        engine.may_go_on.set()
        await asyncio.gather(first, *later)
        assert engine.appends == [["thread a"], ["b", "c"]]

    live(act)


def test_each_caller_gets_its_own_result() -> None:
    async def act(made: Turns, engine: Engine) -> None:
        engine.unknown = {"no"}
        known, unknown = made.decide(commit("yes")), made.decide(commit("no"))
        assert (await known).snapshot is STORY
        with pytest.raises(TransactionUnknown):
            await unknown

    live(act)


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_error_of_the_append_is_the_result_of_all(is_busy: bool) -> None:
    async def act(made: Turns, engine: Engine) -> None:
        engine.is_busy, engine.error = is_busy, StoreFailed("the disk")
        found = await asyncio.gather(
            made.begin(begin("a")), made.decide(commit("b")), return_exceptions=True
        )
        assert [each is engine.error for each in found] == [True, True]
        engine.error = None
        await made.begin(begin("c"))

    live(act)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_defect_of_the_engine_is_reported_and_no_caller_waits_for_ever(is_busy: bool) -> None:
    failures: list[BaseException] = []

    async def act(made: Turns, engine: Engine) -> None:
        engine.is_busy, engine.error = is_busy, ValueError("a defect")
        found = await asyncio.gather(
            *(made.begin(begin(str(each))) for each in range(TURN_MAX + 1)),
            return_exceptions=True,
        )
        assert {type(each) for each in found} == {StoreFailed}
        assert failures == [engine.error]

    live(act, failures=failures)


def test_an_answer_waits_until_the_log_is_settled_up_to_its_end() -> None:
    ends: list[int] = []
    both, settled = asyncio.Event(), asyncio.Event()

    async def settle(end: int) -> None:
        ends.append(end)
        if len(ends) == 2:
            both.set()
        await settled.wait()

    async def act(made: Turns, engine: Engine) -> None:
        first = made.begin(begin("a"))
        await asyncio.sleep(0)
        second = made.begin(begin("b"))
        await both.wait()
        assert (first.done(), second.done()) == (False, False)
        settled.set()
        assert ((await first).end, (await second).end) == (1, 2)
        assert ends == [1, 2]

    live(act, settle)


def test_a_refusal_for_another_decision_waits_until_that_decision_is_settled() -> None:
    settling, settled = asyncio.Event(), asyncio.Event()

    async def settle(end: int) -> None:
        assert end == 1
        settling.set()
        await settled.wait()

    async def act(made: Turns, engine: Engine) -> None:
        engine.decided.add("a")
        refused = made.decide(commit("a"))
        await settling.wait()
        assert not refused.done()
        settled.set()
        with pytest.raises((TransactionDecided, Problem)):
            await refused

    live(act, settle)


def test_an_answer_says_that_the_log_is_not_known_to_be_settled() -> None:
    async def settle(end: int) -> None:
        raise FlushTimeout("slow disk")

    async def act(made: Turns, engine: Engine) -> None:
        with pytest.raises(FlushTimeout):
            await made.begin(begin("a"))

    live(act, settle)


def test_the_end_waits_until_what_was_taken_is_settled() -> None:
    settled = asyncio.Event()

    async def settle(end: int) -> None:
        await settled.wait()

    async def act(made: Turns, engine: Engine) -> None:
        taken = made.begin(begin("a"))
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(made.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        settled.set()
        await stopping
        assert (await taken).key == "a"

    live(act, settle)


def test_no_more_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAITING_MAX", 2)

    async def act(made: Turns, engine: Engine) -> None:
        waiting = [made.begin(begin("a")), made.begin(begin("b"))]
        with pytest.raises(Problem) as refused:
            made.begin(begin("c"))
        assert refused.value.kind is problems.OVERLOADED
        await asyncio.gather(*waiting)
        await made.begin(begin("c"))

    live(act)


def test_at_the_end_what_waits_is_refused() -> None:
    async def act(made: Turns, engine: Engine) -> None:
        engine.is_busy = True
        engine.may_go_on.clear()
        under_way = made.begin(begin("a"))
        await asyncio.sleep(0)
        waits = made.begin(begin("b"))
        stopping = asyncio.ensure_future(made.stop())
        await asyncio.sleep(0)
        engine.may_go_on.set()
        await stopping
        assert (await under_way).key == "a"
        for refused in (waits, made):
            with pytest.raises(Problem) as caught:
                await (refused.begin(begin("c")) if isinstance(refused, Turns) else refused)
            assert caught.value.kind is problems.SHUTTING_DOWN

    live(act)
