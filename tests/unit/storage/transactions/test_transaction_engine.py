"""Begins and decisions over a real store: what producers, consumers and brokers see of them."""

from __future__ import annotations

import pytest
from msgspec import structs

from mqstore.storage.errors import (
    PutRefused,
    StorageError,
    TransactionDecided,
    TransactionUnknown,
    UniqueKeyTaken,
)
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, StoreFormat
from mqstore.storage.transactions import (
    Begin,
    BeginResult,
    Decide,
    DecisionResult,
    State,
    Verdict,
    table,
)
from tests.simulation import Loss
from tests.unit.storage.transactions.engine_bench import (
    ALWAYS_MS,
    GROUP,
    QUEUE_ID,
    TOPIC,
    Bench,
    counted,
)


@pytest.fixture(params=list(StoreFormat))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_a_begun_message_is_not_visible(bench: Bench) -> None:
    begun = bench.begin("a")
    assert (begun.key, begun.state) == ("a", State.PENDING)
    assert bench.bodies() == []
    assert bench.bodies(HALF_TOPIC, 0) == [b"a"]


def test_a_committed_message_is_visible_once_with_its_half_offset(bench: Bench) -> None:
    bench.begin("a")
    bench.commit("a")
    (half,), (real,), (op,) = (
        bench.records(HALF_TOPIC),
        bench.records(TOPIC, QUEUE_ID),
        bench.records(OP_TOPIC),
    )
    assert real.sys_flag & 0xC == 0x8
    assert real.prepared_transaction_offset == half.physical_offset
    assert op.body.rstrip(b",") == b"0"
    assert real.physical_offset + real.size == op.physical_offset, "one contiguous append"


def test_a_rolled_back_message_is_never_visible(bench: Bench) -> None:
    bench.begin("a")
    bench.roll_back("a")
    bench.restart()
    assert bench.bodies() == []
    assert bench.keys() == []


def test_repeating_a_decision_changes_nothing(bench: Bench) -> None:
    bench.begin("a")
    first, second = bench.commit("a"), bench.commit("a")
    bench.restart()
    third = bench.commit("a")
    assert [each.repeated for each in (first, second, third)] == [False, True, True]
    assert bench.bodies() == [b"a"]


def test_a_contrary_decision_is_rejected_with_what_was_decided_when(bench: Bench) -> None:
    bench.begin("a")
    bench.commit("a")
    decided_at_ms = bench.world.machine.clock.now_ms()
    for _ in range(2):
        refused = bench.try_decide("a", Verdict.ROLLBACK)
        assert isinstance(refused, TransactionDecided)
        assert (refused.decision, refused.why) == ("commit", "producer")
        assert refused.decided_at_ms == decided_at_ms
        bench.restart()
    assert bench.bodies() == [b"a"]


def test_decisions_of_one_call_see_each_other(bench: Bench) -> None:
    bench.begin("a")
    verdicts = Verdict.COMMIT, Verdict.COMMIT, Verdict.ROLLBACK
    _, (first, second, third) = bench.engine.take((), [Decide("a", each, "") for each in verdicts])
    assert isinstance(first, DecisionResult)
    assert isinstance(second, DecisionResult)
    assert (first.repeated, second.repeated) == (False, True)
    assert isinstance(third, TransactionDecided)
    assert bench.bodies() == [b"a"]


def test_messages_of_one_transaction_become_visible_together(bench: Bench) -> None:
    assert bench.begin("a", "b", "c").key == "a"
    assert bench.bodies() == []
    bench.commit("a")
    assert bench.bodies() == [b"a", b"b", b"c"]
    offsets = [offset for op in bench.records(OP_TOPIC) for offset in op.body.split(b",") if offset]
    assert offsets == [b"0", b"1", b"2"]


def test_a_begin_under_the_same_keys_is_the_same_transaction(bench: Bench) -> None:
    first = bench.begin("a", "b")
    again = bench.begin("a", "b")
    bench.restart()
    later = bench.begin("a", "b")
    assert {each.key for each in (first, again, later)} == {"a"}
    assert {each.state for each in (first, again, later)} == {State.PENDING}
    assert min(again.end, later.end) >= first.end, "what is repeated must be on disk, too"
    assert len(bench.records(HALF_TOPIC)) == 2


