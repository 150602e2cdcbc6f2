from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit, GroupOffset, Position
from mqstore.storage.errors import (
    GroupNameError,
    OffsetRefused,
    QueueUnknown,
    StorageError,
    TopicUnknown,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets
from tests.unit.storage.stores import CONFIG, abandon, open_store, put_some

ALL = 30
"""Messages of T, ten in each of its three queues."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("T", queues=3)
        put_some(opened, ALL)
        yield opened


def on_disk(store: MessageStore) -> ConsumerOffsets:
    return ConsumerOffsets.load(store.paths, store.format, production_seams())


def commits(**offsets: int) -> list[Commit]:
    return [Commit("T", int(name.removeprefix("q")), offset) for name, offset in offsets.items()]


def test_what_was_committed_is_where_the_group_stands(store: MessageStore) -> None:
    answer = store.offsets.commit("g", commits(q0=4, q2=10))

    assert answer == [GroupOffset("T", 0, 4, 0, 10), GroupOffset("T", 2, 10, 0, 10)]
    assert [each.committed for each in store.offsets.of("g")] == [4, None, 10]
    assert [each.lag for each in store.offsets.of("g", "T")] == [6, 10, 0]
    assert store.offsets.groups() == {"g": ["T"]}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Commit("T", 1, 11), OffsetRefused),
        (Commit("T", 1, -1), OffsetRefused),
        (Commit("T", 3, 0), QueueUnknown),
        (Commit("T", -1, 0), QueueUnknown),
        (Commit("unknown", 0, 0), TopicUnknown),
    ],
)
def test_one_wrong_commit_refuses_them_all(
    store: MessageStore, wrong: Commit, error: type[StorageError]
) -> None:
    with pytest.raises(error):
        store.offsets.commit("g", [*commits(q0=4), wrong])

    assert store.offsets.groups() == {}


def test_a_committed_offset_decreases_only_with_allow_back(store: MessageStore) -> None:
    store.offsets.commit("g", commits(q0=4))
    with pytest.raises(OffsetRefused, match="up to 4"):
        store.offsets.commit("g", commits(q0=3))

    (stand,) = store.offsets.commit("g", commits(q0=3), allow_back=True)

    assert stand.committed == 3


@pytest.mark.parametrize("name", ["", "a b", "g" * 121, "../x"])
def test_a_name_that_no_group_may_have_is_refused(store: MessageStore, name: str) -> None:
    with pytest.raises(GroupNameError):
        store.offsets.commit(name, commits(q0=1))
    with pytest.raises(GroupNameError):
        store.offsets.of(name)


def test_a_reset_is_shown_before_it_is_done(store: MessageStore) -> None:
    store.offsets.commit("g", commits(q0=4))
    third = store.lookups.records("T", 1, 2, 1).records[0]

    earliest = store.offsets.plan_reset("g", "T", Position.EARLIEST)
    latest = store.offsets.plan_reset("g", "T", Position.LATEST, queue_ids=[0, 1])
    by_time = store.offsets.plan_reset(
        "g", "T", Position.TIMESTAMP, third.store_timestamp_ms, queue_ids=[1]
    )

    assert [(each.before, each.after) for each in earliest] == [(4, 0), (None, 0), (None, 0)]
    assert [(each.before, each.after) for each in latest] == [(4, 10), (None, 10)]
    first_then = store.lookups.records("T", 1, by_time[0].after, 1).records[0]
    assert by_time[0].after <= 2
    assert first_then.store_timestamp_ms >= third.store_timestamp_ms
    assert store.offsets.of("g")[0].committed == 4

    store.offsets.apply("g", latest)

    assert [each.committed for each in store.offsets.of("g")] == [10, 10, None]
    assert on_disk(store).of("g", "T") == {0: 10, 1: 10}


def test_a_group_takes_the_offsets_of_another_one(store: MessageStore) -> None:
    store.offsets.commit("old", commits(q0=4, q2=10))
    store.offsets.commit("new", commits(q0=9, q1=3))
    changes = store.offsets.plan_reset("new", "T", Position.GROUP, source="old")
    assert [(each.queue_id, each.before, each.after) for each in changes] == [
        *((0, 9, 4), (2, None, 10)),
    ]
    store.offsets.apply("new", changes)
    assert [each.committed for each in store.offsets.of("new", "T")] == [4, 3, 10]
    assert on_disk(store).of("new", "T") == {0: 4, 1: 3, 2: 10}
    assert store.offsets.plan_reset("new", "T", Position.GROUP, source="unknown") == []


def test_a_reset_of_a_queue_that_is_not_there_is_refused(store: MessageStore) -> None:
    with pytest.raises(QueueUnknown):
        store.offsets.plan_reset("g", "T", Position.EARLIEST, queue_ids=[3])
    with pytest.raises(TopicUnknown):
        store.offsets.plan_reset("g", "unknown", Position.EARLIEST)


def test_commits_are_saved_by_the_service_and_at_the_close(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"flush_consumer_offset_interval": 5_000})
    with open_store(tmp_path / "store", config) as store:
        store.create_topic("T", queues=3)
        put_some(store, ALL)
        store.offsets.commit("g", commits(q0=4))

        assert store.offsets.step(100.0) == 105.0

        assert on_disk(store).of("g", "T") == {0: 4}
        store.offsets.commit("g", commits(q0=5))
    with open_store(tmp_path / "store") as store:
        assert store.offsets.of("g")[0].committed == 5


def test_what_was_not_saved_is_forgotten_by_a_kill_and_comes_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.create_topic("T", queues=3)
    put_some(store, ALL)
    store.offsets.commit("g", commits(q0=4))
    store.offsets.save()
    store.offsets.commit("g", commits(q0=7))
    abandon(store)
    with open_store(tmp_path / "store") as store:
        assert store.offsets.of("g")[0].committed == 4


@pytest.mark.parametrize("store_format", list(StoreFormat))
def test_an_offset_behind_its_queues_end_is_lowered_to_it_and_skips_nothing_later(
    tmp_path: Path, store_format: StoreFormat
) -> None:
    """As a broker leaves it whose log lost its end; a kill right after the opening included."""
    with open_store(tmp_path / "store", format=store_format) as store:
        put_some(store, ALL)
        table = on_disk(store)
    for topic, queue_id, offset in (("T", 0, 25), ("T", 1, 10), ("T", 7, 3), ("gone", 0, 5)):
        table.put("g", topic, queue_id, offset)
    table.save()
    killed = open_store(tmp_path / "store")
    put_some(killed, ALL, start=ALL)
    abandon(killed)

    with open_store(tmp_path / "store") as store:
        expected = {("T", 0): 10, ("T", 1): 10, ("T", 7): 0, ("gone", 0): 0}
        assert {(t, q): offset for _, t, q, offset in store.offsets._table.all()} == expected
        assert store.recovery.lowered_offsets == ()
    lowered = {(e.topic, e.queue_id): (e.before, e.after) for e in killed.recovery.lowered_offsets}
    assert lowered == {("T", 0): (25, 10), ("T", 7): (3, 0), ("gone", 0): (5, 0)}
    assert {each.group for each in killed.recovery.lowered_offsets} == {"g"}
    assert killed.recovery.lowered_offset_count == 3


def test_the_backup_of_lowered_offsets_is_lowered_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_some(store, ALL)
        table = on_disk(store)
    table.put("g", "T", 0, 25)
    table.save()
    with open_store(tmp_path / "store") as store:
        table.path.write_bytes(b"{")
        assert on_disk(store).get("g", "T", 0) == 10


def test_a_store_that_is_only_read_lowers_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_some(store, ALL)
        table = on_disk(store)
    table.put("g", "T", 0, 25)
    table.save()
    before = table.path.read_bytes()
    with open_store(tmp_path / "store", services=False, in_place=False) as store:
        assert store.recovery.lowered_offset_count == 0
    assert table.path.read_bytes() == before


def test_an_offset_behind_the_queues_end_can_be_corrected_without_going_back(
    store: MessageStore,
) -> None:
    store.offsets._table.put("g", "T", 0, 25)
    with pytest.raises(OffsetRefused, match="up to 25"):
        store.offsets.commit("g", commits(q0=9))

    (stand,) = store.offsets.commit("g", commits(q0=10))

    assert stand.committed == 10


def test_the_services_step_does_not_wait_for_a_save_that_is_under_way(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save waits for the log's sync; in a simulation the step runs within that wait."""
    steps: list[float] = []
    sync = store.log.sync

    def sync_with_a_step() -> None:
        store.offsets.commit("g", commits(q1=5))
        steps.append(store.offsets.step(0.0))
        sync()

    monkeypatch.setattr(store.log, "sync", sync_with_a_step)
    store.offsets.commit("g", commits(q0=4))
    store.offsets.save()
    assert len(steps) == 1
    assert on_disk(store).get("g", "T", 0) == 4
    monkeypatch.undo()
    store.offsets.step(0.0)
    assert on_disk(store).get("g", "T", 1) == 5


def test_nothing_is_written_while_nothing_changes(store: MessageStore) -> None:
    store.offsets.save()
    assert not (store.paths.config / "consumerOffset.json").exists()


@pytest.mark.parametrize("store_format", list(StoreFormat))
def test_groups_and_topics_are_forgotten(tmp_path: Path, store_format: StoreFormat) -> None:
    with open_store(tmp_path / "store", format=store_format) as store:
        for topic in ("T", "U"):
            store.create_topic(topic, queues=1)
            for group in ("g", "h"):
                store.offsets.commit(group, [Commit(topic, 0, 0)])
        store.offsets.forget_topic("T")
        store.offsets.forget_group("h")

        assert store.offsets.groups() == {"g": ["U"]}
        assert on_disk(store).groups() == {"g": ["U"]}


def test_a_deleted_topic_is_listed_while_a_group_has_offsets_in_it(store: MessageStore) -> None:
    """As a 4.9 broker leaves them when it deletes a topic."""
    store.offsets._table.put("g", "gone", 1, 7)

    assert store.offsets.of("g") == [
        GroupOffset("gone", 0, None, 0, 0),
        GroupOffset("gone", 1, 7, 0, 0),
    ]
