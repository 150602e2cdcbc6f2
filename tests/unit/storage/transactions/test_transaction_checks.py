"""Checks of silent producers, transactions that are set aside, and saved progress."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs

from mqstore.storage.errors import PutRefused, TransactionDecided
from mqstore.storage.layout import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    PROPERTIES_LENGTH_MAX,
    StoreFormat,
)
from mqstore.storage.transactions import Begin, BeginResult, CheckSent, State, Verdict
from mqstore.storage.transactions.log import TransactionLog
from mqstore.storage.transactions.records import KeyedRecords
from tests.unit.storage.transactions.engine_bench import GROUP, RULES, Bench

INTERVAL_S = RULES.check_interval_ms // 1000


@pytest.fixture(params=list(StoreFormat))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def leased(bench: Bench, count: int = 100, seconds: float | None = None) -> list[str]:
    return [each.key for each in bench.engine.lease(None, count, seconds)]


def test_a_check_is_due_after_the_timeout_and_then_at_intervals(bench: Bench) -> None:
    bench.begin("a")
    bench.step(5)
    assert bench.check() == []
    bench.step(2)
    assert bench.check() == ["a"]
    bench.step(58)
    assert bench.check() == []
    bench.step(3)
    assert bench.check() == ["a"]
    copies = [found.properties or {} for found in bench.records(HALF_TOPIC)]
    assert [each.get("TRANSACTION_CHECK_TIMES") for each in copies] == [None, "1", "2"]


def test_a_step_is_due_when_a_check_is(bench: Bench) -> None:
    bench.begin("a")
    bench.step(5.5)
    assert bench.step() == pytest.approx(6)
    bench.step(0.5)
    assert leased(bench) == ["a"]


def test_the_step_is_woken_for_what_is_due_before_it(bench: Bench) -> None:
    """Its thread sleeps until the time that the last step returned."""
    woken: list[float] = []
    engine, clock = bench.engine, bench.world.machine.clock
    engine.wake = lambda: woken.append(clock.monotonic())
    bench.begin("a")
    assert woken == [], "its check is later than the next step"
    message = bench.message("b")
    soon = {**message.properties, "CHECK_IMMUNITY_TIME_IN_SECONDS": "0"}
    bench.try_begin(Begin(GROUP, [structs.replace(message, properties=soon)]))
    assert woken == [clock.monotonic()]
    bench.step()
    assert leased(bench) == ["b"]
    bench.engine.release(["b"])
    assert len(woken) == 2


def test_a_longer_immunity_is_respected(bench: Bench) -> None:
    message = bench.message("a")
    table = {**message.properties, "CHECK_IMMUNITY_TIME_IN_SECONDS": "100"}
    bench.try_begin(Begin(GROUP, [structs.replace(message, properties=table)]))
    bench.step(99)
    assert bench.check() == []
    bench.step(2)
    assert bench.check() == ["a"]


def test_a_lease_gives_each_due_check_to_one_taker(bench: Bench) -> None:
    for key in "abcde":
        bench.begin(key)
    bench.step(7)
    assert bench.engine.checks_waiting == 5
    first, second, third = leased(bench, 2), leased(bench, 2), leased(bench, 2)
    assert (first, second, third) == (["a", "b"], ["c", "d"], ["e"])
    assert leased(bench) == []
    assert bench.engine.checks_waiting == 0


def test_after_its_lease_a_check_is_due_again_and_was_not_counted(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    for seconds, wait_s in ((10, 10), (100, 100), (None, INTERVAL_S)):
        assert leased(bench, seconds=seconds) == ["a"]
        bench.step(wait_s - 1)
        assert leased(bench) == []
        bench.step(2)
    assert leased(bench) == ["a"]
    snapshot = bench.engine.find("a")
    assert (snapshot.check_times, snapshot.checks) == (0, ())


def test_a_counted_check_is_due_again_after_the_interval_whatever_its_lease(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    for seconds in (10, 300):
        assert leased(bench, seconds=seconds) == ["a"]
        assert bench.engine.count_checks([CheckSent("a", "producer", None)]) == ["a"]
        bench.step(INTERVAL_S - 1)
        assert leased(bench) == []
        bench.step(2)
    assert leased(bench) == ["a"]


def test_a_lease_is_of_the_groups_that_it_names(bench: Bench) -> None:
    for key, group in (("a", "g1"), ("b", "g2"), ("c", "g1"), ("d", "g3")):
        bench.try_begin(Begin(group, [bench.message(key)]))
    assert bench.engine.due_groups() == []
    bench.step(7)
    engine = bench.engine
    assert sorted(engine.due_groups()) == ["g1", "g2", "g3"]
    assert [each.key for each in engine.lease(["g2", "unknown"], 10)] == ["b"]
    assert engine.lease([], 10) == []
    assert [each.key for each in engine.lease({"g1"}, 1)] == ["a"]
    assert sorted(engine.due_groups()) == ["g1", "g3"]
    assert sorted(each.key for each in engine.lease(None, 10)) == ["c", "d"]
    assert engine.due_groups() == []


def test_a_released_check_is_due_at_once_and_was_not_counted(bench: Bench) -> None:
    for key in "ab":
        bench.begin(key)
    bench.step(7)
    assert leased(bench) == ["a", "b"]
    bench.engine.release(["a", "missing"])
    bench.step()
    assert leased(bench) == ["a"]
    assert bench.engine.find("a").check_times == 0


def test_a_decided_transaction_is_neither_leased_nor_counted_nor_released(bench: Bench) -> None:
    for key in "abc":
        bench.begin(key)
    bench.step(7)
    bench.commit("a")
    assert leased(bench) == ["b", "c"]
    bench.roll_back("b")
    copies = len(bench.records(HALF_TOPIC))
    assert bench.engine.count_checks([CheckSent("b", "producer", None)]) == []
    bench.engine.release(["a", "b"])
    bench.step(2 * INTERVAL_S)
    assert leased(bench) == ["c"]
    assert len(bench.records(HALF_TOPIC)) == copies


def test_counted_checks_name_the_producer_and_its_answer(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    for by, answer in (("p1", "unknown"), ("p2", None)):
        assert leased(bench) == ["a"]
        bench.engine.count_checks([CheckSent("a", by, answer)])
        bench.step(INTERVAL_S + 1)
    snapshot = bench.engine.find("a")
    assert [(each.by, each.answer) for each in snapshot.checks] == [("p1", "unknown"), ("p2", None)]
    assert snapshot.check_times == 2
    bench.restart()
    assert bench.engine.find("a").check_times == 2


def test_on_due_is_called_when_checks_have_become_due(bench: Bench) -> None:
    seen: list[int] = []
    bench.engine.on_due = lambda: seen.append(bench.engine.checks_waiting)
    bench.begin("a")
    bench.begin("b")
    bench.step(5)
    assert seen == []
    bench.step(2)
    assert seen == [2]
    bench.step(1)
    assert seen == [2]
    assert leased(bench, seconds=10) == ["a", "b"]
    bench.step(11)
    assert seen == [2, 2]


def test_on_due_is_called_whatever_became_of_others_in_the_same_step(bench: Bench) -> None:
    """As many may be due before and after: one is set aside, another becomes due."""
    bench.begin("old")
    bench.step(7)
    assert bench.engine.checks_waiting == 1
    bench.world.machine.clock.advance(73 * 3600)
    message = bench.message("new")
    soon = {**message.properties, "CHECK_IMMUNITY_TIME_IN_SECONDS": "0"}
    bench.try_begin(Begin(GROUP, [structs.replace(message, properties=soon)]))
    seen: list[list[str]] = []
    bench.engine.on_due = lambda: seen.append(leased(bench))
    bench.step()
    assert bench.keys(State.SET_ASIDE) == ["old"]
    assert seen == [["new"]]


def test_a_released_check_is_announced(bench: Bench) -> None:
    """Another taker may be waiting for it."""
    seen: list[int] = []
    bench.begin("a")
    bench.step(7)
    assert leased(bench) == ["a"]
    bench.engine.on_due = lambda: seen.append(bench.engine.checks_waiting)
    bench.engine.release(["a"])
    bench.step()
    assert seen == [1]


def test_a_half_of_which_no_copy_can_be_stored_keeps_no_other_from_being_checked(
    bench: Bench,
) -> None:
    message = bench.message("full")
    for length in range(PROPERTIES_LENGTH_MAX, 0, -1):
        full = structs.replace(message, properties={**message.properties, "p": "x" * length})
        if isinstance(bench.try_begin(Begin(GROUP, [full])), BeginResult):
            break
    bench.begin("other")
    bench.step(7)
    assert leased(bench) == ["full", "other"]
    sent = [CheckSent(key, "producer", None) for key in ("full", "other")]
    assert bench.engine.count_checks(sent) == ["other"]
    with pytest.raises(PutRefused, match="properties"):
        bench.engine.count_checks(sent[:1])
    bench.commit("full")
    assert bench.bodies() == [b"full"]


def test_after_the_last_check_a_transaction_is_set_aside_and_shown(bench: Bench) -> None:
    bench.begin("a")
    bench.check_until_set_aside()
    assert bench.bodies(CHECK_MAX_TIME_TOPIC, 0) == [b"a"]
    for _ in range(2):
        assert bench.keys(State.SET_ASIDE) == ["a"]
        assert (bench.engine.pending_count, bench.engine.set_aside_count) == (0, 1)
        bench.restart()
    refused = bench.try_decide("a", Verdict.COMMIT)
    assert isinstance(refused, TransactionDecided)
    assert refused.decision == "set-aside"


def test_what_cannot_be_set_aside_now_is_set_aside_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the halves cannot be read, and the index does not say whether they have copies."""
    for key in "ab":
        bench.begin(key)
    for _ in range(bench.rules.check_max):
        bench.step(INTERVAL_S + 1)
        assert bench.check() == ["a", "b"]
    bench.restart()
    with monkeypatch.context() as patch:
        patch.setattr(TransactionLog, "read_at_hand", lambda *_: None)
        patch.setattr(TransactionLog, "read_one", lambda *_: None)
        patch.setattr(TransactionLog, "by_key", lambda *_: KeyedRecords(complete=False))
        bench.step(INTERVAL_S + 1)
        assert bench.keys() == ["a", "b"]
    for _ in range(3):
        bench.step(2)
    assert bench.keys(State.SET_ASIDE) == ["a", "b"]


