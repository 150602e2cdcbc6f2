"""A follower's tables become those of a leader of mqstore, change by change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit, Position
from mqstore.storage.errors import ConfigTableError, QueuesIncomplete
from mqstore.storage.message_store import MessageStore
from mqstore.storage.replication.table_feed import (
    BEFORE_LOG,
    KEPT_BYTES_MAX,
    NOTHING,
    TableBatch,
    TableFeed,
    TableName,
    TableUpdate,
)
from tests.simulation.follower import entries_of
from tests.unit.storage.stores import abandon, all_bodies, bodies, open_store, put_some

LEADER = "leader:10912"
NO_TABLE = '{"checksum":"00000000","reason":"x"}\n'


class Copier:
    """Brings a follower up to date, as ``tables_sender`` does."""

    def __init__(self, leader: MessageStore, follower: MessageStore) -> None:
        self.leader, self.follower = leader, follower
        self.version = NOTHING

    def copy_log(self) -> None:
        receiver = self.follower.receiver
        assert receiver is not None
        while receiver.end < self.leader.log_stream.end:
            receiver.append(receiver.end, self.leader.log_stream.read(receiver.end, 1 << 20))

    def copy(self) -> TableBatch:
        copies, feed = self.follower.table_copies, self.leader.table_feed
        assert copies is not None
        copies.take(feed.take_before_log())
        self.copy_log()
        batch = feed.take(self.version)
        copies.take(batch)
        self.version = batch.version
        return batch

    def assert_equal(self) -> None:
        for name in TableName:
            ours, theirs = (each.table_feed._tables[name].text() for each in self._stores)
            assert ours == theirs, name

    @property
    def _stores(self) -> tuple[MessageStore, MessageStore]:
        return self.leader, self.follower


Scenario = Callable[[Copier], None]


def run(root: Path, scenario: Scenario) -> None:
    with (
        open_store(root / "leader") as leader,
        open_store(root / "follower", leader=LEADER) as follower,
    ):
        scenario(Copier(leader, follower))


def test_all_tables_are_the_leaders_and_each_change_is_sent_alone(tmp_path: Path) -> None:
    def scenario(copier: Copier) -> None:
        leader = copier.leader
        leader.create_topic("T", queues=3)
        put_some(leader, 30)
        leader.groups.put("g", lambda group: group)
        leader.write_pause.begin("maintenance")
        assert {update.table for update in copier.copy().updates} == {*TableName} - BEFORE_LOG
        copier.assert_equal()
        assert copier.copy().updates == ()
        leader.create_topic("U", queues=2)
        leader.subscriptions.put("g", "T", "a > 1")
        leader.write_pause.end()
        found = {update.table: update.is_whole for update in copier.copy().updates}
        assert found == {
            TableName.TOPICS: False,
            TableName.FILTERS: False,
            TableName.WRITE_PAUSE: True,
        }
        copier.assert_equal()
        assert copier.follower.write_pause.current is None

    run(tmp_path, scenario)


def test_a_follower_keeps_what_it_was_sent_over_a_kill_of_both(tmp_path: Path) -> None:
    def scenario(copier: Copier) -> None:
        copier.copy()
        copier.leader.create_topic("T", queues=3)
        copier.leader.groups.put("g", lambda group: group)
        copier.copy()

    run(tmp_path, scenario)
    with open_store(tmp_path / "follower") as promoted:
        assert promoted.topic("T").write_queues == 3
        assert promoted.groups.get("g").is_configured


def test_a_deleted_topic_is_deleted_and_begins_anew_where_the_leaders_does(tmp_path: Path) -> None:
    def scenario(copier: Copier) -> None:
        leader, follower = copier.leader, copier.follower
        leader.create_topic("T", queues=3)
        put_some(leader, 30)
        copier.copy()
        leader.delete_topic("T")
        copier.copy()
        assert follower.topics() == []
        leader.create_topic("T", queues=3)
        put_some(leader, 6, start=30)
        copier.copy()
        copier.assert_equal()
        for store in (leader, follower):
            store.wait_for_index()
            queue = store.queues.get("T", 0)
            assert queue is not None
            assert (queue.min_index, queue.max_index) == (10, 12)

    run(tmp_path, scenario)
    with (
        open_store(tmp_path / "leader") as leader,
        open_store(tmp_path / "follower") as promoted,
    ):
        assert [(each.topic, each.end) for each in promoted.queues.states()] == [
            (each.topic, each.end) for each in leader.queues.states()
        ]
        put_some(promoted, 3, start=36)
        assert promoted.log.offsets.next("T", 0) == 13


def test_a_deletion_whose_messages_come_later_leaves_them_out_of_the_queues(tmp_path: Path) -> None:
    def scenario(copier: Copier) -> None:
        leader = copier.leader
        leader.create_topic("T", queues=3)
        put_some(leader, 30)
        leader.delete_topic("T")
        copier.copy()
        assert copier.follower.topics() == []
        assert copier.follower.queues.get("T", 0) is None

    run(tmp_path, scenario)


def test_messages_that_are_stored_while_their_topic_is_deleted_are_in_all_copies_of_its_queues(
    tmp_path: Path,
) -> None:
    def scenario(copier: Copier) -> None:
        leader = copier.leader
        leader.create_topic("T", queues=3)
        put_some(leader, 30)
        copier.copy()
        leader._parts.directory.deleted.on_change = lambda: put_some(leader, 4, start=30)
        leader.delete_topic("T")
        copier.copy_log()  # it was sent before the note
        copier.copy()
        found = [entries_of(store, 0) for store in (leader, copier.follower)]
        assert {place: len(each) for place, each in found[0].items()} == {
            ("T", 0): 2,
            ("T", 1): 1,
            ("T", 2): 1,
        }
        assert found[0] == found[1]

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_deletion_that_the_next_leader_lacks_is_withdrawn(
    tmp_path: Path, is_killed: bool
) -> None:
    names = "leader", "first", "second"
    with open_store(tmp_path / names[0]) as leader:
        leader.create_topic("T", queues=3)
        put_some(leader, 30)
        for name in names[1:]:
            with open_store(tmp_path / name, leader=LEADER) as follower:
                Copier(leader, follower).copy()
        leader.delete_topic("T")
        with open_store(tmp_path / "first", leader=LEADER) as first:
            Copier(leader, first).copy()
            assert first.queues.count == 0
    with open_store(tmp_path / "second") as second:
        put_some(second, 3, start=30)
        for name in ("leader", "first"):
            follower = open_store(tmp_path / name, leader=LEADER)
            with pytest.raises(QueuesIncomplete):
                Copier(second, follower).copy()
            abandon(follower) if is_killed else follower.close()
            for _ in range(2):
                with open_store(tmp_path / name, leader=LEADER) as follower:
                    copier = Copier(second, follower)
                    copier.copy()
                    copier.assert_equal()
                    assert bodies(follower) == bodies(second) == all_bodies(33)


def test_a_lowered_offset_is_on_the_disk_of_the_follower(tmp_path: Path) -> None:
    def scenario(copier: Copier) -> None:
        leader = copier.leader
        leader.create_topic("T", queues=1)
        put_some(leader, 30, queues=1)
        leader.offsets.commit("g", [Commit("T", 0, 20)])
        copier.copy()
        version = leader.table_feed.version
        leader.offsets.commit("g", [Commit("T", 0, 25)])
        assert leader.table_feed.version == version
        leader.table_feed.refresh()
        assert leader.table_feed.forced < leader.table_feed.version
        assert [update.is_forced for update in copier.copy().updates] == [False]
        leader.table_feed.refresh()
        assert copier.copy().updates == ()
        leader.offsets.apply("g", leader.offsets.plan_reset("g", "T", Position.LATEST))
        assert [update.is_forced for update in copier.copy().updates] == [True]
        leader.offsets.apply("g", leader.offsets.plan_reset("g", "T", Position.EARLIEST))
        assert leader.table_feed.forced == leader.table_feed.version
        assert [update.is_forced for update in copier.copy().updates] == [True]
        saved = copier.follower.paths.config / "consumerOffset.json"
        assert "T@g" in saved.read_text() and "25" not in saved.read_text()

    run(tmp_path, scenario)


@pytest.mark.parametrize("with_offsets", [False, True])
def test_the_removal_of_offsets_is_a_change(tmp_path: Path, with_offsets: bool) -> None:
    def scenario(copier: Copier) -> None:
        leader = copier.leader
        leader.create_topic("T", queues=1)
        put_some(leader, 3, queues=1)
        leader.groups.put("g", lambda group: group)
        leader.offsets.commit("g", [Commit("T", 0, 2)])
        copier.copy()
        leader.groups.delete("g", with_offsets=with_offsets)
        copier.copy()
        committed = copier.follower.offsets.committed("g", "T", 0)
        assert committed == (None if with_offsets else 2)
        copier.assert_equal()

    run(tmp_path, scenario)


def test_a_follower_that_is_far_behind_gets_the_whole_table() -> None:
    feed = TableFeed({TableName.TOPICS: lambda: "whole"})
    feed.note(TableName.TOPICS, b"a")
    start = feed.version
    feed.note(TableName.TOPICS, b"b")
    assert feed.take(start).updates == (TableUpdate(TableName.TOPICS, "b", False, True),)
    feed.note(TableName.TOPICS, b"x" * KEPT_BYTES_MAX)
    assert feed.take(start).updates[0].text == "whole"
    newest = feed.version
    feed.note(TableName.TOPICS, b"c")
    assert feed.take(newest).updates[0].text == "c"
    feed.note(TableName.TOPICS)
    assert feed.take(newest).updates[0].is_whole


@pytest.mark.parametrize("table", [TableName.TOPICS, TableName.WRITE_PAUSE, TableName.DEAD_LETTERS])
@pytest.mark.parametrize("is_whole", [False, True])
def test_an_update_that_is_no_such_table_changes_nothing(
    tmp_path: Path, table: TableName, is_whole: bool
) -> None:
    def scenario(copier: Copier) -> None:
        copier.leader.create_topic("T")
        copier.copy()
        copies = copier.follower.table_copies
        assert copies is not None
        with pytest.raises(ConfigTableError):
            copies.take(TableBatch(9, (TableUpdate(table, NO_TABLE, is_whole, True),)))
        copier.assert_equal()

    run(tmp_path, scenario)
