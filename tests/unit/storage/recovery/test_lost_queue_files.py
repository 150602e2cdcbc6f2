"""Queues that lost files: the next opening makes the entries again of all records in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import manifest
from mqstore.storage.queues.consume_queue import ConsumeQueue
from tests.long_runs import few_first
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, all_bodies, bodies, message, put_some
from tests.unit.storage.stores import open_store as open_any

COUNT = 900
PER_QUEUE = COUNT // 3
"""Entries of each queue, in three files."""
FILE = CONFIG.mapped_file_size_consume_queue
FORMATS = pytest.mark.parametrize(
    "store_format", few_first(StoreFormat, others=pytest.mark.nightly)
)
LOST = pytest.mark.parametrize("lost", [(0,), (1,), (0, 1), (0, 2), (0, 1, 2)])


def open_store(root: Path, store_format: StoreFormat = StoreFormat.V4_9) -> MessageStore:
    return open_any(root, format=store_format)


def note(store: MessageStore) -> None:
    """Note what the queues have on disk."""
    store._parts.running_manifest.step(0.0)


def queue_of(store: MessageStore) -> ConsumeQueue:
    queue = store.queues.get("T", 1)
    assert queue is not None
    return queue


def path_of(root: Path, number: int) -> Path:
    return root / "consumequeue" / "T" / "1" / f"{number * FILE:020d}"


def lose(root: Path, *numbers: int) -> None:
    for number in numbers:
        path_of(root, number).unlink()


def content(root: Path) -> list[tuple[str, bytes]]:
    files = sorted((root / "consumequeue").rglob("?" * 20))
    return [(str(path), path.read_bytes()) for path in files]


def assert_whole(store: MessageStore) -> None:
    assert bodies(store) == all_bodies(COUNT)
    queue = queue_of(store)
    assert (queue.first_index, queue.min_index, queue.max_index) == (0, 0, PER_QUEUE)
    assert store.recovery.dispatch_skipped == 0


@FORMATS
@LOST
@pytest.mark.parametrize("noted", [False, True])
def test_after_a_kill_lost_files_are_made_again(
    tmp_path: Path, store_format: StoreFormat, lost: tuple[int, ...], noted: bool
) -> None:
    store = open_store(tmp_path, store_format)
    put_some(store, COUNT)
    if noted:
        note(store)
    abandon(store)
    before = content(tmp_path)
    lose(tmp_path, *lost)
    with open_store(tmp_path, store_format) as again:
        assert_whole(again)
        expected = "queue 1 of T lacks entries" if noted else "the queues were durable up to here"
        assert again.recovery.plan.dispatch_reason == expected
    assert content(tmp_path) == before


@FORMATS
@LOST
def test_after_a_clean_close_lost_files_are_made_again(
    tmp_path: Path, store_format: StoreFormat, lost: tuple[int, ...]
) -> None:
    with open_store(tmp_path, store_format) as store:
        put_some(store, COUNT)
        note(store)
    before = content(tmp_path)
    lose(tmp_path, *lost)
    with open_store(tmp_path, store_format) as again:
        assert_whole(again)
    assert content(tmp_path) == before


@FORMATS
@LOST
def test_lost_files_of_a_queue_that_only_a_broker_knew_are_made_again(
    tmp_path: Path, store_format: StoreFormat, lost: tuple[int, ...]
) -> None:
    with open_store(tmp_path, store_format) as store:
        put_some(store, COUNT)
    lose(tmp_path, *lost)
    (tmp_path / "mqstore" / "running.json").unlink()
    (tmp_path / "lock").write_bytes(b"lock")
    with open_store(tmp_path, store_format) as again:
        assert_whole(again)


@FORMATS
def test_a_power_cut_that_leaves_the_name_of_a_later_file_alone_costs_no_entry(
    tmp_path: Path, store_format: StoreFormat
) -> None:
    """Each file's name becomes durable by itself, and the entries after that."""
    store = open_store(tmp_path, store_format)
    note(store)
    put_some(store, COUNT)
    abandon(store)
    lose(tmp_path, 0, 2)
    path_of(tmp_path, 1).write_bytes(bytes(FILE))
    with open_store(tmp_path, store_format) as again:
        assert_whole(again)


@FORMATS
def test_a_power_cut_that_leaves_a_later_file_alone_costs_no_entry(
    tmp_path: Path, store_format: StoreFormat
) -> None:
    """Its entries are above the last note: they are dropped, and the file is empty then."""
    store = open_store(tmp_path, store_format)
    put_message(store, message(store, 0, topic="other"))
    note(store)
    put_some(store, COUNT)
    abandon(store)
    lose(tmp_path, 0, 2)
    with open_store(tmp_path, store_format) as again:
        assert again.recovery.plan.dispatch_from > 0
        assert_whole(again)


@FORMATS
@pytest.mark.parametrize("noted", ["never", "before", "since"])
def test_a_queue_whose_first_files_expired_begins_where_it_did(
    tmp_path: Path, store_format: StoreFormat, noted: str
) -> None:
    store = open_store(tmp_path, store_format)
    put_some(store, COUNT)
    if noted == "before":
        note(store)
    assert store.expire(2) == 2
    if noted == "since":
        note(store)
    found = queue_of(store)
    expected = found.first_index, found.min_index, found.max_index
    assert expected[0] == 100
    abandon(store)
    with open_store(tmp_path, store_format) as again:
        queue = queue_of(again)
        assert (queue.first_index, queue.min_index, queue.max_index) == expected
        begin = again.log.max_offset if noted == "since" else again.log.min_offset
        assert noted == "before" or again.recovery.plan.dispatch_from == begin
        assert put_message(again, message(again, 0, queue_id=1)).queue_offset == PER_QUEUE


@FORMATS
@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("lost", [(1,), (2,), (1, 2)])
def test_files_that_are_lost_after_others_expired_are_made_again(
    tmp_path: Path, store_format: StoreFormat, lost: tuple[int, ...], noted: bool
) -> None:
    """The first file that is left is lost: it begins at the entry of a record that has expired."""
    store = open_store(tmp_path, store_format)
    put_some(store, COUNT)
    assert store.expire(2) == 2
    if noted:
        note(store)
    least = queue_of(store).min_index
    expected = list(queue_of(store).entries(least, PER_QUEUE))
    abandon(store)
    lose(tmp_path, *lost)
    with open_store(tmp_path, store_format) as again:
        queue = queue_of(again)
        assert list(queue.entries(least, PER_QUEUE)) == expected
        assert (queue.first_index, queue.min_index) == (100, least)
        assert put_message(again, message(again, 0, queue_id=1)).queue_offset == PER_QUEUE


def test_queues_that_lost_files_by_expiry_are_noted_though_nothing_was_put(tmp_path: Path) -> None:
    """Otherwise an opening after a halt would read the log to see that nothing is missing."""
    with open_store(tmp_path) as store:
        put_some(store, COUNT)
        note(store)
        assert store.expire(2) == 2
        note(store)
        noted = manifest.load(store._parts.seams.files, store.paths.running)
        assert noted is not None
        assert {queue.first for queue in noted.queues} == {100}