def test_an_operator_resolves_what_was_set_aside(bench: Bench) -> None:
    bench.begin("a")
    bench.check_until_set_aside()
    resolved = bench.commit("a", by_hand=True)
    assert (resolved.snapshot.state, resolved.repeated) == (State.COMMITTED, False)
    assert bench.bodies() == [b"a"]
    bench.restart()
    assert bench.engine.set_aside_count == 0
    assert bench.commit("a").repeated


def test_a_transaction_older_than_its_files_live_is_set_aside(bench: Bench) -> None:
    bench.begin("a")
    for _ in range(4):
        assert bench.keys(State.SET_ASIDE) == []
        bench.world.machine.clock.advance(72 * 3600 / 4)
        bench.step(6)
    assert bench.keys(State.SET_ASIDE) == ["a"]
    assert "too old" in bench.engine.find("a").why


def test_a_clock_that_is_set_forward_makes_no_transaction_old(bench: Bench) -> None:
    bench.begin("a")
    bench.world.run(6)
    bench.world.machine.clock.step(100 * 3600 * 1000)
    bench.step()  # before the clock is compared by its own service
    for _ in range(3):
        bench.step(6)
    assert bench.keys() == ["a"]


def test_a_clock_that_is_set_back_delays_no_check(bench: Bench) -> None:
    bench.begin("a")
    bench.world.machine.clock.step(-86_400_000)
    bench.restart()
    bench.step(7)
    assert leased(bench) == ["a"]


