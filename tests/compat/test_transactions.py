"""Transactions of a TransactionMQProducer go on here, and ours at a broker that checks them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage.transactions import Rules, State, Verdict
from tests.compat.examples import copy_of, example_directory
from tests.compat.our_transactions import GROUP, TOPIC, OurSide, opened
from tests.compat.referee import Referee
from tests.compat.scripts import Script
from tests.compat.versions import mainly
from tests.long_runs import few_first

pytestmark = [pytest.mark.referee, pytest.mark.slow]

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "flushConsumerOffsetInterval": 10,
}
BROKER = {
    **SIZES,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 300,
    "transactionCheckMax": 1000,
}
SAID = {"a": "commit", "b": "rollback", "c": "unknown", "d": "unknown", "e": "commit"}
LATE_OPS = {"transactionOpBatchInterval": 600_000, "transactionOpMsgMaxSize": 1 << 20}

Line = dict[str, Any]


@pytest.fixture
def store() -> Iterator[Path]:
    with example_directory(Script(SIZES, [])) as directory:
        yield directory / "store"


def config(referee: Referee, **settings: Any) -> dict[str, Any]:
    """5.x writes op records every three seconds by default."""
    soon = {"transactionOpBatchInterval": 50} if referee.format == "5.x" else {}
    return {**BROKER, **soon, **settings}


def transact(
    referee: Referee,
    store: Path,
    *,
    say: Mapping[str, str] | None = None,
    answers: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    **until: int | bool | list[str],
) -> tuple[dict[str, Line], list[Line]]:
    """A broker on the store, and a producer: what was sent by body, and the checks that came."""
    request = {
        "config": config(referee, **(settings or {})),
        "group": GROUP,
        "topic": TOPIC,
        "sends": [{"body": b, "keys": f"k-{b}", "say": how} for b, how in (say or {}).items()],
        "answers": dict(answers or {}),
        **until,
    }
    lines = referee.transact(store, request)
    sent = {line["body"]: line for line in lines if line["t"] == "sent"}
    assert all(line["status"] == "SEND_OK" for line in sent.values())
    return sent, [line for line in lines if line["t"] == "check"]


def most(checks: list[Line], body: str) -> int:
    """The highest count that a check of this message said."""
    return max(int(line["times"]) for line in checks if line["body"] == body)


def finish(side: OurSide, keys: Mapping[str, str]) -> None:
    side.decide(keys["c"], Verdict.COMMIT)
    side.decide(keys["d"], Verdict.ROLLBACK)


@pytest.mark.parametrize("end", few_first(["halted", "closed"], others=pytest.mark.nightly))
@mainly("5.4.0")
def test_a_producers_transactions_go_on_here(referee: Referee, store: Path, end: str) -> None:
    sent, checks = transact(
        *(referee, store),
        say=SAID,
        checks=4,
        checked=["c", "d"],
        visible=2,
        decided=["a", "b", "e"],
        halt=end == "halted",
    )
    keys = {body: line["uniqKey"] for body, line in sent.items()}
    with opened(store, SIZES, referee.format) as ours:
        assert ours.visible() == {"a": 1, "e": 1}
        assert [ours.state(keys[body]) for body in SAID] == [
            *(State.COMMITTED, State.ROLLED_BACK, State.PENDING, State.PENDING, State.COMMITTED),
        ]
        for body in ("a", "b", "e"):
            # A broker appends a copy of what it checks; on a slow machine it checks these too.
            copies = ours.copies(keys[body])
            assert copies[0] == sent[body]["halfOffset"]
            assert ours.first_half(keys[body]) in copies
        counted = ours.check_times()
        assert counted.keys() == {keys["c"], keys["d"]}
        for body in ("c", "d"):
            assert counted[keys[body]] >= most(checks, body) > 0
            assert ours.engine.find(keys[body]).group == GROUP
            (half,) = ours.newest_halves(keys[body])
            assert (half.topic, half.queue_id) == (TOPIC, sent[body]["queueId"])
        finish(ours, keys)
        assert ours.visible() == {"a": 1, "c": 1, "e": 1}
    # And back: the broker goes on with a new one, and checks no other.
    # A broker that checks a half message again before its op record is written commits it twice.
    _, checks = transact(
        referee,
        store,
        say={"f": "unknown"},
        answers={"f": "commit"},
        checks=1,
        visible=4,
        decided=["f"],
        settings={"transactionCheckInterval": 5000},
    )
    assert {line["body"] for line in checks} == {"f"}
    with opened(store, SIZES, referee.format) as ours:
        visible = ours.visible()
        assert visible.pop("f") >= 1
        assert visible == dict.fromkeys("ace", 1)
        assert ours.pending() == []


@mainly("5.4.0")
def test_a_commit_of_a_broker_that_died_before_its_op_record_is_not_repeated(
    referee: Referee, store: Path
) -> None:
    """5.x collects what its op records name; 4.9 writes each at once, if not in one put."""
    late = LATE_OPS if referee.format == "5.x" else {}
    says = {"a": "commit", "b": "unknown"}
    sent, _ = transact(referee, store, say=says, settings=late, visible=1, halt=True)
    with opened(store, SIZES, referee.format) as ours:
        assert ours.state(sent["a"]["uniqKey"]) is State.COMMITTED
        assert ours.check_times().keys() == {sent["b"]["uniqKey"]}
        assert ours.visible() == {"a": 1}


@pytest.mark.parametrize("end", ["closed", "killed"])
@mainly("4.9.7")
def test_our_transactions_go_on_at_a_broker(referee: Referee, store: Path, end: str) -> None:
    with opened(store, SIZES, referee.format) as ours:
        pair = ours.begin("a", "b")
        for body, verdict in (("c", Verdict.COMMIT), ("d", Verdict.ROLLBACK)):
            ours.decide(ours.begin(body), verdict)
        ours.decide(pair, Verdict.COMMIT)
        pending = {body: ours.begin(body) for body in "efg"}
        for _ in range(2):
            assert set(ours.check()) == set(pending.values())
        assert ours.check_times() == dict.fromkeys(pending.values(), 2)
        ours.save_progress()
        saved = store / "config" / "consumerOffset.json"
        while not saved.exists() or "CID_RMQ_SYS_TRANS" not in saved.read_text():
            time.sleep(0.001)
        killed = copy_of(store)
    if end == "killed":
        store = killed
    _, checks = transact(
        *(referee, store),
        answers={"e": "commit", "f": "rollback"},
        checks=4,
        checked=["e", "f", "g"],
        visible=4,
        decided=["e", "f"],
    )
    assert {line["body"] for line in checks} == set("efg")
    for body, key in pending.items():
        mine = [line for line in checks if line["body"] == body]
        times = [int(line["times"]) for line in mine]
        assert min(times) > 2, "counted on, by a broker also when no producer is there"
        assert len(set(times)) == len(times), "older copies are not checked"
        assert {line["transactionId"] for line in mine} == {key}
    with opened(store, SIZES, referee.format) as ours:
        visible = ours.visible()
        assert visible.pop("e") >= 1, "a broker may commit again what it checks again"
        assert visible == dict.fromkeys("abc", 1)
        assert ours.state(pending["e"]) is State.COMMITTED
        assert ours.state(pending["f"]) is State.ROLLED_BACK
        assert ours.check_times()[pending["g"]] >= most(checks, "g")


@mainly("4.9.7")
def test_what_a_broker_checked_too_often_is_set_aside_here(referee: Referee, store: Path) -> None:
    few = {"transactionCheckMax": 2, "transactionCheckInterval": 100}
    says = {"a": "unknown"}
    sent, checks = transact(referee, store, say=says, settings=few, checks=2, halfOffset=3)
    key = sent["a"]["uniqKey"]
    assert most(checks, "a") == 2
    with opened(store, SIZES, referee.format) as ours:
        assert ours.state(key) is State.SET_ASIDE
        assert ours.engine.set_aside_count == 1
        ours.decide(key, Verdict.COMMIT, by_hand=True)
        assert ours.visible() == {"a": 1}


@mainly("4.9.7")
def test_what_we_set_aside_is_not_checked_by_a_broker(referee: Referee, store: Path) -> None:
    rules = Rules(transaction_timeout_ms=0, check_interval_ms=0, check_max=1)
    with opened(store, SIZES, referee.format, rules) as ours:
        key = ours.begin("a")
        assert ours.check() == [key]
        assert ours.check() == []
        assert ours.state(key) is State.SET_ASIDE
    _, checks = transact(
        *(referee, store), say={"b": "unknown"}, answers={"b": "commit"}, checks=1, visible=1
    )
    assert {line["body"] for line in checks} == {"b"}


@mainly("5.4.0")
def test_a_broker_passes_what_stands_for_halves_that_a_power_cut_took(
    referee: Referee, store: Path
) -> None:
    with opened(store, SIZES, referee.format) as ours:
        ours.begin("a")
        ours.name_half(3)
    with opened(store, SIZES, referee.format) as ours:
        assert ours.first_half(ours.begin("b")) == 4
    _, checks = transact(
        *(referee, store),
        say={"f": "unknown"},
        answers=dict.fromkeys("abf", "commit"),
        checked=[*"abf"],
        visible=3,
        decided=[*"abf"],
    )
    assert {line["body"] for line in checks} == set("abf")
    with opened(store, SIZES, referee.format) as ours:
        assert ours.visible().keys() == set("abf"), "a broker may commit again what it checks again"
        assert ours.pending() == []
