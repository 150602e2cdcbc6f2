"""Whether a store holds the transaction that a begin repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import TransactionsNotLoaded, UniqueKeyTaken
from mqstore.storage.layout import SysFlag
from mqstore.storage.system.threads import production_seams
from mqstore.storage.transactions import Begin, State, TransactionEngine, table
from tests.unit.storage.transactions.engine_bench import (
    GROUP,
    QUEUE_ID,
    TOPIC,
    Bench,
    counted,
)
from tests.unit.storage.transactions.engine_on_disk import QUIET, opened


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_transaction_is_known_while_it_is_pending_and_when_it_was_decided(bench: Bench) -> None:
    bench.begin("pending", "second")
    bench.begin("committed")
    bench.begin("rolled-back")
    bench.commit("committed")
    bench.roll_back("rolled-back")
    for key in ("pending", "committed", "rolled-back"):
        assert bench.engine.knows(TOPIC, [key])
    assert bench.engine.knows(TOPIC, ["pending", "second"])


def test_an_unknown_key_needs_no_look_into_the_log(bench: Bench) -> None:
    bench.begin("a")
    with counted(bench.world.store.lookups, "by_key", "records") as reads:
        assert not bench.engine.knows(TOPIC, ["b"])
        assert not bench.engine.knows(TOPIC, ["b", "c"])
        assert bench.engine.knows(TOPIC, ["a"])
    assert reads.count == 0


def test_messages_of_the_topic_are_no_transactions(bench: Bench) -> None:
    bench.append([bench.message("plain")])
    bench.begin("a", "second")
    assert not bench.engine.knows(TOPIC, ["plain"])
    assert not bench.engine.knows(TOPIC, ["second"])


@pytest.mark.parametrize("how", ["commit", "roll_back"])
def test_what_memory_forgot_is_found_in_the_log(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "HISTORY_MAX", 0)
    bench.begin("a")
    getattr(bench, how)("a")
    assert bench.engine.knows(TOPIC, ["a"])


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_transaction_is_known_after_a_restart(bench: Bench, is_killed: bool) -> None:
    """Saved progress has passed the one that was decided, unless the process was killed."""
    for key in ("pending", "committed", "rolled-back"):
        bench.begin(key)
    bench.commit("committed")
    bench.roll_back("rolled-back")
    if not is_killed:
        bench.engine.leave()
    bench.restart()
    for key in ("pending", "committed", "rolled-back"):
        assert bench.engine.knows(TOPIC, [key])
    assert not bench.engine.knows(TOPIC, ["other"])


@pytest.mark.parametrize("left", ["a", "b"])
def test_what_a_power_cut_left_of_a_commit_is_known(bench: Bench, left: str) -> None:
    message = bench.message(left)
    bench.append([structs.replace(message, sys_flag=int(SysFlag.TRANSACTION_COMMIT))])
    bench.restart()
    assert bench.engine.knows(TOPIC, ["a", "b"])


def test_a_begin_under_the_key_of_a_committed_message_of_another_body_is_refused(
    bench: Bench,
) -> None:
    """Its half message and its op record expired, or a power cut took them."""
    message = bench.message("a")
    bench.append([structs.replace(message, sys_flag=int(SysFlag.TRANSACTION_COMMIT))])
    bench.restart()
    other = Begin(GROUP, [structs.replace(message, body=b"another")])
    refused = bench.try_begin(other)
    assert isinstance(refused, UniqueKeyTaken), refused
    assert "another body" in str(refused)
    assert isinstance(bench.try_begin(bench.request("a")), TransactionsNotLoaded)
    bench.step(1)
    assert bench.begin("a").state is State.COMMITTED
    assert bench.bodies() == [b"a"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_begin_under_the_key_of_a_deleted_topic_is_not_answered_committed(
    bench: Bench, is_restarted: bool
) -> None:
    bench.begin("a")
    bench.commit("a")
    assert bench.begin("a").state is State.COMMITTED
    store = bench.world.store
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC, queues=QUEUE_ID + 1)
    if is_restarted:
        bench.restart()
    refused = bench.try_begin(bench.request("a"))
    assert isinstance(refused, UniqueKeyTaken), refused
    assert "was deleted since" in str(refused)


def test_before_the_log_was_read_nothing_is_said(tmp_path: Path) -> None:
    with opened(tmp_path) as side:
        seams = production_seams()
        fresh = TransactionEngine(side.store, seams, UniqueKeys(seams), QUIET)
        with pytest.raises(TransactionsNotLoaded):
            fresh.knows(TOPIC, ["a"])
