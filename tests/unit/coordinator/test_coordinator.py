"""The coordinator over a real store: what producers, consumers and brokers see of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
from msgspec import structs

from mqstore.coordinator import halves
from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide, Decided
from mqstore.coordinator.errors import (
    Contradicted,
    Fenced,
    LogRefused,
    LogUnavailable,
    NotLoaded,
    Reopened,
    TransactionUnknown,
    UniqueKeysTaken,
)
from mqstore.coordinator.halves import Decision, Verdict
from mqstore.coordinator.records import NewRecord, Placement
from mqstore.coordinator.schedule import Rules
from mqstore.coordinator.transactions import Transaction
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PROPERTIES_LENGTH_MAX,
    StoreFormat,
)
from tests.simulation import Loss
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.store_log import StoreLog, message_of

GROUP = "producers"
RECORDS_MAX = 250
RULES = Rules(transaction_timeout_ms=6_000, check_interval_ms=60_000, check_max=3)


class NarrowLog(StoreLog):
    """Takes few records at a time, as store-writer takes a request of bounded size."""

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        if len(records) > RECORDS_MAX:
            raise LogRefused("the request's body is too large")
        return super().append(records)


class Bench:
    """A store, a coordinator for it, and the next ones after they end."""

    def __init__(self, store_format: StoreFormat = StoreFormat.V4_9, rules: Rules = RULES) -> None:
        self.world = DelayedStore(store_format=store_format)
        self.rules = rules
        self.coordinator = self.lead()

    def lead(self) -> Coordinator:
        """The next coordinator."""
        seams = self.world.machine.seams
        log = NarrowLog(lambda: self.world.store)
        self.coordinator = Coordinator(log, seams.clock, UniqueKeys(seams), self.rules)
        self.step()
        return self.coordinator

    def step(self, seconds: float = 0.0) -> float:
        self.world.run(seconds)
        return self.coordinator.step(self.world.machine.clock.monotonic())

    def message(self, key: str, topic: str = "T", queue_id: int = 3) -> NewRecord:
        born_ms = self.world.machine.clock.now_ms()
        table = {"UNIQ_KEY": key, "TAGS": "a"}
        return NewRecord(topic, queue_id, key.encode(), table, "10.0.0.1:99", born_ms)

    def begin(self, *keys: str) -> Transaction:
        (found,) = self.coordinator.begin([Begin(GROUP, [self.message(key) for key in keys])])
        assert isinstance(found, Transaction), found
        return found

    def decide(self, key: str, verdict: Verdict, *, by_hand: bool = False) -> Decided | Exception:
        (found,) = self.coordinator.decide([Decide(key, verdict, "producer", by_hand)])
        return found

    def commit(self, key: str) -> Decided | Exception:
        return self.decide(key, Verdict.COMMIT)

    def check(self) -> list[str]:
        """Ask whoever is due; the keys asked about."""
        due = [each.key for each in self.coordinator.due()]
        self.coordinator.sending(due)
        return self.coordinator.sent(due)

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        return self.world.records(topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 3) -> list[bytes]:
        return [found.body for found in self.records(topic, queue_id)]

    def saved(self) -> tuple[int | None, int | None]:
        offsets = StoreLog(lambda: self.world.store).offsets()
        return offsets.get((HALF_TOPIC, 0)), offsets.get((OP_TOPIC, 0))


@pytest.fixture(params=list(StoreFormat))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_a_begun_message_is_not_visible(bench: Bench) -> None:
    bench.begin("a")
    assert bench.bodies() == []
    assert bench.bodies(HALF_TOPIC, 0) == [b"a"]


def test_a_committed_message_is_visible_once_with_its_half_offset(bench: Bench) -> None:
    bench.begin("a")
    bench.commit("a")
    (half,), (real,), (op,) = (
        bench.records(HALF_TOPIC),
        bench.records("T", 3),
        bench.records(OP_TOPIC),
    )
    assert real.sys_flag & 0xC == 0x8
    assert real.prepared_transaction_offset == half.physical_offset
    assert op.body.rstrip(b",") == b"0"
    assert real.physical_offset + real.size == op.physical_offset, "one contiguous append"


def test_a_rolled_back_message_is_never_visible(bench: Bench) -> None:
    bench.begin("a")
    bench.decide("a", Verdict.ROLLBACK)
    bench.lead()
    assert bench.bodies() == []
    assert bench.coordinator.state.pending == {}


def test_repeating_a_decision_changes_nothing(bench: Bench) -> None:
    bench.begin("a")
    first, second = bench.commit("a"), bench.commit("a")
    bench.lead()
    third = bench.commit("a")
    assert [each.repeated for each in (first, second, third) if isinstance(each, Decided)] == [
        *(False, True, True)
    ]
    assert bench.bodies() == [b"a"]


def test_a_contrary_decision_is_told_what_was_decided_when(bench: Bench) -> None:
    bench.begin("a")
    bench.commit("a")
    for _ in range(2):
        refused = bench.decide("a", Verdict.ROLLBACK)
        assert isinstance(refused, Contradicted)
        assert (refused.decision, refused.why) == ("commit", "producer")
        assert refused.decided_at_ms == bench.world.machine.clock.now_ms()
        bench.lead()
    assert bench.bodies() == [b"a"]


def test_decisions_of_one_batch_see_each_other(bench: Bench) -> None:
    bench.begin("a")
    asked = [Decide("a", verdict, "") for verdict in (Verdict.COMMIT, Verdict.COMMIT)]
    first, second, third = bench.coordinator.decide([*asked, Decide("a", Verdict.ROLLBACK, "")])
    assert isinstance(first, Decided)
    assert isinstance(second, Decided)
    assert (first.repeated, second.repeated) == (False, True)
    assert isinstance(third, Contradicted)


def test_messages_of_one_transaction_become_visible_together(bench: Bench) -> None:
    bench.begin("a", "b", "c")
    assert bench.bodies() == []
    bench.commit("a")
    assert bench.bodies() == [b"a", b"b", b"c"]
    offsets = [offset for op in bench.records(OP_TOPIC) for offset in op.body.split(b",") if offset]
    assert offsets == [b"0", b"1", b"2"]


def test_begun_again_under_the_same_keys_it_is_the_same(bench: Bench) -> None:
    first = bench.begin("a", "b")
    assert bench.begin("a", "b") is first
    bench.lead()
    assert bench.begin("a", "b").key == first.key
    assert len(bench.records(HALF_TOPIC)) == 2


def test_another_transaction_under_the_same_key_is_refused(bench: Bench) -> None:
    bench.begin("a", "b")
    for others in (
        Begin(GROUP, [bench.message("a")]),
        Begin("another", [bench.message("a"), bench.message("b")]),
        Begin(GROUP, [bench.message("a"), structs.replace(bench.message("b"), body=b"another")]),
    ):
        for _ in range(2):
            (refused,) = bench.coordinator.begin([others])
            assert isinstance(refused, UniqueKeysTaken)
            bench.lead()
    assert len(bench.records(HALF_TOPIC)) == 2


def test_another_body_is_seen_within_one_batch_and_where_memory_knows_nothing(
    bench: Bench,
) -> None:
    other = structs.replace(bench.message("a"), body=b"another")
    begins = [Begin(GROUP, [message]) for message in (bench.message("a"), other)]
    first, second = bench.coordinator.begin(begins)
    assert isinstance(first, Transaction)
    assert isinstance(second, UniqueKeysTaken)
    bench.commit("a")
    bench.coordinator.state.history.clear()
    (refused,) = bench.coordinator.begin(begins[1:])
    assert isinstance(refused, UniqueKeysTaken)
    assert (bench.bodies(), bench.begin("a").key) == ([b"a"], "a")


def test_an_unknown_transaction_is_named(bench: Bench) -> None:
    assert isinstance(bench.commit("nobody"), TransactionUnknown)


def test_what_is_pending_is_there_after_a_restart(bench: Bench) -> None:
    bench.begin("a")
    bench.begin("b", "c")
    bench.world.kill()
    bench.lead()
    assert list(bench.coordinator.state.pending) == ["a", "b"]
    bench.commit("b")
    assert bench.bodies() == [b"b", b"c"]


def test_an_old_coordinator_cannot_decide(bench: Bench) -> None:
    bench.begin("a")
    old = bench.coordinator
    bench.lead()
    with pytest.raises(Fenced):
        old.decide([Decide("a", Verdict.COMMIT, "")])
    assert bench.bodies() == []


def test_what_a_power_cut_took_decides_nothing_that_is_begun_later(bench: Bench) -> None:
    bench.begin("a")
    bench.world.restart(bench.world.machine.disk.power_cut(1, Loss.DROP))
    with pytest.raises(LogUnavailable):  # the coordinator, elsewhere, does not know of it
        bench.decide("a", Verdict.ROLLBACK)
    bench.step()
    assert isinstance(bench.decide("a", Verdict.ROLLBACK), TransactionUnknown)
    bench.begin("b")
    bench.lead()
    assert list(bench.coordinator.state.pending) == ["b"]


def test_an_idle_coordinator_saves_nothing_that_a_power_cut_took(bench: Bench) -> None:
    bench.begin("a")
    bench.world.store.flush.flush_all()
    bench.commit("a")
    bench.coordinator.step(bench.world.machine.clock.monotonic() + 10)  # what it is to save
    bench.world.restart(bench.world.machine.disk.power_cut(1, Loss.DROP))
    for _ in range(10):  # others put more than was lost
        bench.world.store.append(message_of(bench.world.store, bench.message("other", "U")))
    bench.world.store.flush.flush_all()
    with pytest.raises(Reopened):
        bench.step(21)
    for _ in range(3):
        bench.step(11)
    assert list(bench.coordinator.state.pending) == ["a"]
    assert bench.saved()[0] in (None, 0)


def op_of_a_lost_half(bench: Bench, *offsets: int) -> StoreLog:
    """What a power cut may leave: the op record is there, the halves before it are not."""
    log = StoreLog(lambda: bench.world.store)
    decision = Decision(Verdict.COMMIT, 1, "producer")
    standing = log.take_over()
    log.append(
        halves.ops_of(offsets, "lost", decision, standing.host, "0" * 32, standing.store_format)
    )
    return log


def test_an_op_record_decides_no_half_that_comes_after_it(bench: Bench) -> None:
    log = op_of_a_lost_half(bench, 0)
    log.append(Begin(GROUP, [bench.message("a")]).halves(bench.world.format))
    bench.lead()
    assert list(bench.coordinator.state.pending) == ["a"]
    assert bench.bodies() == []


def test_no_half_gets_a_queue_offset_that_an_op_record_names(bench: Bench) -> None:
    bench.begin("a")
    op_of_a_lost_half(bench, 1, 2)
    bench.lead()
    bench.begin("b")
    (half,) = bench.coordinator.state.pending["b"].halves
    assert half.queue_offset == 3
    bench.lead()
    assert list(bench.coordinator.state.pending) == ["a", "b"]
    bench.commit("b")
    assert bench.bodies() == [b"b"]


def test_what_stands_for_lost_halves_is_named_by_op_records(bench: Bench) -> None:
    """A broker would check the others, whatever they are."""
    op_of_a_lost_half(bench, 250)
    bench.lead()
    fillers, ops = bench.records(HALF_TOPIC), bench.records(OP_TOPIC)
    named = {offset for op in ops for offset in halves.offsets_in(op.body)}
    assert [each.queue_offset for each in fillers] == sorted(named) == list(range(251))
    assert all(each.body for each in fillers)


def test_a_commit_that_was_cut_short_is_completed(bench: Bench) -> None:
    bench.begin("a", "b", "c")
    half = bench.records(HALF_TOPIC)[0]
    real = structs.replace(
        bench.message("a"), sys_flag=8, prepared_transaction_offset=half.physical_offset
    )
    bench.world.store.append(message_of(bench.world.store, real))
    bench.lead()
    assert sorted(bench.bodies()) == [b"a", b"b", b"c"]
    assert not bench.coordinator.state.pending


def test_commits_of_which_only_op_records_are_missing_are_completed_however_many(
    bench: Bench,
) -> None:
    """A broker of 5.x that is killed leaves seconds of them."""
    keys = [f"k{number}" for number in range(RECORDS_MAX + 10)]
    begun = [bench.begin(key).first for key in keys]
    log = StoreLog(lambda: bench.world.store)
    log.take_over()
    for key, half in zip(keys, begun, strict=True):
        offset = half.physical_offset
        log.append(
            [structs.replace(bench.message(key), sys_flag=8, prepared_transaction_offset=offset)]
        )
    bench.lead()
    assert not bench.coordinator.state.pending
    assert bench.bodies() == [key.encode() for key in keys]


def test_a_half_of_which_no_copy_can_be_stored_keeps_no_other_from_being_asked_about(
    bench: Bench,
) -> None:
    message = bench.message("full")
    for length in range(PROPERTIES_LENGTH_MAX, 0, -1):
        full = structs.replace(message, properties={**message.properties, "p": "x" * length})
        (found,) = bench.coordinator.begin([Begin(GROUP, [full])])
        if isinstance(found, Transaction):
            break
    bench.begin("other")
    bench.step(7)
    assert [each.key for each in bench.coordinator.due()] == ["full", "other"]
    assert bench.check() == ["other"]
    bench.step(60)
    with pytest.raises(LogRefused, match="properties"):
        bench.coordinator.sent(["full"])
    assert isinstance(bench.commit("full"), Decided)
    assert bench.bodies() == [b"full"]


def test_what_a_power_cut_left_of_a_commit_is_not_committed_again(bench: Bench) -> None:
    """Only a real message is left, and the producer, who got no answer, begins again."""
    real = structs.replace(bench.message("b"), sys_flag=8, prepared_transaction_offset=77)
    bench.world.store.append(message_of(bench.world.store, real))
    again = [
        Begin(GROUP, [bench.message("a"), bench.message("b")]),
        Begin(GROUP, [bench.message("c")]),
    ]
    told = bench.coordinator.begin(again)
    assert all(isinstance(each, NotLoaded) for each in told)
    bench.step()
    assert sorted(bench.bodies()) == [b"a", b"b"]
    bench.begin("a", "b")
    decided = bench.commit("a")
    assert isinstance(decided, Decided)
    assert decided.repeated
    assert isinstance(bench.decide("a", Verdict.ROLLBACK), Contradicted)
    assert list(bench.coordinator.state.pending) == ["c"]
    assert sorted(bench.bodies()) == [b"a", b"b"]


def test_a_begin_that_was_cut_short_is_rolled_back(bench: Bench) -> None:
    log = StoreLog(lambda: bench.world.store)
    log.take_over()
    whole = Begin(GROUP, [bench.message("a"), bench.message("b")])
    log.append(whole.halves(StoreFormat.V4_9)[:1])
    bench.lead()
    assert not bench.coordinator.state.pending
    assert isinstance(bench.commit("a"), Contradicted)


def test_a_producer_is_asked_after_the_timeout_and_then_at_intervals(bench: Bench) -> None:
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


def test_a_longer_immunity_is_respected(bench: Bench) -> None:
    message = bench.message("a")
    table = {**message.properties, "CHECK_IMMUNITY_TIME_IN_SECONDS": "100"}
    bench.coordinator.begin([Begin(GROUP, [structs.replace(message, properties=table)])])
    bench.step(99)
    assert bench.check() == []
    bench.step(2)
    assert bench.check() == ["a"]


def test_a_check_that_was_not_sent_is_not_counted(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    for _ in range(10):
        due = [each.key for each in bench.coordinator.due()]
        assert due == ["a"]
        bench.coordinator.sending(due)
        assert bench.coordinator.due() == []
        bench.step(61)
    assert bench.coordinator.state.pending["a"].check_times == 0


def test_after_the_last_check_it_is_set_aside_and_shown(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    for _ in range(3):
        bench.check()
        bench.step(61)
    assert bench.bodies(CHECK_MAX_TIME_TOPIC, 0) == [b"a"]
    assert list(bench.coordinator.state.set_aside) == ["a"]
    bench.lead()
    assert list(bench.coordinator.state.set_aside) == ["a"]
    assert isinstance(bench.commit("a"), Contradicted)


def test_a_person_resolves_what_was_set_aside(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    for _ in range(3):
        bench.check()
        bench.step(61)
    assert isinstance(bench.decide("a", Verdict.COMMIT, by_hand=True), Decided)
    assert bench.bodies() == [b"a"]
    bench.lead()
    assert not bench.coordinator.state.set_aside
    decided = bench.commit("a")
    assert isinstance(decided, Decided)
    assert decided.repeated


def test_one_older_than_its_files_live_is_set_aside(bench: Bench) -> None:
    bench.begin("a")
    for _ in range(4):
        bench.world.machine.clock.step(72 * 3600 * 1000 // 4)
        bench.step(6)
    assert list(bench.coordinator.state.set_aside) == ["a"]


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
    bench.lead()
    assert bench.coordinator.state.half_end == 3


def test_one_that_leaves_saves_at_once_how_far_all_is_over(bench: Bench) -> None:
    for key in ("a", "b"):
        bench.begin(key)
    bench.commit("a")
    bench.step(7)
    assert bench.check() == ["b"]
    bench.coordinator.leave()
    assert bench.saved() == (2, 1), "a broker asks about the newest copy of b alone"


def test_a_story_tells_of_every_copy_which_op_record_resolves_it(bench: Bench) -> None:
    transaction = bench.begin("a")
    for _ in range(2):
        bench.step(61)
        bench.check()
    bench.coordinator.leave()
    assert bench.saved()[0] == 2, "past the older copies"
    bench.commit("a")
    assert transaction.resolved.keys() == {0, 1, 2}


def test_one_that_nobody_answers_for_does_not_hold_the_offsets_back() -> None:
    bench = Bench(rules=dataclasses.replace(RULES, carry_behind=10))
    bench.begin("old")
    for number in range(20):
        bench.begin(f"n{number}")
        bench.commit(f"n{number}")
    for _ in range(4):
        bench.step(5)
    assert (bench.saved()[0] or 0) > 10
    bench.lead()
    assert list(bench.coordinator.state.pending) == ["old"]
    assert bench.coordinator.state.pending["old"].check_times == 0
    bench.commit("old")
    assert bench.bodies()[-1] == b"old"


def test_a_brokers_op_record_resolves_a_half_whichever_copy_it_names(bench: Bench) -> None:
    bench.begin("a")
    bench.step(7)
    bench.check()
    store = bench.world.store
    body = b"0" if store.format is StoreFormat.V4_9 else b"0,"
    op = NewRecord(OP_TOPIC, 0, body, {"TAGS": "d"}, "10.0.0.1:99", 0)
    store.append(message_of(store, op))
    bench.lead()
    assert not bench.coordinator.state.pending


def test_what_a_broker_committed_before_it_was_killed_is_not_committed_again(bench: Bench) -> None:
    bench.begin("a")
    half = bench.records(HALF_TOPIC)[0]
    real = structs.replace(
        bench.message("a"), sys_flag=8, prepared_transaction_offset=half.physical_offset
    )
    bench.world.store.append(message_of(bench.world.store, real))
    bench.lead()
    decided = bench.commit("a")
    assert isinstance(decided, Decided)
    assert decided.repeated
    assert bench.bodies() == [b"a"]


def test_what_is_decided_wakes_nobody_at_the_time_of_its_check(bench: Bench) -> None:
    bench.begin("a")
    bench.step(1)
    bench.begin("b")
    first = bench.coordinator.next_check_at
    bench.commit("a")
    assert bench.coordinator.next_check_at == first + 1
    bench.commit("b")
    assert bench.coordinator.next_check_at == math.inf
