"""Half messages of a broker that no decision can be right for, and those with a delay."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError, TransactionDecided, TransactionGone
from mqstore.storage.layout import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from mqstore.storage.transactions import (
    CheckSent,
    Decide,
    Rules,
    State,
    TransactionEngine,
    Verdict,
)
from tests.field import unpack
from tests.unit.storage.stores import open_store
from tests.unit.storage.transactions.engine_on_disk import Side, opened

NOW = Rules(transaction_timeout_ms=0)


def put_half(store: MessageStore, key: str, topic: str, **more: str) -> None:
    """Store a half message as a broker's timer or schedule delivers it: with its DELAY."""
    table = {"UNIQ_KEY": key, "REAL_TOPIC": topic, "REAL_QID": "0", "PGROUP": "producers", **more}
    encoded = properties.encode(table, trailing_separator=store.format.trailing_property_separator)
    message = Message(
        HALF_TOPIC, 0, key.encode(), encoded, store.host, store.host, time.time_ns() // 1_000_000
    )
    placement = store.log.append(message)
    store.dispatcher.run_inline(placement.end)


def decide(side: Side, key: str, verdict: Verdict, *, by_hand: bool = False) -> object:
    return side.engine.take([], [Decide(key, verdict, "", by_hand)])[1][0]


def test_a_half_that_a_timer_misplaced_is_set_aside_and_never_checked(tmp_path: Path) -> None:
    root, seams = unpack("txt5", tmp_path), production_seams()
    with open_store(root, StoreConfig()) as store:
        engine = TransactionEngine(store, seams, UniqueKeys(seams), NOW)
        side = Side(store, engine)
        for _ in range(2):
            side.step()
        due = [each.key for each in engine.lease(None, 100, None)]
        assert (engine.pending_count, engine.set_aside_count) == (1, 1)
        kept = store.lookups.records(CHECK_MAX_TIME_TOPIC, 0, 0, 10).records
        key = (kept[0].properties or {})["UNIQ_KEY"]
        assert key not in due
        assert "real topic is lost" in engine.find(key).why
        assert decide(side, due[0], Verdict.ROLLBACK)
        with pytest.raises(TransactionDecided, match="set aside"):
            _raise(decide(side, key, Verdict.COMMIT))
        with pytest.raises(TransactionGone, match="real topic is lost"):
            _raise(decide(side, key, Verdict.COMMIT, by_hand=True))
        engine.leave()


def test_an_odd_half_disturbs_no_other_transaction(tmp_path: Path) -> None:
    with opened(tmp_path, NOW) as side:
        side.engine.take([side.request("a")], [])
        put_half(side.store, "odd", HALF_TOPIC, DELAY="3")
    with opened(tmp_path, NOW) as side:
        loads = side.engine.counts.load_s
        begun = side.engine.take([side.request("b"), side.request("c")], [])[0]
        assert [each.state for each in begun] == [State.PENDING] * 2  # type: ignore[union-attr] # results
        side.step()
        due = [each.key for each in side.engine.lease(None, 100, None)]
        assert side.engine.count_checks([CheckSent(key, "p", None) for key in due])
        assert "odd" not in due
        decide(side, "a", Verdict.COMMIT)
        assert side.visible() == {b"a": 1}
        assert side.engine.counts.load_s == loads
        assert side.store.queues.topics().count(SCHEDULE_TOPIC) == 0


def test_copies_of_a_half_with_a_delay_have_none(tmp_path: Path) -> None:
    with opened(tmp_path, NOW) as side:
        put_half(side.store, "late", "T", DELAY="3", TIMER_DELAY_SEC="60")
        put_half(side.store, "later", "T", DELAY="3")
    with opened(tmp_path, NOW) as side:
        side.step()
        due = [each.key for each in side.engine.lease(None, 100, None)]
        assert sorted(due) == ["late", "later"]
        side.engine.count_checks([CheckSent(key, "p", None) for key in due])
        copies = side.store.lookups.records(HALF_TOPIC, 0, 2, 10).records
        assert len(copies) == 2
        for each in copies:
            assert not {"DELAY", "TIMER_DELAY_SEC"} & (each.properties or {}).keys()
        for key in due:
            decide(side, key, Verdict.COMMIT)
        assert side.visible() == {b"late": 1, b"later": 1}


def _raise(found: object) -> None:
    assert isinstance(found, StorageError), found
    raise found