def test_a_begin_of_a_committed_transaction_returns_that_it_is_committed(bench: Bench) -> None:
    bench.begin("a")
    end = bench.commit("a").end
    for _ in range(2):
        again = bench.begin("a")
        assert again.state is State.COMMITTED
        assert again.end >= end
        bench.restart()
    assert bench.bodies() == [b"a"]


def test_a_begin_of_a_rolled_back_transaction_is_rejected(bench: Bench) -> None:
    bench.begin("a")
    bench.roll_back("a")
    for _ in range(2):
        refused = bench.try_begin(bench.request("a"))
        assert isinstance(refused, TransactionDecided)
        assert refused.decision == "rollback"
        bench.restart()


def test_another_transaction_under_the_same_key_is_rejected(bench: Bench) -> None:
    bench.begin("a", "b")
    for other in (
        Begin(GROUP, [bench.message("a")]),
        Begin("another", [bench.message("a"), bench.message("b")]),
        Begin(GROUP, [bench.message("a"), structs.replace(bench.message("b"), body=b"another")]),
    ):
        for _ in range(2):
            assert isinstance(bench.try_begin(other), UniqueKeyTaken)
            bench.restart()
    assert len(bench.records(HALF_TOPIC)) == 2


def test_another_body_is_seen_within_one_call_and_where_memory_holds_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "HISTORY_MAX", 0)
    other = structs.replace(bench.message("a"), body=b"another")
    begins = [Begin(GROUP, [message]) for message in (bench.message("a"), other)]
    (first, second), _ = bench.engine.take(begins, ())
    assert isinstance(first, BeginResult)
    assert isinstance(second, UniqueKeyTaken)
    bench.commit("a")
    assert isinstance(bench.try_begin(begins[1]), UniqueKeyTaken)
    assert (bench.bodies(), bench.begin("a").key) == ([b"a"], "a")


def test_an_unknown_transaction_is_named(bench: Bench) -> None:
    refused = bench.try_decide("missing", Verdict.COMMIT)
    assert isinstance(refused, TransactionUnknown)
    assert "missing" in str(refused)
    with pytest.raises(TransactionUnknown, match="missing"):
        bench.engine.find("missing")


def test_the_end_of_a_result_is_behind_all_that_it_stored(bench: Bench) -> None:
    """A caller that waits until the log is on disk up to there may acknowledge."""
    log = bench.world.store.log
    assert bench.begin("a").end == log.max_offset
    assert bench.commit("a").end == log.max_offset
    end = log.max_offset
    bench.begin("b")
    assert bench.commit("a").end >= end


def test_begins_and_decisions_of_one_call_are_one_append(bench: Bench) -> None:
    bench.begin("a")
    bench.begin("b")
    store = bench.world.store
    with counted(store, "append") as appends:
        begun, decided = bench.engine.take(
            [bench.request("c"), bench.request("d", "e")],
            [Decide("a", Verdict.COMMIT, ""), Decide("b", Verdict.ROLLBACK, "")],
        )
    assert [each.key for each in begun if isinstance(each, BeginResult)] == ["c", "d"]
    assert all(isinstance(each, DecisionResult) for each in decided)
    assert appends.sizes == [3 + 2 + 1]


def test_a_repeat_within_one_call_stores_nothing_more(bench: Bench) -> None:
    begins = [bench.request("a"), bench.request("b"), bench.request("a")]
    begun, _ = bench.engine.take(begins, ())
    assert [each.key for each in begun if isinstance(each, BeginResult)] == ["a", "b", "a"]
    assert bench.bodies(HALF_TOPIC, 0) == [b"a", b"b"]


def test_a_decision_follows_a_begin_of_the_same_call(bench: Bench) -> None:
    """A producer that chose the unique key may decide before it gets the reply to its begin."""
    decisions = [Decide("a", Verdict.COMMIT, ""), Decide("b", Verdict.ROLLBACK, "")]
    begun, decided = bench.engine.take([bench.request("a"), bench.request("b")], decisions)
    assert all(isinstance(each, BeginResult) for each in begun), begun
    assert all(isinstance(each, DecisionResult) and not each.repeated for each in decided), decided
    assert bench.bodies() == [b"a"]
    assert bench.keys() == []


