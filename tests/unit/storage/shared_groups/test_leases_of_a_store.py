"""Shared groups over a real store: what is delivered, to whom, and what a broker finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit, Position
from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    GroupDisabled,
    GroupUnknown,
    LimitReached,
    MembersFull,
    ReceiptInvalid,
    TopicNotReadable,
    TopicNotWritable,
    TopicUnknown,
)
from mqstore.storage.lookup.pull_filter import parse_tags
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import expired_unread
from mqstore.storage.paths import segment_name
from mqstore.storage.seams import Seams
from mqstore.storage.shared_groups import (
    Delivered,
    ReceiptStatus,
    Received,
    SharedGroups,
    Subscription,
    decode_by_queue,
    decode_receipts,
    queue_leases,
    returned,
)
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, message, open_store, put_some

T = [Subscription("T")]
OK = ReceiptStatus.OK


class HandClock:
    """A clock that goes on when the test says so."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self._clock = production_seams().clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self.time_s


class Consumers:
    """A store with the shared groups of one process."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.clock = HandClock()
        seams: Seams = replace(production_seams(), clock=self.clock)
        self.groups = SharedGroups(store, seams, 0)

    def receive(
        self,
        count: int = 100,
        group: str = "g",
        *,
        topics: Sequence[Subscription] = T,
        max_bytes: int = 1 << 20,
    ) -> Received:
        return self.groups.receive(group, topics, count=count, max_bytes=max_bytes, invisible_s=60)

    def receive_in_memory(self, count: int = 100, wanted: str = "") -> Received | None:
        topics = [Subscription("T", parse_tags(wanted))]
        return self.groups.receive_in_memory(
            "g", topics, count=count, max_bytes=1 << 20, invisible_s=60
        )

    def acknowledge(self, *delivered: Delivered, group: str = "g") -> list[ReceiptStatus]:
        return self.groups.acknowledge(group, decode_receipts(each.receipt for each in delivered))

    def give_back(self, *delivered: Delivered, level: int = 0, reason: str = "") -> None:
        given = decode_receipts(each.receipt for each in delivered)
        statuses, _ = self.groups.give_back("g", given, level, reason)
        assert statuses == [OK] * len(delivered)

    def offsets(self, group: str = "g") -> list[int | None]:
        return [each.committed for each in self.store.offsets.of(group, "T")]

    def of_topic(self, topic: str) -> list[Record]:
        return self.store.lookups.records(topic, 0, 0, 100).records


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[Consumers]:
    with open_store(tmp_path / "store", deliver_delayed=False) as store:
        store.create_topic("T", queues=3)
        put_some(store, 30)
        yield Consumers(store)


def places(delivered: Sequence[Delivered]) -> list[tuple[int, int]]:
    return [(each.record.queue_id, each.record.queue_offset) for each in delivered]


def test_each_message_is_leased_to_one_consumer(consumers: Consumers) -> None:
    first, second, third = (consumers.receive(12) for _ in range(3))

    found = [*first.messages, *second.messages, *third.messages]
    assert sorted(places(found)) == [(q, n) for q in range(3) for n in range(10)]
    assert [len(each.messages) for each in (first, second, third)] == [12, 12, 6]
    assert {each.attempt for each in found} == {1}
    assert consumers.receive().messages == []


def test_messages_behind_those_just_received_come_from_memory(consumers: Consumers) -> None:
    assert consumers.receive_in_memory() is None  # the first ones may lie on the disk
    found = consumers.receive(12).messages
    assert consumers.receive_in_memory(wanted="A") is None
    again = consumers.receive_in_memory()
    assert again is not None
    assert sorted(places([*found, *again.messages])) == [
        (q, n) for q in range(3) for n in range(10)
    ]
    consumers.clock.time_s += 30
    assert consumers.receive_in_memory() is None


def test_messages_in_memory_do_not_overtake_those_to_be_delivered_again(
    consumers: Consumers,
) -> None:
    before = consumers.receive(1).messages
    consumers.groups.extend("g", decode_receipts([before[0].receipt]), 0)
    while (found := consumers.receive_in_memory(1)) is not None:
        assert places(found.messages) != places(before)
    assert places(consumers.receive(1).messages) == places(before)


def test_an_acknowledgement_does_not_wait_for_another_call(consumers: Consumers) -> None:
    (found,) = consumers.receive(1).messages
    given = decode_by_queue([found.receipt])
    with consumers.groups._table.lock_of("g"):
        assert consumers.groups.acknowledge_at_once("g", given) is None
        assert consumers.receive_in_memory() is None
    assert consumers.groups.acknowledge_at_once("g", given) == [OK]


def test_the_offset_is_that_of_the_lowest_message_that_is_not_acknowledged(
    consumers: Consumers,
) -> None:
    found = {place: each for each in consumers.receive().messages for place in places([each])}
    assert consumers.offsets() == [0, 0, 0]

    assert consumers.acknowledge(found[0, 1], found[0, 2], found[1, 0]) == [OK] * 3
    assert consumers.offsets() == [0, 1, 0]

    assert consumers.acknowledge(found[0, 0]) == [OK]
    assert consumers.offsets() == [3, 1, 0]


def test_an_acknowledgement_may_be_sent_again(consumers: Consumers) -> None:
    first, *_, last = consumers.receive().messages
    assert consumers.acknowledge(first, last) == [OK, OK]
    assert consumers.acknowledge(first, last) == [OK, OK]


def test_a_lease_that_expires_delivers_again_under_another_receipt(consumers: Consumers) -> None:
    before = consumers.receive().messages
    consumers.clock.time_s += 61
    again = consumers.receive().messages

    assert sorted(places(again)) == sorted(places(before))
    assert {each.attempt for each in again} == {2}
    assert consumers.acknowledge(before[0]) == [ReceiptStatus.LOST]
    assert consumers.acknowledge(*again) == [OK] * 30
    assert consumers.offsets() == [10, 10, 10]


def expire_some(store: MessageStore) -> int:
    """Have the first messages of T expire; the minimum of its queue 0."""
    number = 1_000
    while store.status().segments < 3:
        put_message(store, message(store, number, queue_id=2))
        number += 1
    assert store.retention.remove_oldest(1) == 1
    return store.offsets.stand("g", "T", 0).min_offset


def passed(consumers: Consumers) -> int:
    consumers.groups.save()
    consumers.store.offsets.save()
    files, path = production_seams().files, consumers.store.paths.expired_unread
    return expired_unread.read(files, path)["g", "T"]


def test_messages_that_expired_unread_are_named_once_and_their_count_is_kept(
    consumers: Consumers,
) -> None:
    consumers.store.offsets.commit("g", [Commit("T", queue_id, 0) for queue_id in range(3)])
    assert len(consumers.receive(1).messages) == 1
    expire_some(consumers.store)
    lost = sum(each.min_offset for each in consumers.store.offsets.of("g", "T"))
    assert lost > 20

    assert consumers.receive_in_memory(1) is None, "it reads no queue of which it would lose some"
    found = [consumers.receive(1).expired for _ in range(6)]

    assert (sum(found), found[-1]) == (lost, 0)
    assert passed(consumers) == lost


def test_what_a_consumer_acknowledges_after_it_expired_was_not_lost(consumers: Consumers) -> None:
    before = consumers.receive(30).messages
    expire_some(consumers.store)
    assert consumers.acknowledge(*before) == [OK] * 30
    unseen = consumers.store.offsets.stand("g", "T", 2)
    assert consumers.receive(1).expired == unseen.min_offset - 10
    assert passed(consumers) == unseen.min_offset - 10


@pytest.mark.parametrize("level", [0, -1])
def test_a_return_of_a_message_that_expired_makes_nothing_and_says_so(
    consumers: Consumers, level: int
) -> None:
    before = [each for each in consumers.receive(30).messages if each.record.queue_id == 0]
    low = expire_some(consumers.store)
    assert low == 10
    given = decode_receipts(each.receipt for each in before)
    statuses, end = consumers.groups.give_back("g", given, level)
    assert (statuses, end) == ([ReceiptStatus.EXPIRED] * 10, 0)
    assert [each.name for each in consumers.store.topics() if each.name.startswith("%")] == []
    assert consumers.store.offsets.committed("g", "T", 0) == 10
    assert passed(consumers) == 10


def test_a_return_of_a_damaged_message_makes_nothing_and_says_so(consumers: Consumers) -> None:
    first, *_ = consumers.receive(30).messages
    segment = consumers.store.paths.commit_log / segment_name(0)
    with segment.open("r+b") as file:
        file.seek(first.record.physical_offset + 100)
        file.write(b"!")
    statuses, end = consumers.groups.give_back("g", decode_receipts([first.receipt]), 0)
    assert (statuses, end) == ([ReceiptStatus.DAMAGED], 0)
    assert passed(consumers) == 0


@pytest.mark.parametrize("is_received_first", [False, True])
@pytest.mark.parametrize("level", [1, -1])
def test_a_return_that_was_not_saved_before_a_kill_leaves_the_copy_alone(
    tmp_path: Path, level: int, is_received_first: bool
) -> None:
    """Whether the saved state has the lease of the message, or ends in front of it."""
    store = open_store(tmp_path, deliver_delayed=False)
    store.create_topic("T", queues=1)
    put_some(store, 10, queues=1)
    consumers = Consumers(store)
    consumers.groups.save()
    found = consumers.receive(10).messages
    if is_received_first:
        consumers.groups.save()
    consumers.give_back(found[0], found[4], level=level)
    abandon(store)

    store = open_store(tmp_path, deliver_delayed=False)
    consumers = Consumers(store)
    consumers.groups.save()
    abandon(store)
    with open_store(tmp_path) as store:
        consumers = Consumers(store)
        again = [each.record.queue_offset for each in consumers.receive(10).messages]
        assert again == [1, 2, 3, 5, 6, 7, 8, 9]
        store.offsets.apply("g", store.offsets.plan_reset("g", "T", Position.EARLIEST))
        assert len(consumers.receive(10).messages) == 10, "a reset delivers all again"


def test_a_copy_of_a_copy_names_the_copy(consumers: Consumers) -> None:
    first, *_ = consumers.receive(1).messages
    store, record = consumers.store, first.record
    copy = returned.copy_for_retry(record, "g", 0, 1, store.host, store.format)
    assert "MQSTORE_RETURNED" not in properties.decode(copy.properties)
    placed = put_message(store, copy.replace(topic="%RETRY%g"))
    again = store.log.record_at(placed.physical_offset)
    second = returned.copy_for_dead_letters(again, "g", 2, store.host, store.format)
    table = properties.decode(second.properties)
    assert table["MQSTORE_RETURNED"] == again.offset_message_id
    assert table["ORIGIN_MESSAGE_ID"] == record.offset_message_id


def test_a_late_acknowledgement_counts_while_no_other_consumer_has_the_message(
    consumers: Consumers,
) -> None:
    found = consumers.receive().messages
    consumers.clock.time_s += 61
    assert consumers.acknowledge(*found) == [OK] * 30
    assert consumers.receive().messages == []


def test_an_extended_lease_expires_later(consumers: Consumers) -> None:
    kept, *others = consumers.receive().messages
    receipts = decode_receipts([kept.receipt])
    assert consumers.groups.extend("g", receipts, 600) == [OK]
    consumers.clock.time_s += 61
    assert sorted(places(consumers.receive().messages)) == sorted(places(others))


def test_a_lease_of_no_time_delivers_again_at_once(consumers: Consumers) -> None:
    given, *_ = consumers.receive().messages
    consumers.groups.extend("g", decode_receipts([given.receipt]), 0)
    assert places(consumers.receive().messages) == places([given])


def test_the_next_deadline_is_that_of_the_first_lease(consumers: Consumers) -> None:
    consumers.clock.time_s = 5
    assert consumers.receive(1).next_deadline == 65


def test_a_filter_passes_over_messages_that_do_not_match(consumers: Consumers) -> None:
    none = [Subscription("T", parse_tags("b"))]
    assert consumers.receive(topics=none).messages == []
    assert consumers.offsets() == [10, 10, 10]


def test_a_reply_has_one_message_at_least_whatever_the_bytes(consumers: Consumers) -> None:
    assert len(consumers.receive(max_bytes=1).messages) == 1


def test_a_full_window_says_so_and_stops_no_other_queue(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_leases, "PENDING_MAX", 4)
    found = consumers.receive()
    assert sorted(places(found.messages)) == [(q, n) for q in range(3) for n in range(4)]
    assert consumers.receive().is_full
    consumers.acknowledge(*[each for each in found.messages if each.record.queue_id == 1])
    assert places(consumers.receive().messages) == [(1, n) for n in range(4, 8)]


def test_a_reset_ends_the_leases(consumers: Consumers) -> None:
    found = consumers.receive().messages
    consumers.acknowledge(*found)
    consumers.store.offsets.commit("g", [Commit("T", 0, 0)], allow_back=True)

    again = consumers.receive().messages
    assert sorted(places(again)) == [(0, n) for n in range(10)]
    assert {each.attempt for each in again} == {1}
    consumers.store.offsets.commit("g", [Commit("T", 0, 0)], allow_back=True)
    assert consumers.offsets()[0] == 0


def test_a_commit_of_another_consumer_acknowledges_what_is_below(consumers: Consumers) -> None:
    found = [each for each in consumers.receive().messages if each.record.queue_id == 0]
    consumers.store.offsets.commit("g", [Commit("T", 0, 4)])
    consumers.clock.time_s += 61
    again = [each for each in consumers.receive().messages if each.record.queue_id == 0]
    assert [each.record.queue_offset for each in again] == list(range(4, 10))
    assert consumers.acknowledge(found[2]) == [OK]


def test_a_returned_message_comes_back_through_the_retry_topic(consumers: Consumers) -> None:
    given = consumers.receive(1).messages[0]
    consumers.give_back(given, reason="no teapot")

    # queue 2 is of level 3, 10 s: that of the first retry
    (delayed,) = consumers.store.lookups.records("SCHEDULE_TOPIC_XXXX", 2, 0, 10).records
    assert delayed.body == given.record.body
    assert delayed.reconsume_times == 1
    found = delayed.properties or {}
    assert found["RETRY_TOPIC"] == "T"
    assert found["REAL_TOPIC"] == "%RETRY%g"
    assert found["ORIGIN_MESSAGE_ID"] == given.record.offset_message_id
    assert found["MQSTORE_WHY"] == "no teapot"
    assert consumers.acknowledge(given) == [OK]


def test_a_return_for_some_seconds_takes_the_shortest_level_that_is_as_long(
    consumers: Consumers,
) -> None:
    given, other = consumers.receive(2).messages
    receipts = decode_receipts([given.receipt])
    statuses, _ = consumers.groups.give_back("g", receipts, 0, delay_s=5.5)
    # queue 2 is of level 3, 10 s, behind 1 s and 5 s
    (delayed,) = consumers.store.lookups.records("SCHEDULE_TOPIC_XXXX", 2, 0, 10).records
    assert (statuses, delayed.body) == ([OK], given.record.body)

    receipts = decode_receipts([other.receipt])
    with pytest.raises(ReceiptInvalid, match="delayS is 7201, longer"):
        consumers.groups.give_back("g", receipts, 0, delay_s=7_201)
    assert consumers.acknowledge(other) == [OK]


def test_a_retry_is_received_with_the_topics_of_the_group(consumers: Consumers) -> None:
    consumers.acknowledge(*consumers.receive().messages)
    retries = "%RETRY%g"
    consumers.store.put_topic(retries, TopicChange(1, 1, 6))
    put_message(consumers.store, message(consumers.store, 1, topic=retries))

    (found,) = consumers.receive().messages
    assert found.record.topic == retries
    assert consumers.acknowledge(found) == [OK]
    assert [each.committed for each in consumers.store.offsets.of("g", retries)] == [1]


def test_a_message_that_failed_as_often_as_allowed_is_a_dead_letter(consumers: Consumers) -> None:
    consumers.store.groups.put("g", lambda known: replace(known, retry_times_max=1))
    given, *others = consumers.receive().messages
    consumers.acknowledge(*others)
    consumers.clock.time_s += 61
    (again,) = consumers.receive().messages
    assert (places([again]), again.attempt) == (places([given]), 2)
    consumers.clock.time_s += 61
    found = consumers.receive()

    assert (found.dead, found.messages) == (1, [])
    (dead,) = consumers.of_topic("%DLQ%g")
    assert dead.body == given.record.body
    assert (dead.properties or {})["RETRY_TOPIC"] == "T"


def test_a_consumer_may_make_a_dead_letter_at_once(consumers: Consumers) -> None:
    given = consumers.receive(1).messages[0]
    consumers.give_back(given, level=-1, reason="malformed")
    (dead,) = consumers.of_topic("%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (given.record.body, 1)
    assert (dead.properties or {})["MQSTORE_WHY"] == "malformed"


def test_a_group_that_is_disabled_receives_nothing(consumers: Consumers) -> None:
    consumers.store.groups.put("g", lambda known: replace(known, consume_enable=False))
    with pytest.raises(GroupDisabled, match="consumeEnable"):
        consumers.receive()


def test_a_topic_without_the_read_bit_is_received_again_once_it_has_it(
    consumers: Consumers,
) -> None:
    given = consumers.receive(1).messages[0]
    consumers.store.put_topic("T", TopicChange(perm=2))
    with pytest.raises(TopicNotReadable, match="perm is 2"):
        consumers.receive()
    assert consumers.acknowledge(given) == [OK], "what a consumer has it may settle"
    consumers.store.put_topic("T", TopicChange(perm=4))
    assert consumers.receive(1).messages


def test_a_retry_topic_has_a_perm_of_its_own(consumers: Consumers) -> None:
    first, second = consumers.receive(2).messages
    consumers.give_back(first)
    consumers.store.put_topic("%RETRY%g", TopicChange(perm=4))
    with pytest.raises(TopicNotWritable, match="%RETRY%g"):
        consumers.give_back(second)
    consumers.store.put_topic("%RETRY%g", TopicChange(perm=2))
    consumers.give_back(second)  # it was still leased


def test_an_unknown_topic_is_refused(consumers: Consumers) -> None:
    with pytest.raises(TopicUnknown):
        consumers.receive(topics=[Subscription("unknown")])


@pytest.mark.parametrize("text", ["", "x", "0.0.0.0", "0.0.0.0.T.T", "0.0.0.0." + "T" * 600])
def test_a_text_that_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(ReceiptInvalid):
        decode_receipts([text])


def test_acknowledgements_survive_a_kill_once_they_are_saved(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.create_topic("T", queues=3)
    put_some(store, 30)
    before = Consumers(store)
    found = before.receive().messages
    before.acknowledge(*[each for each in found if each.record.queue_offset % 2])
    before.groups.save()
    unsaved = [each for each in found if each.record.queue_offset == 0]
    before.acknowledge(*unsaved)
    abandon(store)

    with open_store(tmp_path / "store") as opened:
        after = Consumers(opened)
        again = after.receive().messages
        assert sorted(places(again)) == [(q, n) for q in range(3) for n in range(0, 10, 2)]
        assert {each.attempt for each in again} == {1}  # a kill is no failure of a consumer
        assert after.acknowledge(*again) == [OK] * 15
        assert after.offsets() == [10, 10, 10]


def test_messages_that_are_given_back_unused_are_no_dead_letters(tmp_path: Path) -> None:
    """Consumers that end give back what they hold; a broker does not count that either."""
    with open_store(tmp_path / "store") as store:
        store.create_topic("T")
        put_some(store, 1)
        consumers = Consumers(store)
        for _ in range(20):
            (found,) = consumers.receive().messages
            assert found.attempt == 1
            consumers.groups.extend("g", decode_receipts([found.receipt]), 0)
        for attempt in range(1, 18):
            (found,) = consumers.receive().messages
            assert found.attempt == attempt
            consumers.clock.time_s += 61
        assert consumers.receive().messages == []
        assert store.lookups.records("%DLQ%g", 0, 0, 1).records


def test_restarts_of_the_writer_are_no_failures_of_a_message(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("T")
        put_some(store, 1)
    for number in range(20):
        with open_store(tmp_path / "store") as store:
            consumers = Consumers(store)
            (found,) = consumers.receive().messages
            assert found.attempt == 1 + (number > 10)
            if number == 10:
                consumers.clock.time_s += 61
                assert consumers.receive().messages[0].attempt == 2
            consumers.groups.save()


def test_what_a_broker_consumed_meanwhile_is_not_delivered(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("T", queues=3)
        put_some(store, 30)
        before = Consumers(store)
        found = before.receive().messages
        before.acknowledge(*[each for each in found if each.record.queue_offset == 5])
        before.groups.save()
    with open_store(tmp_path / "store", CONFIG) as store:  # as a broker that has no file of ours
        store.offsets.commit("g", [Commit("T", 0, 3), Commit("T", 1, 10), Commit("T", 2, 0)])
    with open_store(tmp_path / "store") as store:
        again = Consumers(store).receive().messages
        left = {q: [n for queue, n in sorted(places(again)) if queue == q] for q in range(3)}
        assert left == {0: [3, 4, 6, 7, 8, 9], 1: [], 2: [0, 1, 2, 3, 4, 6, 7, 8, 9]}


def test_a_damaged_file_delivers_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("T", queues=3)
        put_some(store, 30)
        before = Consumers(store)
        before.acknowledge(*before.receive().messages[1:])
        before.groups.save()
        path = store.paths.shared_groups
        content = path.read_bytes()
        path.write_bytes(content[:-5] + b"9" + content[-4:])
        assert len(Consumers(store).receive().messages) > 0


@pytest.mark.parametrize(
    ("setting", "error"),
    [({"max_groups": 1}, LimitReached), ({"auto_create_subscription_group": False}, GroupUnknown)],
)
def test_a_group_that_may_not_be_made_receives_nothing_and_makes_no_topic(
    setting: dict[str, int], error: type[Exception], tmp_path: Path
) -> None:
    with open_store(tmp_path / "store", CONFIG.model_copy(update=setting)) as store:
        store.create_topic("T", queues=1)
        put_some(store, 10, queues=1)
        store.offsets.commit("g", [Commit("T", 0, 0)])
        consumers = Consumers(store)
        receipts = decode_receipts(each.receipt for each in consumers.receive(1).messages)
        for refused in (
            lambda: consumers.receive(group="stranger"),
            lambda: consumers.groups.give_back("stranger", receipts, -1),
            lambda: consumers.groups.join("stranger", "m", ["T"], 30),
            lambda: consumers.groups.commit("stranger", {Commit("T", 0, 0): None}),
        ):
            with pytest.raises(error):
                refused()
        assert [each.name for each in store.topics()] == ["T"]
        assert store.offsets.groups() == {"g": ["T"]}
        consumers.groups.give_back("g", receipts, -1)
        assert [each.name for each in store.topics()] == ["%DLQ%g", "T"]


def test_members_of_a_group_are_limited_by_a_setting(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"max_group_members": 2})
    with open_store(tmp_path / "store", config) as store:
        store.create_topic("T", queues=4)
        consumers = Consumers(store)
        for name in ("a", "b", "a"):
            consumers.groups.join("g", name, ["T"], 30)
        with pytest.raises(MembersFull, match="maxGroupMembers allows 2"):
            consumers.groups.join("g", "c", ["T"], 30)
