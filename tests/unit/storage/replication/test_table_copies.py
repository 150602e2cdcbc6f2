"""A follower's tables become those of a broker that it follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.errors import ConfigTableError
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import expired_unread
from mqstore.storage.metadata.key_owners import FormerOwners, KeyOwners
from mqstore.storage.replication import TableCopies
from mqstore.storage.replication.table_feed import TableBatch, TableName, TableUpdate
from mqstore.storage.tables.config_tables import DelayOffsets
from tests.unit.storage.stores import FILES, open_store, put_some

LEADER = "leader:10912"


def copies_of(store: MessageStore) -> TableCopies:
    assert store.table_copies is not None
    return store.table_copies


def texts_of(leader: MessageStore) -> dict[str, str]:
    tables = leader._parts.tables
    named = {"topics": tables.topics, "groups": tables.groups, "offsets": tables.offsets}
    return {name: table.text() for name, table in named.items()}


def copy_all(store: MessageStore, texts: dict[str, str]) -> None:
    copies = copies_of(store)
    copies.take_whole(TableName.TOPICS, texts["topics"])
    copies.take_whole(TableName.GROUPS, texts["groups"])
    copies.take_whole(TableName.CONSUMER_OFFSETS, texts["offsets"])


def test_topics_groups_and_offsets_are_the_leaders_also_after_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path / "leader") as leader:
        leader.create_topic("T", queues=3)
        leader.create_topic("gone")
        put_some(leader, 30)
        leader.groups.put("g", lambda group: group)
        leader.offsets.commit("g", [Commit("T", 1, 7)])
        before = texts_of(leader)
        leader.delete_topic("gone")
        after = texts_of(leader)
    root = tmp_path / "follower"
    with open_store(root, leader=LEADER) as follower:
        copy_all(follower, before)
        assert [topic.name for topic in follower.topics()] == ["T", "gone"]
        copy_all(follower, after)
        assert texts_of(follower) == after
    with open_store(root, leader=LEADER) as follower:
        assert texts_of(follower) == after
        assert follower.offsets.committed("g", "T", 1) == 7


def test_offsets_ahead_of_the_log_are_lowered_when_the_store_is_promoted(tmp_path: Path) -> None:
    with open_store(tmp_path / "leader") as leader:
        leader.create_topic("T", queues=3)
        put_some(leader, 30)
        leader.offsets.commit("g", [Commit("T", 1, 7)])
        texts = texts_of(leader)
    root = tmp_path / "follower"
    with open_store(root, leader=LEADER) as follower:
        copy_all(follower, texts)
    with open_store(root) as promoted:
        assert promoted.offsets.committed("g", "T", 1) == 0


def test_the_progress_of_delayed_messages_is_the_leaders(tmp_path: Path) -> None:
    with open_store(tmp_path, leader=LEADER) as follower:
        copies_of(follower).take_whole(TableName.DELAY_OFFSETS, '{"offsetTable":{1:5,2:9}}')
        paths, seams = follower.paths, follower._parts.seams
        table = DelayOffsets.load(paths, follower.format, seams)
        assert table.all() == {1: 5, 2: 9}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"offsetTable":{}}'])
def test_a_text_that_is_no_such_table_changes_nothing(tmp_path: Path, text: str) -> None:
    with open_store(tmp_path, leader=LEADER) as follower:
        before = texts_of(follower)
        with pytest.raises(ConfigTableError):
            copies_of(follower).take_whole(TableName.TOPICS, text)
        assert texts_of(follower) == before


def test_a_store_that_leads_has_no_copies(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.table_copies is None


def test_a_follower_has_the_leaders_counts_of_expired_messages_and_the_owners_of_keys(
    tmp_path: Path,
) -> None:
    """A failover would begin the counts at 0, and forget which shards owned keys before."""
    former = (FormerOwners(shards=(0,), ended_ms=5),)
    owners = KeyOwners(version=7, shards=(0, 1), former=former, released={2: 3})
    root = tmp_path / "follower"
    with open_store(tmp_path / "leader") as leader:
        feed, expired = leader.table_feed, leader.offsets.expired
        with open_store(root, leader=LEADER) as follower:
            copies_of(follower).take(first := feed.take(0))
            assert follower.key_owners.current is None
        expired.add("g", "T", 18)
        leader.key_owners.put(owners)
        feed.refresh()
        batch = feed.take(first.version)
        names = {each.table for each in batch.updates}
        assert names == {TableName.EXPIRED_UNREAD, TableName.KEY_OWNERS}
        with open_store(root, leader=LEADER) as follower:
            copies_of(follower).take(batch)
            text = follower.offsets.expired.text()
            for wrong in ("", "{", '{"topics":[{"group":"g"}]}', text.replace("18", "19")):
                update = TableUpdate(TableName.EXPIRED_UNREAD, wrong, True, False)
                with pytest.raises(ConfigTableError):
                    copies_of(follower).take(TableBatch(batch.version, (update,)))
    with open_store(root) as promoted:
        assert promoted.offsets.expired.text() == text
        assert expired_unread.read(FILES, promoted.paths.expired_unread) == {("g", "T"): 18}
        assert promoted.key_owners.current == owners
