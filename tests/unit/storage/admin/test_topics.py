from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.admin.topics import TopicChange, TopicDeletion
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    LimitReached,
    QueueUnknown,
    StoreNotWritable,
    TopicConfigError,
    TopicNameError,
    TopicUnknown,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import TopicConfig, TopicTable
from mqstore.storage.verify import Kind, Verification
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, all_bodies, bodies, message, open_store
from tests.unit.storage.stores import put_some as put


def test_a_change_of_queues_names_what_consumers_can_receive_no_more(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("T", queues=8)
        put(store, 80, queues=8)
        fewer = TopicChange(3, 3)
        found = store.plan_topic_change("T", fewer)
        assert (found.queues, found.messages, found.unread, found.is_unread) == (5, 50, {}, True)
        store.offsets.commit("all", [Commit("T", queue_id, 10) for queue_id in range(8)])
        assert not store.plan_topic_change("T", fewer).is_unread
        store.offsets.commit("some", [Commit("T", 3, 4)])
        assert store.plan_topic_change("T", fewer).unread == {"some": 46}
        for harmless in (TopicChange(write_queues=3), TopicChange(perm=4), TopicChange(9, 9)):
            assert store.plan_topic_change("T", harmless).messages == 0
        assert store.plan_topic_change("new", fewer).messages == 0
        with pytest.raises(TopicConfigError):
            store.plan_topic_change("T", TopicChange(0, 0))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


def root(store: MessageStore) -> Path:
    return store.paths.root


def findings(path: Path) -> list[str]:
    verification = Verification(path, CONFIG, production_seams())
    found = (each for each in verification.findings() if each.kind is not Kind.QUARANTINED)
    return [f"{each.kind} {each.what}" for each in found]


def make(path: Path) -> MessageStore:
    """T and other, 30 messages each, in the same log."""
    store = open_store(path)
    for topic in ("T", "other"):
        store.create_topic(topic, queues=3)
    put_both(store, 30)
    return store


def put_both(store: MessageStore, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        for topic in ("T", "other"):
            store.append(message(store, number, topic=topic, queue_id=number % 3))


# creating and changing --------------------------------------------------------------------


def test_a_change_leaves_what_it_does_not_name(store: MessageStore) -> None:
    store.put_topic("T", TopicChange(read_queues=8, write_queues=2, order=True))
    changed = store.put_topic("T", TopicChange(perm=4, filter_type="MULTI_TAG"))

    assert changed == store.topic("T")
    assert changed == TopicConfig(
        "T", read_queues=8, write_queues=2, perm=4, filter_type="MULTI_TAG", order=True
    )


def test_topics_and_queues_are_limited_but_those_of_groups_are_not_counted(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"max_topics": 3, "max_queues": 10})
    with open_store(tmp_path / "store", config) as store:
        store.create_topic("A", queues=4)
        store.create_topic("B", queues=4)
        for each in ("%RETRY%g", "%DLQ%g"):
            store.create_topic(each, queues=8)
        with pytest.raises(LimitReached, match="needs 3 queues more than 8, and maxQueues allows"):
            store.create_topic("C", queues=3)
        with pytest.raises(LimitReached, match="maxQueues"):
            store.put_topic("A", TopicChange(read_queues=7))
        store.create_topic("C", queues=2)
        with pytest.raises(LimitReached, match="one more than 3, and maxTopics allows 3") as error:
            store.create_topic("D", queues=1)
        assert (error.value.setting, error.value.limit) == ("maxTopics", 3)
        store.put_topic("A", TopicChange(perm=4))  # as many as before
    with open_store(tmp_path / "store", config) as store:
        with pytest.raises(LimitReached):
            store.create_topic("D", queues=1)
        store.delete_topic("B")
        store.create_topic("D", queues=4)


def test_a_limit_is_checked_without_a_look_at_every_topic(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("first")

    def refuse(table: TopicTable) -> list[TopicConfig]:
        raise AssertionError("every topic was read")

    monkeypatch.setattr(TopicTable, "all", refuse)
    for number in range(100):
        store.create_topic(f"T{number}")


@pytest.mark.parametrize(
    "change",
    [
        TopicChange(read_queues=0),
        TopicChange(write_queues=70_000),
        TopicChange(perm=8),
        TopicChange(filter_type="TAGS"),
        TopicChange(attributes={"message.type": "FIFO"}),
    ],
)
def test_what_no_topic_can_have_is_refused(store: MessageStore, change: TopicChange) -> None:
    with pytest.raises(TopicConfigError):
        store.put_topic("T", change)
    assert store.topics() == []


def test_attributes_are_those_of_5_x(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", format=StoreFormat.V5_X) as store:
        store.put_topic("T", TopicChange(attributes={"message.type": "FIFO"}))
        for wrong in ({"queue.type": "BatchCQ"}, {"cleanup.policy": "COMPACTION"}, {"x": "y"}):
            with pytest.raises(TopicConfigError):
                store.put_topic("T", TopicChange(attributes=wrong))
        assert store.topic("T").attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "TBW102", "rmq_sys_x"])
def test_system_topics_are_safe_from_change_and_deletion(store: MessageStore, name: str) -> None:
    store.append(message(store, 1, topic=name))
    with pytest.raises(TopicNameError, match="system topic"):
        store.put_topic(name, TopicChange())
    with pytest.raises(TopicNameError, match="system topic"):
        store.delete_topic(name)
    assert store.topic(name).name == name


def test_a_store_that_is_only_looked_at_changes_no_topic(store: MessageStore) -> None:
    store.create_topic("T")
    with open_store(root(store), in_place=False, services=False, create=False) as looked:
        with pytest.raises(StoreNotWritable):
            looked.create_topic("U")
        with pytest.raises(StoreNotWritable):
            looked.delete_topic("T")


# deleting ---------------------------------------------------------------------------------


def test_what_a_deletion_takes_is_shown_and_then_gone(tmp_path: Path) -> None:
    with make(tmp_path / "store") as store:
        store.offsets.commit("g", [Commit("T", 0, 5), Commit("other", 0, 5)])
        expected = TopicDeletion("T", 3, 30, ("g",))
        assert store.plan_topic_deletion("T") == expected
        assert store.topic("T").write_queues == 3

        assert store.delete_topic("T") == expected

        with pytest.raises(TopicUnknown):
            store.topic("T")
        with pytest.raises(TopicUnknown):
            store.delete_topic("T")
        assert [topic.name for topic in store.topics()] == ["other"]
        assert store.offsets.groups() == {"g": ["other"]}
        assert not (root(store) / "consumequeue" / "T").exists()
        assert bodies(store, topic="other") == all_bodies(30)
        assert store.lookups.by_key("T", "k3").records, "its messages stay in the log"


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("lost", ["", "consumequeue/other/1"])
def test_a_deleted_topic_does_not_come_back(tmp_path: Path, killed: bool, lost: str) -> None:
    path = tmp_path / "store"
    store = make(path)
    store.delete_topic("T")
    store.append(message(store, 99, topic="other"))
    if killed:
        abandon(store)
    else:
        store.close()
    for file in (path / lost).rglob("0000*") if lost else ():
        file.unlink()
    with open_store(path) as store:
        assert [topic.name for topic in store.topics()] == ["other"]
        assert bodies(store, topic="other") == all_bodies(30) | {b"body 99 " * 10}
    assert findings(path) == []


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_topic_made_anew_goes_on_with_its_queue_offsets(
    tmp_path: Path, killed: bool, rebuilt: bool
) -> None:
    """Else records of one queue offset would be in the log twice, and a recovery would take the
    new ones for what an earlier cut left, or put the old ones into the queue again."""
    path = tmp_path / "store"
    store = make(path)
    store.delete_topic("T")
    store.create_topic("T", queues=3)
    put_both(store, 30, start=30)
    new = {b"body %d " % number * 10 for number in range(30, 60)}
    assert store.lookups.queue_range("T", 0).min_offset == 10
    assert readable(store) == new
    if killed:
        abandon(store)
    else:
        store.close()
    if rebuilt:
        for file in (path / "consumequeue" / "T").rglob("0000*"):
            file.unlink()
    with open_store(path) as store:
        assert readable(store) == new
        assert store.log.offsets.next("T", 0) == 20
        assert store.dispatcher.counts.different == 0
        assert store.recovery.plan.repeated_queue_offsets == 0
    assert findings(path) == []


def test_a_reader_sees_a_topic_go_and_come_again(tmp_path: Path) -> None:
    with (
        make(tmp_path / "store") as store,
        StoreReader.open(root(store), production_seams()) as reader,
    ):
        assert len(reader.lookups.records("T", 0, 0).records) == 10
        store.delete_topic("T")
        with pytest.raises(QueueUnknown):
            reader.lookups.records("T", 0, 0)
        assert reader.lookups.topics() == ["other"]
        store.create_topic("T", queues=3)
        put_both(store, 3, start=30)
        (record,) = reader.lookups.records("T", 0, 0).records
        assert record.body == b"body 30 " * 10


def readable(store: MessageStore) -> set[bytes]:
    """Messages that a consumer gets from offset 0."""
    pulls = [store.lookups.records("T", queue_id, 0, 100) for queue_id in range(3)]
    return {record.body for pull in pulls for record in pull.records}


def test_a_topic_deleted_twice_goes_on_where_it_was(tmp_path: Path) -> None:
    with make(tmp_path / "store") as store:
        for _ in range(2):
            store.delete_topic("T")
            store.create_topic("T", queues=3)
            put_both(store, 3)
        assert store.lookups.queue_range("T", 0).max_offset == 12
        store.delete_topic("T")
    with open_store(tmp_path / "store") as store:
        assert store.log.offsets.next("T", 0) == 12


def test_queues_that_a_halt_left_of_a_deletion_go_at_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = make(path)
    kept = {file: file.read_bytes() for file in (path / "consumequeue/T").rglob("0000*")}
    store.delete_topic("T")
    abandon(store)
    for file, content in kept.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with open_store(path) as store:
        assert [topic.name for topic in store.topics()] == ["other"]
        assert not (path / "consumequeue" / "T").exists()


@pytest.mark.parametrize("is_known", [False, True])
def test_a_deletion_that_a_halt_ended_removes_no_message_that_was_stored_meanwhile(
    tmp_path: Path, is_known: bool
) -> None:
    path = tmp_path / "store"
    store = make(path)

    def halt() -> None:
        put_both(store, 3, start=30)
        if is_known:
            store._parts.running_manifest.step(0)
        raise KeyboardInterrupt

    store._parts.directory.deleted.on_change = halt
    with pytest.raises(KeyboardInterrupt):
        store.delete_topic("T")
    abandon(store)
    for _ in range(2):
        with open_store(path) as store:
            assert readable(store) == {b"body %d " % number * 10 for number in range(30, 33)}
    assert findings(path) == []


def test_the_note_of_a_deleted_topic_is_dropped_after_another_program_wrote_to_the_store(
    tmp_path: Path,
) -> None:
    """A broker may have cut the log below the note's offset, and put new messages there."""
    path = tmp_path / "store"
    with make(path) as store:
        store.delete_topic("T")
    with (path / "lock").open("r+b") as lock:
        lock.write(b"lock")  # as a broker does at its start
    for file in (path / "consumequeue").rglob("0000*"):
        file.unlink()
    with open_store(path) as store:
        assert bodies(store) == all_bodies(30), "as after a broker's own recovery"
        assert not store.paths.deleted_topics.exists()


@pytest.mark.parametrize("closed", [True, False])
def test_a_deletion_is_kept_in_a_copy_whose_files_all_have_other_times(
    tmp_path: Path, closed: bool
) -> None:
    """As ``cp -r`` makes it."""
    path, copy = tmp_path / "store", tmp_path / "copy"
    store = make(path)
    store.delete_topic("T")
    store.close() if closed else abandon(store)
    shutil.copytree(path, copy, copy_function=shutil.copyfile)
    found = Verification(copy, StoreConfig(), production_seams()).findings()
    assert [each for each in found if each.topic == "T"] == []
    for _ in range(2):
        with open_store(copy) as store:
            assert [topic.name for topic in store.topics()] == ["other"]
            assert store.log.offsets.next("T", 0) > 0


def test_a_deletion_hides_nothing_that_is_put_to_a_copy_whose_log_ends_before_it(
    tmp_path: Path,
) -> None:
    """The log was copied first, and grew before its topic was deleted."""
    path, copy = tmp_path / "store", tmp_path / "copy"
    with make(path) as store:
        shutil.copytree(path / "commitlog", copy / "commitlog")
        put(store, 300, start=100)
        store.delete_topic("T")
    shutil.copytree(path, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("commitlog"))
    for name in ("state", "clean-close.json", "running.json"):
        (copy / "mqstore" / name).unlink(missing_ok=True)
    shutil.rmtree(copy / "consumequeue")
    with open_store(copy) as store:
        (note,) = store._parts.directory.deleted.all()
        assert note.offset == store.log.max_offset
        assert [topic.name for topic in store.topics()] == ["other"]
        placed = put_message(store, message(store, 7, topic="T", queue_id=0))
    with open_store(copy) as store:
        found = store.lookups.records("T", 0, placed.queue_offset, 1).records
        assert [each.physical_offset for each in found] == [placed.physical_offset]


def test_notes_end_with_the_messages(tmp_path: Path) -> None:
    with make(tmp_path / "store") as store:
        store.delete_topic("T")
        put(store, 1000, start=100)
        store.flush.flush_all()
        store.expire(1)
        store.create_topic("U", queues=1)
        store.delete_topic("U")
        assert [note.topic for note in store._parts.directory.deleted.all()] == ["U"]


def test_notes_that_cannot_be_read_are_done_without(tmp_path: Path) -> None:
    with make(tmp_path / "store") as store:
        store.delete_topic("T")
    (tmp_path / "store/mqstore/deleted-topics.json").write_text("{")
    with open_store(tmp_path / "store") as store:
        assert store.log.offsets.next("T", 0) == 0


@pytest.mark.parametrize(
    ("template", "made"),
    [
        (TopicConfig("TBW102", 8, 8, 7), (8, 6)),
        (TopicConfig("TBW102", 8, 2, 7), (2, 6)),
        (TopicConfig("TBW102", 16, 16, 5), (8, 4)),
        (TopicConfig("TBW102", 8, 8, 6), None),
        (TopicConfig("TBW102", 8, 8, 0), None),
    ],
)
def test_a_topic_of_a_producer_is_made_after_the_brokers_template(
    store: MessageStore, template: TopicConfig, made: tuple[int, int] | None
) -> None:
    store._parts.tables.topics.put(template)
    if made is None:
        with pytest.raises(TopicUnknown, match="TBW102 is without 1"):
            store.create_topic_by_producer("new")
        with pytest.raises(TopicUnknown):
            store.topic("new")
    else:
        found = store.create_topic_by_producer("new")
        assert (found.read_queues, found.write_queues, found.perm) == (made[0], *made)
    assert store.create_topic_by_producer("%RETRY%g").perm == 6


def test_a_topic_of_a_producer_has_the_default_number_of_queues(store: MessageStore) -> None:
    assert store.create_topic_by_producer("new").write_queues == 8
