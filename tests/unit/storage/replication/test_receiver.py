"""A store that receives a leader's log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.admin import TopicChange
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.errors import DirectoryNotUsable, LeaderLogRefused, StoreNotWritable
from mqstore.storage.layout import SCHEDULE_TOPIC
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.replication import LogReceiver
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, all_bodies, bodies, message, open_store
from tests.unit.storage.stores import put_some as put

LEADER = "leader:10912"
SEGMENT = CONFIG.mapped_file_size_commit_log
COUNT = 700


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "leader") as store:
        put(store, COUNT)
        yield store


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "follower", leader=LEADER) as store:
        yield store


def receiver_of(store: MessageStore) -> LogReceiver:
    assert store.receiver is not None
    return store.receiver


def log_bytes(store: MessageStore, start: int = 0) -> bytes:
    parts = [bytes(file.view[: file.wrote_position]) for file in store.log.files.files]
    return b"".join(parts)[start - store.log.min_offset :]


def receive(store: MessageStore, leader: MessageStore, *, piece: int = 3_000) -> None:
    """Receive what the leader has, in pieces that end anywhere."""
    receiver, data = receiver_of(store), log_bytes(leader)
    while receiver.offset < leader.log.max_offset:
        receiver.append(receiver.offset, data[receiver.offset : receiver.offset + piece])


def test_what_is_received_is_counted_by_topic(leader: MessageStore, follower: MessageStore) -> None:
    put_message(leader, message(leader, 0, topic="U"), Durability.ASYNC)
    receive(follower, leader)
    counts = receiver_of(follower).take_counts()
    assert {topic: count for topic, (count, _) in counts.items()} == {b"T": COUNT, b"U": 1}
    blanks = leader.log.max_offset - sum(size for _, size in counts.values())
    assert 0 < blanks < leader.log.max_offset // 10
    assert receiver_of(follower).take_counts() == {}


def changed(leader: MessageStore, position: int) -> bytes:
    """The leader's log with another byte in the body of its first record."""
    data = bytearray(log_bytes(leader))
    data[position] ^= 1
    return bytes(data)


def test_a_follower_has_the_leaders_bytes_and_reads_its_messages(
    leader: MessageStore, follower: MessageStore
) -> None:
    receive(follower, leader)
    assert log_bytes(follower) == log_bytes(leader)
    assert bodies(follower) == all_bodies(COUNT)
    follower.wait_for_index()
    found = follower.lookups.by_unique_key("T", f"U{5:031d}")
    assert found.body == b"body 5 " * 10


def test_the_log_ends_at_whole_records_while_pieces_end_within_them(
    leader: MessageStore, follower: MessageStore
) -> None:
    receiver, first = receiver_of(follower), put_message(leader, message(leader, 1)).size
    data = log_bytes(leader)
    assert receiver.append(0, data[:10]) == 0
    assert (receiver.end, receiver.offset) == (0, 10)
    assert receiver.restart() == 0
    size = leader.log.record_at(0).size
    assert receiver.append(0, data[: size + 1]) == size
    assert first
    assert receiver.append(size + 1, data[size + 1 : size + 2]) == size


def test_nothing_but_the_leader_changes_a_follower(follower: MessageStore) -> None:
    with pytest.raises(StoreNotWritable, match=LEADER) as refused:
        put_message(follower, message(follower, 1))
    assert refused.value.reason == "follower"
    assert follower.put_refusal is not None
    for change in (
        lambda: follower.put_topic("T", TopicChange(1, 1, 6)),
        lambda: follower.offsets.commit("g", [Commit("T", 0, 0)]),
        lambda: follower.groups.put("g", lambda group: group),
    ):
        with pytest.raises(StoreNotWritable, match="promote"):
            change()


def test_a_new_follower_may_begin_at_any_segment_of_the_leader(
    tmp_path: Path, leader: MessageStore
) -> None:
    """RocketMQ sends a new slave the last segment only."""
    start = leader.log.max_offset // SEGMENT * SEGMENT
    assert start
    root = tmp_path / "late"
    follower = open_store(root, leader=LEADER)
    receiver_of(follower).append(start, log_bytes(leader, start))
    follower.flush.flush_all()
    abandon(follower)
    with open_store(root, leader=LEADER) as follower:
        assert (follower.log.min_offset, receiver_of(follower).end) == (
            start,
            leader.log.max_offset,
        )
        put(leader, 50, start=COUNT)
        receiver_of(follower).append(
            receiver_of(follower).offset, log_bytes(leader, receiver_of(follower).offset)
        )
        assert log_bytes(follower) == log_bytes(leader, start)
        mine, theirs = follower.queues.get("T", 0), leader.queues.get("T", 0)
        assert mine is not None
        assert theirs is not None
        assert mine.max_index == theirs.max_index
        assert mine.entry(mine.max_index - 1) == theirs.entry(theirs.max_index - 1)


def test_a_log_that_does_not_continue_here_is_refused(
    leader: MessageStore, follower: MessageStore
) -> None:
    data = log_bytes(leader)
    receiver = receiver_of(follower)
    with pytest.raises(LeaderLogRefused, match="mappedFileSizeCommitLog") as refused:
        receiver.append(100, data[100:])
    assert refused.value.reason == "segment-size"
    receiver.append(0, data[:5_000])
    before = receiver.end
    with pytest.raises(LeaderLogRefused, match="ends at") as refused:
        receiver.append(5_001, data[5_001:])
    assert refused.value.reason == "offset"
    assert receiver.end == receiver.offset == before