def test_a_begin_that_the_store_rejects_leaves_the_others_alone(bench: Bench) -> None:
    bench.begin("old")
    bad = Begin(GROUP, [structs.replace(bench.message("bad"), body=bytes(5 << 20))])
    begins = [bench.request("a"), bad, bench.request("b")]
    begun, (decided,) = bench.engine.take(begins, [Decide("old", Verdict.COMMIT, "")])
    assert [isinstance(each, PutRefused) for each in begun] == [False, True, False]
    assert isinstance(decided, DecisionResult)
    assert bench.keys() == ["a", "b"]
    assert bench.bodies() == [b"old"]


def test_a_repeat_of_a_begin_that_the_store_rejects_is_rejected(bench: Bench) -> None:
    bad = Begin(GROUP, [structs.replace(bench.message("bad"), body=bytes(5 << 20))])
    (first, second), _ = bench.engine.take([bad, bad], ())
    assert isinstance(first, PutRefused)
    assert isinstance(second, StorageError)
    assert bench.keys() == []


def test_what_is_pending_is_there_after_a_restart(bench: Bench) -> None:
    bench.begin("a")
    bench.begin("b", "c")
    bench.restart()
    assert bench.keys() == ["a", "b"]
    assert bench.engine.pending_count == 2
    bench.commit("b")
    assert bench.bodies() == [b"b", b"c"]


def test_what_a_power_cut_took_decides_nothing_that_is_begun_later(bench: Bench) -> None:
    bench.begin("a")
    bench.restart(Loss.DROP)
    assert isinstance(bench.try_decide("a", Verdict.ROLLBACK), TransactionUnknown)
    bench.begin("b")
    bench.restart()
    assert bench.keys() == ["b"]


def test_a_begin_under_a_new_key_looks_into_the_table_of_unique_keys_alone(bench: Bench) -> None:
    store = bench.world.store
    assert store.dedup is not None
    bench.begin("first")
    with (
        counted(store.lookups, "by_key", "transaction_types") as indexed,
        counted(store.dedup, "may_know") as table_lookups,
    ):
        for number in range(10):
            bench.begin(f"k{number}")
    assert (indexed.count, table_lookups.count) == (0, 10)


def test_a_begin_under_a_generated_key_searches_nothing(bench: Bench) -> None:
    store = bench.world.store
    assert store.dedup is not None
    with (
        counted(store.lookups, "by_key", "transaction_types") as indexed,
        counted(store.dedup, "may_know") as table_lookups,
    ):
        assert isinstance(bench.try_begin(bench.request("a", may_repeat=False)), BeginResult)
    assert (indexed.count, table_lookups.count) == (0, 0)


@pytest.mark.parametrize("keys", [("a",), ("a", "b")])
def test_a_begin_is_found_again_after_the_process_was_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    """Also where memory does not hold it: decided transactions before the saved offsets."""
    bench.begin(*keys)
    bench.commit("a")
    bench.engine.leave()
    monkeypatch.setattr(table, "HISTORY_MAX", 0)
    bench.restart()
    assert bench.begin(*keys).state is State.COMMITTED
    assert len(bench.records(HALF_TOPIC)) == len(keys)


def test_a_message_that_was_put_under_a_key_keeps_no_transaction_from_it(bench: Bench) -> None:
    store = bench.world.store
    message = bench.message("a")
    bench.append([message])
    assert store.dedup is not None
    bench.restart()
    assert bench.begin("a").state is State.PENDING
    bench.commit("a")
    assert bench.bodies() == [b"a", b"a"]


