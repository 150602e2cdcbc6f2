"""Several threads that use one engine at once; counted, not timed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import DiskFull, StorageError
from mqstore.storage.layout import HALF_TOPIC
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.system.threads import production_seams
from mqstore.storage.transactions import (
    Begin,
    BeginResult,
    CheckSent,
    Decide,
    DecisionResult,
    Rules,
    State,
    Taken,
    TransactionEngine,
    Verdict,
)
from mqstore.storage.transactions.log import TransactionLog
from mqstore.storage.transactions.schedule import Schedule
from tests.unit.storage.stores import open_store
from tests.unit.storage.transactions.engine_bench import ALWAYS_MS
from tests.unit.storage.transactions.engine_on_disk import QUIET, WAIT_S, Side, blocked, opened

TRANSACTIONS: Final = 120
BUSY: Final = Rules(
    transaction_timeout_ms=0, check_interval_ms=1, check_max=1_000_000, carry_behind=10
)
"""Checks are always due, and the step always has something to write."""


def take(side: Side, begins: list[Begin], decisions: list[Decide]) -> Taken:
    """As an event loop with a thread for what it leaves."""
    taken = side.engine.take_at_hand(begins, decisions)
    return side.engine.take(begins, decisions) if taken is None else taken


def produce(side: Side, name: str, started: threading.Barrier) -> None:
    """Begin, and decide: of three the third is rolled back."""
    started.wait(WAIT_S)
    for number in range(TRANSACTIONS):
        key = f"{name}{number}"
        (begun,), _ = take(side, [side.request(key, f"{key}-2")], [])
        assert isinstance(begun, BeginResult), begun
        verdict = Verdict.ROLLBACK if number % 3 == 2 else Verdict.COMMIT
        _, (decided,) = take(side, [], [Decide(key, verdict, "producer")])
        assert isinstance(decided, DecisionResult), decided
        assert not decided.repeated


def until(
    done: threading.Event, act: Callable[[Side], None], side: Side, started: threading.Barrier
) -> int:
    """How often ``act`` was called."""
    started.wait(WAIT_S)
    count = 0
    while not done.is_set():
        act(side)
        count += 1
    return count


def check(side: Side) -> None:
    found = side.engine.lease(None, 10, 1)
    sent = [CheckSent(each.key, "p", None) for each in found[::2]]
    assert set(side.engine.count_checks(sent)) <= {each.key for each in found}
    side.engine.release([each.key for each in found[1::2]])


def look(side: Side) -> None:
    for snapshot in side.engine.snapshots(list(State), None, ALWAYS_MS):
        assert snapshot.messages == 2
        assert len(snapshot.halves) >= 2
    assert side.engine.pending_count >= 0
    assert side.engine.checks_waiting >= 0
    assert sum(side.engine.half_counts.values()) >= 0
    side.engine.due_groups()


def test_threads_that_take_step_check_and_look_at_once(tmp_path: Path) -> None:
    done, started = threading.Event(), threading.Barrier(5)
    with opened(tmp_path, BUSY, waits_for_files=False) as side:
        with ThreadPoolExecutor(5) as pool:
            producers = [pool.submit(produce, side, name, started) for name in ("x", "y")]
            others = [
                pool.submit(until, done, act, side, started) for act in (Side.step, check, look)
            ]
            try:
                for each in producers:
                    each.result(120)
            finally:
                done.set()
            assert all(each.result(WAIT_S) > 0 for each in others)
        committed = {
            f"{name}{number}{part}".encode()
            for name in ("x", "y")
            for number in range(TRANSACTIONS)
            if number % 3 < 2
            for part in ("", "-2")
        }
        assert side.visible() == Counter(committed)
        assert side.engine.pending_count == 0
        assert side.engine.trouble is None
    with opened(tmp_path, BUSY) as side:
        assert (side.engine.pending_count, side.engine.set_aside_count) == (0, 0)
        assert side.visible() == Counter(committed)


def test_of_begins_under_one_key_at_once_one_is_stored(tmp_path: Path) -> None:
    with opened(tmp_path, waits_for_files=False) as side, ThreadPoolExecutor(4) as pool:
        for number in range(40):
            started = threading.Barrier(4)

            def begin(started: threading.Barrier = started, key: str = f"k{number}") -> object:
                started.wait(WAIT_S)
                return take(side, [side.request(key)], [])[0][0]

            results = [each.result(WAIT_S) for each in [pool.submit(begin) for _ in range(4)]]
            assert all(isinstance(each, BeginResult) for each in results), results
        queue = side.store.queues.get(HALF_TOPIC, 0)
        assert queue is not None
        assert queue.max_index == 40


@pytest.mark.parametrize("others", [Verdict.COMMIT, Verdict.ROLLBACK])
def test_of_decisions_at_once_one_is_taken(tmp_path: Path, others: Verdict) -> None:
    verdicts = [Verdict.COMMIT, others, others, others]
    visible: Counter[bytes] = Counter()
    with opened(tmp_path, waits_for_files=False) as side, ThreadPoolExecutor(4) as pool:
        for number in range(40):
            key = f"k{number}"
            take(side, [side.request(key)], [])
            started = threading.Barrier(4)

            def decide(
                verdict: Verdict, started: threading.Barrier = started, key: str = key
            ) -> DecisionResult | StorageError:
                started.wait(WAIT_S)
                return take(side, [], [Decide(key, verdict, "")])[1][0]

            futures = [pool.submit(decide, verdict) for verdict in verdicts]
            results = [each.result(WAIT_S) for each in futures]
            new = [
                each for each in results if isinstance(each, DecisionResult) and not each.repeated
            ]
            assert len(new) == 1
            if new[0].snapshot.state is State.COMMITTED:
                visible[key.encode()] += 1
        assert side.visible() == visible


def test_the_schedule_is_used_with_the_lock_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a check could be dropped by one thread while another one plans it."""
    locks: list[bool] = []

    def watch(method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            locks.append(side.engine._lock.locked())
            return method(*arguments, **named)

        return call

    with opened(tmp_path, BUSY) as side:
        for name in ("advance", "begin", "reschedule", "postpone", "drop", "due", "clear"):
            monkeypatch.setattr(Schedule, name, watch(getattr(Schedule, name)))
        next_at = Schedule.next_at.fget  # type: ignore[attr-defined]  # a property
        monkeypatch.setattr(Schedule, "next_at", property(watch(next_at)))
        side.engine.take([side.request("a")], [])
        side.engine.take_at_hand([side.request("b")], [])
        side.step()
        leased = [each.key for each in side.engine.lease(None, 10)]
        side.engine.count_checks([CheckSent("a", "p", None)])
        side.engine.release(leased)
        side.engine.take([], [Decide(key, Verdict.COMMIT, "") for key in "ab"])
        assert len(locks) > 10
        assert all(locks)


def test_counts_can_be_read_while_the_log_is_read_and_after_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus does not wait for the half messages, and gets no error for them."""
    with opened(tmp_path) as side:
        side.engine.take([side.request("a", "b")], [])
        half = side.store.lookups.by_key(HALF_TOPIC, "a").records[0]
        (message, _) = side.request("a", "b").messages
        offset = half.physical_offset
        real = replace(message, sys_flag=8, prepared_transaction_offset=offset)
        TransactionLog(side.store).append([real], makes_files=True)
    with open_store(tmp_path) as store, ThreadPoolExecutor(2) as pool:
        seams = production_seams()
        engine = TransactionEngine(store, seams, UniqueKeys(seams), QUIET)
        monkeypatch.setattr(store, "append", refuse)
        with blocked(store, "append") as gate:
            step = pool.submit(engine.step, time.monotonic())
            assert gate.reached.wait(WAIT_S)
            counts = pool.submit(read_counts, engine)
            gate.go_on.set()
            step.result(WAIT_S)
            counts.result(WAIT_S)
        assert "no room" in (engine.trouble or "")
        assert read_counts(engine) == (0, 0, [], {}, 0)


def read_counts(engine: TransactionEngine) -> tuple[object, ...]:
    return (
        engine.pending_count,
        engine.set_aside_count,
        engine.pending_born_ms,
        engine.half_counts,
        engine.checks_waiting,
    )


def refuse(*_: object) -> list[Placement]:
    raise DiskFull("no room")