# saved progress


def test_offsets_are_saved_up_to_the_oldest_that_is_pending(bench: Bench) -> None:
    for key in ("a", "b", "c"):
        bench.begin(key)
    bench.commit("a")
    bench.commit("c")
    for _ in range(4):
        bench.step(5)
    assert bench.saved()[0] == 1
    bench.commit("b")
    for _ in range(4):
        bench.step(5)
    assert bench.saved() == (3, 3)
    bench.restart()
    assert bench.keys() == []
    bench.begin("d")
    assert bench.engine.find("d").halves[0].queue_offset == 3


def test_no_offset_is_saved_before_what_it_rests_on_is_on_disk(bench: Bench) -> None:
    """Else a power cut could leave saved offsets behind halves, and not their op records."""
    bench.begin("a")
    store, clock = bench.world.store, bench.world.machine.clock
    store.flush.flush_all()
    bench.commit("a")
    now = clock.monotonic()
    for turn in range(1, 5):
        bench.engine.step(now + 10 * turn)
    assert bench.saved()[0] in (None, 0)
    store.flush.flush_all()
    for turn in range(5, 9):
        bench.engine.step(now + 10 * turn)
    assert bench.saved() == (1, 1)


def test_one_that_leaves_saves_at_once_how_far_all_is_over(bench: Bench) -> None:
    for key in ("a", "b"):
        bench.begin(key)
    bench.commit("a")
    bench.step(7)
    assert bench.check() == ["b"]
    bench.engine.leave()
    assert bench.saved() == (2, 1), "a broker checks the newest copy of b alone"


def test_a_closed_store_has_what_leaving_saved(bench: Bench) -> None:
    bench.begin("a")
    bench.commit("a")
    bench.begin("b")
    bench.engine.leave()
    bench.world.store.close()
    bench.restart()
    assert bench.saved() == (1, 1)
    assert bench.keys() == ["b"]


def test_a_snapshot_names_for_every_copy_the_op_record_that_resolves_it(bench: Bench) -> None:
    bench.begin("a")
    for _ in range(2):
        bench.step(61)
        assert bench.check() == ["a"]
    bench.engine.leave()
    assert bench.saved()[0] == 2, "past the older copies"
    snapshot = bench.commit("a").snapshot
    assert [half.queue_offset for half in snapshot.halves] == [0, 1, 2]
    assert None not in [half.op_offset for half in snapshot.halves]
    assert [half.check_times for half in snapshot.halves] == [0, 1, 2]


def test_a_silent_producer_does_not_hold_the_offsets_back() -> None:
    bench = Bench(rules=dataclasses.replace(RULES, carry_behind=10))
    bench.begin("old")
    for number in range(20):
        bench.begin(f"n{number}")
        bench.commit(f"n{number}")
    for _ in range(4):
        bench.step(5)
    assert (bench.saved()[0] or 0) > 10
    bench.restart()
    assert bench.keys() == ["old"]
    assert bench.engine.find("old").check_times == 0
    bench.commit("old")
    assert bench.bodies()[-1] == b"old"
