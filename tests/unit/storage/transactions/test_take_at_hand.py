"""Begins and decisions that an event loop takes itself, and those that it leaves to a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import PutRefused, TransactionDecided, TransactionsNotLoaded
from mqstore.storage.layout import HALF_TOPIC
from mqstore.storage.system.threads import production_seams
from mqstore.storage.transactions import (
    Begin,
    BeginResult,
    Decide,
    DecisionResult,
    Rules,
    State,
    TransactionEngine,
    Verdict,
    table,
)
from mqstore.storage.transactions.log import TransactionLog
from tests.unit.storage.transactions.engine_bench import ALWAYS_MS, counted
from tests.unit.storage.transactions.engine_on_disk import QUIET, Side, blocked, opened


def commit(key: str) -> Decide:
    return Decide(key, Verdict.COMMIT, "producer")


@contextmanager
def with_files(root: Path, rules: Rules = QUIET) -> Iterator[Side]:
    """A store that makes no file within a put; those that the tests need are there."""
    with opened(root, rules, waits_for_files=False) as side:
        side.engine.take([side.request("first")], ())
        side.engine.take((), [commit("first")])
        yield side


def require_nothing_done(side: Side, begins: Sequence[Begin], decisions: Sequence[Decide]) -> None:
    end, pending = side.end, side.engine.pending_count
    before = side.engine.snapshots(list(State), None, ALWAYS_MS)
    assert side.engine.take_at_hand(begins, decisions) is None
    assert (side.end, side.engine.pending_count) == (end, pending)
    assert side.engine.snapshots(list(State), None, ALWAYS_MS) == before


def test_begins_and_decisions_at_hand_are_one_append_without_a_read(tmp_path: Path) -> None:
    with with_files(tmp_path) as side:
        taken = side.engine.take_at_hand([side.request("a"), side.request("b", "c")], ())
        assert taken is not None
        assert [each.key for each in taken[0] if isinstance(each, BeginResult)] == ["a", "b"]
        store = side.store
        with (
            counted(store, "append") as appends,
            counted(store.lookups, "by_key", "records", "transaction_types") as reads,
        ):
            rollback = Decide("b", Verdict.ROLLBACK, "producer")
            taken = side.engine.take_at_hand([side.request("d")], [commit("a"), rollback])
        assert taken is not None
        begun, decided = taken
        assert isinstance(begun[0], BeginResult)
        assert [each.snapshot.state for each in decided if isinstance(each, DecisionResult)] == [
            *(State.COMMITTED, State.ROLLED_BACK)
        ]
        assert (appends.count, reads.count) == (1, 0)
        assert side.visible() == {b"first": 1, b"a": 1}


def test_repeats_that_memory_holds_are_at_hand(tmp_path: Path) -> None:
    with with_files(tmp_path) as side:
        side.engine.take_at_hand([side.request("a"), side.request("b")], ())
        side.engine.take_at_hand((), [commit("a")])
        end = side.end
        taken = side.engine.take_at_hand(
            [side.request("a"), side.request("b")],
            [commit("a"), Decide("a", Verdict.ROLLBACK, "")],
        )
        assert taken is not None
        assert [each.state for each in taken[0] if isinstance(each, BeginResult)] == [
            *(State.COMMITTED, State.PENDING)
        ]
        repeated, contrary = taken[1]
        assert isinstance(repeated, DecisionResult)
        assert repeated.repeated
        assert isinstance(contrary, TransactionDecided)
        assert side.end == end


def test_what_the_store_rejects_is_at_hand_and_leaves_the_others_alone(tmp_path: Path) -> None:
    with with_files(tmp_path) as side:
        (message,) = side.request("bad").messages
        bad = Begin("producers", [replace(message, body=bytes(5 << 20))])
        taken = side.engine.take_at_hand([side.request("a"), bad], [])
        assert taken is not None
        good, refused = taken[0]
        assert isinstance(good, BeginResult)
        assert isinstance(refused, PutRefused)
        assert side.engine.pending_count == 1


def test_a_decision_whose_half_message_is_not_in_memory_is_left_to_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_files(tmp_path) as side:
        side.engine.take([side.request("a")], ())
    with opened(tmp_path, waits_for_files=False) as side:
        monkeypatch.setattr(TransactionLog, "is_at_hand", lambda *_: False)
        require_nothing_done(side, (), [commit("a")])
        require_nothing_done(side, [side.request("b")], [commit("a")])
        side.engine.take((), [commit("a")])
        assert side.visible() == {b"first": 1, b"a": 1}


def test_after_a_restart_a_half_message_in_memory_is_at_hand(tmp_path: Path) -> None:
    with with_files(tmp_path) as side:
        side.engine.take([side.request("a", "b")], ())
    with (
        opened(tmp_path, waits_for_files=False) as side,
        counted(side.store.lookups, "by_key", "records", "transaction_types") as reads,
    ):
        assert side.engine.take_at_hand((), [commit("a")]) is not None
        assert reads.count == 0
        assert side.visible() == {b"first": 1, b"a": 1, b"b": 1}


def test_a_decision_whose_half_message_is_in_an_earlier_segment_is_left_to_a_thread(
    tmp_path: Path,
) -> None:
    with with_files(tmp_path) as side:
        side.engine.take([side.request("a")], ())
        for key in ("large", "larger"):
            (message,) = side.request(key).messages
            side.engine.take([Begin("producers", [replace(message, body=bytes(40_000))])], ())
        assert side.store.log.files.files[-1].base_offset > 0
        require_nothing_done(side, (), [commit("a")])
        side.engine.take((), [commit("a")])
        assert side.visible()[b"a"] == 1


def test_a_decision_of_a_transaction_that_memory_lacks_is_left_to_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "HISTORY_MAX", 0)
    with with_files(tmp_path) as side:
        require_nothing_done(side, (), [commit("first")])
        require_nothing_done(side, (), [commit("missing")])
        _, (found,) = side.engine.take((), [commit("first")])
        assert isinstance(found, DecisionResult)
        assert found.repeated


def test_a_begin_whose_key_may_have_a_record_is_left_to_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "HISTORY_MAX", 0)
    with with_files(tmp_path) as side:
        require_nothing_done(side, [side.request("first")], ())
        require_nothing_done(side, [side.request("other"), side.request("first")], ())
        (found,), _ = side.engine.take([side.request("first")], ())
        assert isinstance(found, BeginResult)
        assert found.state is State.COMMITTED


def test_a_transaction_that_was_set_aside_is_resolved_in_a_thread(tmp_path: Path) -> None:
    rules = Rules(transaction_timeout_ms=0, check_max=0)
    with with_files(tmp_path, rules) as side:
        side.engine.take([side.request("a")], ())
        side.step()
        assert side.engine.set_aside_count == 1
        by_hand = Decide("a", Verdict.COMMIT, "operator", by_hand=True)
        require_nothing_done(side, (), [by_hand])
        _, (found,) = side.engine.take((), [by_hand])
        assert isinstance(found, DecisionResult)
        assert side.visible() == {b"first": 1, b"a": 1}


def test_where_a_file_must_be_made_a_thread_makes_it(tmp_path: Path) -> None:
    """The event loop waits for no file, and a rejected attempt leaves nothing behind."""
    with opened(tmp_path, waits_for_files=False) as side:
        require_nothing_done(side, [side.request("a")], ())
        side.engine.take([side.request("a"), side.request("b")], ())
        require_nothing_done(side, [side.request("c")], [commit("a")])
        assert side.engine.take_at_hand([side.request("c")], ()) is not None
        side.engine.take((), [commit("a")])
        assert side.engine.take_at_hand((), [commit("b"), commit("c")]) is not None
        assert side.visible() == {b"a": 1, b"b": 1, b"c": 1}


def test_queues_go_on_over_files_that_a_thread_makes(tmp_path: Path) -> None:
    """Files of 20 entries each: most puts are at hand, the first of each file is not."""
    with with_files(tmp_path) as side:
        left = 0
        for number in range(250):
            begin, decision = side.request(f"k{number}"), commit(f"k{number}")
            if side.engine.take_at_hand([begin], ()) is None:
                side.engine.take([begin], ())
                left += 1
            if side.engine.take_at_hand((), [decision]) is None:
                side.engine.take((), [decision])
                left += 1
        assert 0 < left < 50
        visible = side.visible()
        assert len(visible) == 251
        assert set(visible.values()) == {1}
        assert side.engine.pending_count == 0


def test_while_a_thread_uses_the_engine_nothing_is_at_hand(tmp_path: Path) -> None:
    with with_files(tmp_path) as side, ThreadPoolExecutor(1) as pool:
        with blocked(side.store, "append") as gate:
            begun = pool.submit(side.engine.take, [side.request("a", "b")], ())
            assert gate.reached.wait(30)
            end = side.end
            assert side.engine.take_at_hand([side.request("c")], ()) is None
            assert side.engine.take_at_hand((), [commit("first")]) is None
            assert side.end == end
            gate.go_on.set()
            assert isinstance(begun.result(30)[0][0], BeginResult)
        assert side.engine.take_at_hand([side.request("c")], ()) is not None
        assert side.engine.pending_count == 2


def test_a_begin_under_a_new_key_is_two_looks_into_memory(tmp_path: Path) -> None:
    with with_files(tmp_path) as side:
        assert side.store.dedup is not None
        with counted(side.store.dedup, "may_know") as lookups:
            assert side.engine.take_at_hand([side.request("a", "b")], ()) is not None
        assert lookups.count <= 2
        with counted(side.store.dedup, "may_know") as lookups:
            begin = side.request("c", may_repeat=False)
            assert side.engine.take_at_hand([begin], ()) is not None
        assert lookups.count == 0


def test_before_the_log_was_read_nothing_is_taken(tmp_path: Path) -> None:
    with opened(tmp_path) as side:
        side.engine.take([side.request("a")], ())
    with opened(tmp_path) as side:
        seams = production_seams()
        fresh = TransactionEngine(side.store, seams, UniqueKeys(seams), QUIET)
        assert fresh.trouble is not None
        for take in (fresh.take, fresh.take_at_hand):
            with pytest.raises(TransactionsNotLoaded):
                take([side.request("b")], ())
        assert side.store.lookups.by_key(HALF_TOPIC, "b").records == []
