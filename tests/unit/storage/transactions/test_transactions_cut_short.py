"""Transactions after a killed process, a power cut or a broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from msgspec import structs

from mqstore.storage.errors import (
    DiskFull,
    TransactionDecided,
    TransactionError,
    TransactionsNotLoaded,
)
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, StoreFormat
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.transactions import (
    BeginResult,
    NewRecord,
    State,
    TransactionEngine,
    Verdict,
    halves,
)
from mqstore.storage.transactions.halves import Decision
from tests.unit.storage.transactions.engine_bench import QUEUE_ID, TOPIC, Bench

HOST = "10.0.0.1:99"
MANY = 260


@pytest.fixture(params=list(StoreFormat))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def committed(bench: Bench, key: str, half_offset: int) -> NewRecord:
    """A real message as a broker stores it before its op record."""
    return structs.replace(bench.message(key), sys_flag=8, prepared_transaction_offset=half_offset)


def commit_without_op(bench: Bench, key: str) -> None:
    half = next(each for each in bench.records(HALF_TOPIC) if each.uniq_key == key)
    bench.append([committed(bench, key, half.physical_offset)])


def op_of_lost_halves(bench: Bench, *offsets: int) -> None:
    """The state after a power cut: the op record survived, the halves before it did not."""
    decision = Decision(Verdict.COMMIT, 1, "producer")
    bench.append(halves.ops_of(offsets, "lost", decision, HOST, "0" * 32, bench.world.format))


def test_an_op_record_decides_no_half_that_comes_after_it(bench: Bench) -> None:
    op_of_lost_halves(bench, 0)
    bench.append(bench.request("a").halves(bench.world.format))
    bench.restart()
    assert bench.keys() == ["a"]
    assert bench.bodies() == []


def test_no_half_gets_a_queue_offset_that_an_op_record_names(bench: Bench) -> None:
    bench.begin("a")
    op_of_lost_halves(bench, 1, 2)
    bench.restart()
    bench.begin("b")
    (half,) = bench.engine.find("b").halves
    assert half.queue_offset == 3
    bench.restart()
    assert bench.keys() == ["a", "b"]
    bench.commit("b")
    assert bench.bodies() == [b"b"]


def test_fillers_in_place_of_lost_halves_are_named_by_op_records(bench: Bench) -> None:
    """A broker would check the others, whatever they are."""
    op_of_lost_halves(bench, 250)
    bench.restart()
    fillers, ops = bench.records(HALF_TOPIC), bench.records(OP_TOPIC)
    named = {offset for op in ops for offset in halves.offsets_in(op.body)}
    assert [each.queue_offset for each in fillers] == sorted(named) == list(range(251))
    assert all(each.body for each in fillers)


def test_a_commit_that_was_cut_short_is_completed(bench: Bench) -> None:
    bench.begin("a", "b", "c")
    commit_without_op(bench, "a")
    bench.restart()
    assert sorted(bench.bodies()) == [b"a", b"b", b"c"]
    assert bench.keys() == []
    assert bench.engine.find("a").state is State.COMMITTED


def test_a_commit_cut_short_is_complete_before_another_decision_is_taken(bench: Bench) -> None:
    bench.begin("a", "b")
    commit_without_op(bench, "a")
    bench.restart()
    refused = bench.try_decide("a", Verdict.ROLLBACK)
    assert isinstance(refused, TransactionDecided)
    assert refused.decision == "commit"
    assert bench.commit("a").repeated


def test_commits_of_which_only_op_records_are_missing_are_completed_however_many(
    bench: Bench,
) -> None:
    """A broker of 5.x that is killed leaves seconds of them."""
    keys = [f"k{number}" for number in range(MANY)]
    for key in keys:
        bench.begin(key)
    for key, half in zip(keys, bench.records(HALF_TOPIC), strict=True):
        bench.append([committed(bench, key, half.physical_offset)])
    bench.restart()
    assert bench.keys() == []
    assert bench.bodies() == [key.encode() for key in keys]


def test_what_a_power_cut_left_of_a_commit_is_not_committed_again(bench: Bench) -> None:
    """Only a real message is left, and the producer, who got no reply, begins again."""
    bench.append([committed(bench, "b", 77)])
    bench.restart()
    again = [bench.request("a", "b"), bench.request("c")]
    for _ in range(2):  # where it is found out, the log is read again before a reply is given
        results, _ = take_when_loaded(bench, again)
        assert all(isinstance(each, BeginResult) for each in results), results
    assert sorted(bench.bodies()) == [b"a", b"b"]
    assert bench.commit("a").repeated
    assert isinstance(bench.try_decide("a", Verdict.ROLLBACK), TransactionDecided)
    assert bench.keys() == ["c"]
    assert sorted(bench.bodies()) == [b"a", b"b"]


def take_when_loaded(bench: Bench, begins: Sequence[object]) -> tuple[list[object], list[object]]:
    """As a producer that begins again until it gets a reply."""
    for _ in range(3):
        try:
            begun, decided = bench.engine.take(begins, ())  # type: ignore[arg-type]
        except TransactionsNotLoaded:
            bench.step()
            continue
        if any(isinstance(each, TransactionsNotLoaded) for each in begun):
            bench.step()
            continue
        return list(begun), list(decided)
    raise AssertionError("the engine does not get loaded")


def test_a_begin_that_was_cut_short_is_rolled_back(bench: Bench) -> None:
    whole = bench.request("a", "b")
    bench.append(whole.halves(bench.world.format)[:1])
    bench.restart()
    assert bench.keys() == []
    assert isinstance(bench.try_decide("a", Verdict.COMMIT), TransactionDecided)


def test_a_brokers_op_record_resolves_a_half_whichever_copy_it_names(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    assert bench.check() == ["a"]
    body = b"0" if bench.world.format is StoreFormat.V4_9 else b"0,"
    bench.append([NewRecord(OP_TOPIC, 0, body, {"TAGS": "d"}, HOST, 0)])
    bench.restart()
    assert bench.keys() == []
    assert bench.engine.find("a").state is State.ROLLED_BACK


def test_what_a_broker_committed_before_it_was_killed_is_not_committed_again(bench: Bench) -> None:
    bench.begin("a")
    commit_without_op(bench, "a")
    bench.restart()
    assert bench.commit("a").repeated
    assert bench.bodies() == [b"a"]


# while the engine cannot be loaded


def start_unloaded(bench: Bench) -> TransactionEngine:
    """The next process, whose index does not cover the log yet."""
    bench.world.kill()
    bench.world.store.dispatcher.catch_up.lost = ("20260101000000000",)
    bench.world.store.state.set_index_complete(False)
    return bench.start()


def test_while_the_index_does_not_cover_the_log_transactions_wait(bench: Bench) -> None:
    bench.begin("a")
    engine = start_unloaded(bench)
    assert engine.trouble is not None
    assert "index" in engine.trouble
    with pytest.raises(TransactionsNotLoaded, match="index"):
        engine.take([bench.request("b")], ())
    with pytest.raises(TransactionsNotLoaded, match="index"):
        engine.take_at_hand([bench.request("b")], ())
    with pytest.raises(TransactionsNotLoaded):
        engine.find("a")
    assert (engine.pending_count, engine.pending_born_ms) == (0, [])
    with pytest.raises(TransactionsNotLoaded):
        engine.lease(None, 10)
    bench.world.store.dispatcher.catch_up.lost = ()
    bench.world.store.state.set_index_complete(True)
    bench.step(5)
    assert not bench.engine.trouble
    assert bench.keys() == ["a"]
    assert len(bench.records(HALF_TOPIC)) == 1


def test_a_step_never_raises_what_is_wrong_with_transactions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's step is a service of the process: an exception would end it."""
    bench.begin("a", "b")
    commit_without_op(bench, "a")
    bench.world.kill()
    store = bench.world.store

    def refuse(*_: object) -> list[Placement]:
        raise refusal

    for refusal in (DiskFull("no room"), TransactionError("for a reason of its own")):
        with monkeypatch.context() as patch:
            patch.setattr(store, "append", refuse)
            engine = bench.start()
            assert str(refusal) in (engine.trouble or "")
            with pytest.raises(TransactionsNotLoaded):
                engine.take([bench.request("c")], ())
    bench.step(5)
    assert not bench.engine.trouble
    assert sorted(bench.bodies()) == [b"a", b"b"]


def test_a_step_goes_on_where_the_store_rejects_what_is_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setting aside and copies of halves are tried again."""
    bench.begin("a")
    bench.step(7)
    for _ in range(bench.rules.check_max - 1):
        bench.check()
        bench.step(61)
    bench.check()
    store = bench.world.store

    def refuse(*_: object) -> list[Placement]:
        raise DiskFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(store, "append", refuse)
        bench.step(61)
        assert bench.keys() == ["a"]
    bench.step(61)
    assert bench.keys(State.SET_ASIDE) == ["a"]


def test_the_log_says_once_why_transactions_wait(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        start_unloaded(bench)
        for _ in range(3):
            bench.step(5)
    assert sum("index" in each.getMessage() for each in caplog.records) <= 1


def test_a_committed_message_that_is_read_back_is_its_own(bench: Bench) -> None:
    """The half's body is read from the log after a restart, when memory no longer has it."""
    for key in ("a", "b", "c"):
        bench.begin(key)
    bench.restart()
    bench.commit("b")
    (real,) = bench.records(TOPIC, QUEUE_ID)
    assert (real.body, real.uniq_key) == (b"b", "b")