def test_a_snapshot_stays_as_it_was_when_the_transaction_changes(bench: Bench) -> None:
    bench.begin("a", "b")
    (listed,) = bench.snapshots(State.PENDING)
    found = bench.engine.find("a")
    bench.step(7)
    assert bench.check() == ["a"]
    checked = bench.engine.find("a")
    bench.commit("a")
    decided = bench.engine.find("a")
    for snapshot in (listed, found):
        assert (snapshot.state, snapshot.check_times, snapshot.checks) == (State.PENDING, 0, ())
        assert sorted(half.queue_offset for half in snapshot.halves) == [0, 1]
        assert all(half.op_offset is None for half in snapshot.halves)
    assert (checked.state, checked.check_times, len(checked.checks)) == (State.PENDING, 1, 1)
    assert sorted(half.queue_offset for half in checked.halves) == [0, 1, 2, 3]
    assert all(half.op_offset is None for half in checked.halves)
    assert (decided.state, decided.why) == (State.COMMITTED, "producer")
    assert decided.decided_at_ms == bench.world.machine.clock.now_ms()


def test_a_story_is_the_same_from_memory_and_from_the_log(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.begin("a", "b")
    bench.commit("a")
    remembered = bench.engine.find("a")
    bench.engine.leave()
    monkeypatch.setattr(table, "HISTORY_MAX", 0)
    bench.restart()
    read = bench.engine.find("a")
    assert read == remembered
    assert (read.messages, read.group) == (2, GROUP)


def test_snapshots_are_chosen_by_state_group_and_age(bench: Bench) -> None:
    for key in ("a", "b", "c"):
        bench.begin(key)
        bench.step(1)
    bench.try_begin(Begin("another", [bench.message("d")]))
    bench.commit("b")
    engine = bench.engine
    born_ms = engine.find("c").born_ms

    def keys(states: list[State], group: str | None, before_ms: int) -> list[str]:
        return [each.key for each in engine.snapshots(states, group, before_ms)]

    assert keys([State.PENDING], None, ALWAYS_MS) == ["a", "c", "d"]
    assert keys([State.PENDING], GROUP, ALWAYS_MS) == ["a", "c"]
    assert keys([State.PENDING], None, born_ms) == ["a", "c"]
    assert keys([State.PENDING], None, born_ms - 1) == ["a"]
    assert keys([State.COMMITTED], None, ALWAYS_MS) == ["b"]
    assert keys([State.SET_ASIDE, State.ROLLED_BACK], None, ALWAYS_MS) == []
    assert engine.pending_born_ms == [engine.find(key).born_ms for key in ("a", "c", "d")]


def test_snapshots_are_the_oldest_after_a_cursor(bench: Bench) -> None:
    for key in ("b", "a", "c", "d"):
        bench.begin(key)
        bench.step(1 if key != "b" else 0)  # a and b are of one age
    engine = bench.engine
    listed = engine.snapshots([State.PENDING], None, ALWAYS_MS, limit=3)
    assert [each.key for each in listed] == ["a", "b", "c"]
    place = listed[1].born_ms, listed[1].key
    rest = engine.snapshots(
        [State.PENDING], None, ALWAYS_MS, follows=lambda at_ms, key: (at_ms, key) > place, limit=3
    )
    assert [each.key for each in rest] == ["c", "d"]
    assert engine.snapshots([State.PENDING], None, ALWAYS_MS, limit=0) == []


def test_each_append_is_reported_once(bench: Bench) -> None:
    seen: list[list[tuple[str, int]]] = []
    bench.engine.watch_appends(lambda messages, _: seen.append([*messages]))
    bench.engine.take([bench.request("a"), bench.request("b")], ())
    bench.begin("a")
    bench.commit("a")
    bench.roll_back("b")
    halves = [(HALF_TOPIC, each.size) for each in bench.records(HALF_TOPIC)]
    (committed,) = bench.records(TOPIC, QUEUE_ID)
    assert seen == [halves, [(TOPIC, committed.size)], []]


def test_pending_halves_are_counted_by_topic(bench: Bench) -> None:
    bench.begin("a", "b")
    bench.try_begin(Begin(GROUP, [bench.message("c", "U")]))
    assert bench.engine.half_counts == {TOPIC: 2, "U": 1}
    bench.commit("a")
    assert bench.engine.half_counts == {"U": 1}
    bench.roll_back("c")
    assert not bench.engine.half_counts
    assert not bench.engine.pending_born_ms
