"""Shared groups while offsets are set, topics are deleted, and dead letters cannot be stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit, Position
from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.codec.hosts import parse_host
from mqstore.storage.errors import PutRefused
from mqstore.storage.shared_groups import ReceiptStatus, Subscription, saved_leases
from mqstore.storage.shared_groups.queue_leases import OUTDATED_MAX, QueueLeases
from mqstore.storage.shared_groups.saved_leases import SavedQueue
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.shared_groups.test_leases_of_a_store import Consumers, places
from tests.unit.storage.stores import abandon, message, open_store, put_some

ONE_QUEUE = [(0, offset) for offset in range(10)]


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[Consumers]:
    with open_store(tmp_path / "store", deliver_delayed=False) as store:
        store.create_topic("T", queues=1)
        put_some(store, 10, queues=1)
        yield Consumers(store)


def reset(consumers: Consumers, to: Position = Position.EARLIEST) -> None:
    offsets = consumers.store.offsets
    offsets.apply("g", offsets.plan_reset("g", "T", to))


def test_a_reset_to_the_offset_that_the_group_has_delivers_all_again(consumers: Consumers) -> None:
    consumers.acknowledge(*consumers.receive().messages[1:])
    consumers.groups.save()
    assert consumers.offsets() == [0]
    reset(consumers)
    assert places(consumers.receive().messages) == ONE_QUEUE


def test_a_reset_survives_a_kill(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.create_topic("T", queues=1)
    put_some(store, 10, queues=1)
    before = Consumers(store)
    before.acknowledge(*before.receive().messages[1:])
    before.groups.save()
    reset(before)
    abandon(store)
    with open_store(tmp_path / "store") as opened:
        assert places(Consumers(opened).receive().messages) == ONE_QUEUE


def test_an_offset_that_is_set_while_a_receive_reads_stays(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers.acknowledge(*consumers.receive(5).messages)
    pulls = consumers.groups._pulls
    read = pulls.pull

    def pull_beside_a_commit(*given: object, **named: object) -> object:
        consumers.store.offsets.commit("g", [Commit("T", 0, 2)], allow_back=True)
        return read(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(pulls, "pull", pull_beside_a_commit)
    consumers.acknowledge(*consumers.receive(3).messages)
    monkeypatch.undo()
    assert consumers.offsets() == [2]
    assert places(consumers.receive().messages) == [(0, offset) for offset in range(2, 10)]


def test_a_deleted_topic_leaves_no_lease(consumers: Consumers) -> None:
    given = consumers.receive().messages[0]
    consumers.groups.save()
    consumers.store.delete_topic("T")
    assert "T" not in consumers.store.paths.shared_groups.read_text()

    consumers.store.create_topic("T", queues=1)
    put_some(consumers.store, 1, queues=1)
    assert consumers.acknowledge(given) == [ReceiptStatus.UNKNOWN]
    assert places(consumers.receive().messages) == [(0, 10)]


def test_a_deleted_group_leaves_no_lease(consumers: Consumers) -> None:
    consumers.acknowledge(*consumers.receive().messages[1:])
    consumers.store.groups.delete("g", with_offsets=True)
    consumers.store.offsets.commit("g", [Commit("T", 0, 0)])
    assert places(consumers.receive().messages) == ONE_QUEUE


def test_leases_behind_the_end_of_a_queue_are_not_valid(consumers: Consumers) -> None:
    # As after a loss that an operator accepted: offsets of lost messages are given out again.
    consumers.store.offsets.commit("g", [Commit("T", 0, 4)])
    saved = SavedQueue(group="g", topic="T", queue=0, next=50, pending=((4, 1),))
    path = consumers.store.paths.shared_groups
    saved_leases.save(production_seams().files, path, saved_leases.encode([saved], 0))
    again = Consumers(consumers.store).receive().messages
    assert places(again) == [(0, offset) for offset in range(4, 10)]


def test_a_retry_topic_that_is_named_is_received_once(consumers: Consumers) -> None:
    retries = "%RETRY%g"
    consumers.store.put_topic(retries, TopicChange(1, 1, 6))
    put_message(consumers.store, message(consumers.store, 1, topic=retries))
    for _ in range(2):
        found = consumers.receive(topics=[Subscription(retries)]).messages
        assert [each.attempt for each in found] == [1][: len(found)]
        assert consumers.acknowledge(*found) == [ReceiptStatus.OK] * len(found)
    assert consumers.receive(topics=[Subscription(retries)]).messages == []


def test_a_dead_letter_that_cannot_be_stored_is_delivered_again(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PutRefused("disk-full", "the disk is full")

    monkeypatch.setattr(consumers.store, "append", refuse)
    for _ in range(18):
        found = consumers.receive()
        consumers.clock.time_s += 61
    assert (found.dead, places(found.messages)) == (0, ONE_QUEUE)


def test_copies_have_the_address_of_the_store_as_it_is_now(consumers: Consumers) -> None:
    store = consumers.store
    moved = message(store, 11).replace(store_host=parse_host("10.9.9.9:10911"))
    put_message(store, moved)
    found = [each for each in consumers.receive().messages if each.record.queue_offset == 10]
    consumers.give_back(*found, level=-1)
    assert found[0].record.store_host != store.host
    assert [each.store_host for each in consumers.of_topic("%DLQ%g")] == [store.host]


def test_a_full_queue_is_not_waited_for(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.storage.shared_groups.queue_leases.PENDING_MAX", 4)
    assert consumers.receive().ends == [("T", 0, 4)]
    full = consumers.receive()
    assert (full.is_full, full.ends, full.messages) == (True, [], [])


def test_a_message_that_is_not_confirmed_is_waited_for(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", deliver_delayed=False, bounds_reads=True) as store:
        store.create_topic("T", queues=1)
        put_some(store, 1, queues=1)
        consumers = Consumers(store)
        found = consumers.receive()
        assert (found.messages, found.ends) == ([], [("T", 0, 0)])
        store.confirm(store.log.max_offset, 2)
        assert places(consumers.receive().messages) == [(0, 0)]


def test_a_lease_that_is_undone_counts_as_no_attempt(consumers: Consumers) -> None:
    found = consumers.receive().messages
    consumers.groups.undo("g", found)
    again = consumers.receive().messages
    assert [(each.attempt, each.record.queue_offset) for each in again] == [
        (1, offset) for offset in range(10)
    ]
    consumers.groups.undo("g", found)
    assert consumers.receive().messages == []


def test_leases_that_are_changed_often_need_no_more_memory() -> None:
    leases = QueueLeases(0)
    leases.lease([0], 1, 1.0)
    leases.lease([1], 2, 5.0)
    for number in range(5 * OUTDATED_MAX):
        leases.extend(1, 2, 10.0 + number)
        leases.release(1)
        leases.release(1)
    assert len(leases._leases) + len(leases._waiting) <= 4 + OUTDATED_MAX
    assert leases.waiting(10) == [1]
    assert leases.next_deadline == 1.0