def test_a_record_changed_on_its_way_is_refused_and_comes_again(
    leader: MessageStore, follower: MessageStore
) -> None:
    receiver, data = receiver_of(follower), changed(leader, 90)
    with pytest.raises(LeaderLogRefused, match="body_corrupt") as refused:
        receiver.append(0, data)
    assert refused.value.reason == "damaged"
    receive(follower, leader)
    assert receiver.damaged == 0
    assert log_bytes(follower) == log_bytes(leader)


def test_a_record_that_the_leader_has_damaged_is_copied_as_it_is(
    leader: MessageStore, follower: MessageStore
) -> None:
    receiver, data = receiver_of(follower), changed(leader, 90)
    with pytest.raises(LeaderLogRefused):
        receiver.append(0, data)
    receiver.append(0, data)
    assert receiver.damaged == 1
    assert log_bytes(follower) == data


@pytest.mark.parametrize("place", [4, 30], ids=["magic", "physical offset"])
def test_bytes_that_are_no_record_of_this_place_are_never_taken(
    leader: MessageStore, follower: MessageStore, place: int
) -> None:
    receiver, data = receiver_of(follower), changed(leader, place)
    for _ in range(3):
        with pytest.raises(LeaderLogRefused):
            receiver.append(0, data)
    assert receiver.end == 0


def test_segments_of_another_size_are_refused(tmp_path: Path, leader: MessageStore) -> None:
    config = CONFIG.model_copy(update={"mapped_file_size_commit_log": 2 * SEGMENT})
    with open_store(tmp_path / "other", config, leader=LEADER) as follower:
        with pytest.raises(LeaderLogRefused, match="mappedFileSizeCommitLog") as refused:
            receive(follower, leader)
        assert refused.value.reason == "segment-size"


def test_a_record_over_max_message_size_is_refused_before_it_is_kept_in_memory(
    tmp_path: Path, leader: MessageStore
) -> None:
    config = CONFIG.model_copy(update={"max_message_size": 1_024})
    wide = CONFIG.model_copy(update={"mapped_file_size_commit_log": 1 << 20})
    with (
        open_store(tmp_path / "wide", wide) as other,
        open_store(
            tmp_path / "narrow",
            config.model_copy(update={"mapped_file_size_commit_log": 1 << 20}),
            leader=LEADER,
        ) as follower,
    ):
        put_message(other, message(other, 1).replace(body=b"x" * (100 << 10)))
        with pytest.raises(LeaderLogRefused, match="maxMessageSize") as refused:
            receiver_of(follower).append(0, log_bytes(other)[:100])
        assert refused.value.reason == "record-size"


def test_a_promoted_follower_takes_messages_where_the_leader_would(
    tmp_path: Path, leader: MessageStore
) -> None:
    root = tmp_path / "promoted"
    with open_store(root, leader=LEADER) as follower:
        receive(follower, leader)
        receiver_of(follower).append(leader.log.max_offset, b"\0\0")
    with open_store(root) as store:
        assert store.receiver is None
        put(store, 30, start=COUNT)
        put(leader, 30, start=COUNT)
        assert bodies(store) == bodies(leader) == all_bodies(COUNT + 30)
        assert store.log.max_offset == leader.log.max_offset


def test_a_promoted_store_never_follows_again(tmp_path: Path, leader: MessageStore) -> None:
    root = tmp_path / "promoted"
    for _ in range(2):
        with open_store(root, leader=LEADER) as follower:
            receive(follower, leader)
    with open_store(root, services=False):
        pass
    open_store(root, leader=LEADER).close()
    open_store(root).close()
    with pytest.raises(DirectoryNotUsable, match="promoted"):
        open_store(root, leader=LEADER)
    open_store(root).close()


def test_a_follower_delivers_no_delayed_message(
    tmp_path: Path, leader: MessageStore, follower: MessageStore
) -> None:
    delayed = message(leader, 1)
    put_message(leader, delayed.replace(properties=delayed.properties + b"\x02DELAY\x011"))
    receive(follower, leader)
    assert follower.queues.get(SCHEDULE_TOPIC, 0) is not None
    assert not follower._parts.services.runs(follower.delays.service.name)
    assert follower.log.max_offset == leader.log.max_offset


def test_readers_beside_a_follower_read_what_has_arrived(
    leader: MessageStore, follower: MessageStore
) -> None:
    receive(follower, leader)
    reader = StoreReader.open(follower.paths.root, production_seams())
    try:
        assert reader.lookups.by_physical_offset(0).body == b"body 0 " * 10
    finally:
        reader.close()


def test_a_closed_follower_takes_no_bytes(tmp_path: Path, leader: MessageStore) -> None:
    follower = open_store(tmp_path / "closed", leader=LEADER)
    receiver = receiver_of(follower)
    receiver.append(0, log_bytes(leader)[:500])
    follower.close()
    with pytest.raises(StoreNotWritable, match="closing"):
        receiver.append(receiver.end, b"")


def test_what_was_acknowledged_as_on_disk_is_there_after_a_kill(
    tmp_path: Path, leader: MessageStore
) -> None:
    root = tmp_path / "killed"
    follower = open_store(root, leader=LEADER)
    end = receiver_of(follower).append(0, log_bytes(leader)[:9_000])
    follower.wait(end, Durability.SYNC)
    abandon(follower)
    with open_store(root, leader=LEADER) as follower:
        assert receiver_of(follower).end == end
        assert receiver_of(follower).offset == end
