"""A reader drops its maps of files that the writer deleted; answers that it gave stay whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import RecordExpired
from mqstore.storage.message_store import MessageStore
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, message, open_store, put_some

EXT = StoreConfig.model_validate(
    CONFIG.model_dump()
    | {
        "enable_consume_queue_ext": True,
        "mapped_file_size_consume_queue_ext": 1024,
        "enable_calc_filter_bit_map": True,
    }
)


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root) as opened:
        put_some(opened, 1500)
        yield opened


@pytest.fixture
def reader(root: Path, store: MessageStore) -> Iterator[StoreReader]:
    with StoreReader.open(root, production_seams()) as opened:
        _read_all(opened)
        yield opened


def _read_all(reader: StoreReader) -> None:
    for queue_id in range(3):
        assert reader.lookups.records("T", queue_id, 0, 1000).records
        reader.queues.aim("T", queue_id, 0)
    assert reader.lookups.by_key("T", "k1").records


def _deleted_maps(root: Path) -> list[str]:
    """The reader's: read-only. The writer, in the same process, maps checksums of blocks until its
    next flush."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    ours = [line for line in maps if str(root) in line and " r--s " in line]
    return [line for line in ours if line.endswith("(deleted)")]


def test_segments_queue_files_and_index_files_are_dropped_without_a_look_up(
    root: Path, store: MessageStore, reader: StoreReader
) -> None:
    removed = store.retention.removal
    segments = len(store.log.files.files)
    assert segments >= 4
    store.expire(segments - 2)
    assert removed.queue_files > 0
    assert removed.index_files > 0
    assert _deleted_maps(root)
    reader.drop_deleted()
    assert _deleted_maps(root) == []
    with pytest.raises(RecordExpired):
        reader.lookups.by_physical_offset(0)
    assert reader.lookups.records("T", 0, 400).records


def test_queue_files_that_go_long_after_the_segments_are_dropped_too(
    root: Path, store: MessageStore, reader: StoreReader
) -> None:
    store.retention.removal.remove_segments(len(store.log.files.files) - 2)
    reader.drop_deleted()
    assert _deleted_maps(root) == []
    for _ in store.retention.removal.remove_derived():
        reader.drop_deleted()
        assert not [line for line in _deleted_maps(root) if "consumequeue" in line]
    reader.drop_deleted()
    assert _deleted_maps(root) == []


def test_a_segment_that_was_made_ahead_and_given_up_is_dropped(
    root: Path, store: MessageStore
) -> None:
    ahead = store.log.files.path_of(store.log.files.files[-1].end_offset)
    deadline = time.monotonic() + 30
    while not ahead.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    with StoreReader.open(root, production_seams()) as reader:
        _read_all(reader)
        assert store.retention.removal.give_up_spares() > 0
        assert _deleted_maps(root)
        reader.drop_deleted()
        assert _deleted_maps(root) == []


def test_an_answer_that_was_given_keeps_its_bytes_and_nothing_else_does(
    root: Path, store: MessageStore, reader: StoreReader
) -> None:
    answer = reader.log.select(0, 100)
    assert answer is not None
    whole = bytes(answer)
    store.expire(2)
    reader.drop_deleted()
    assert len(_deleted_maps(root)) == 1
    assert answer == whole
    del answer
    assert _deleted_maps(root) == []


def test_files_of_a_deleted_topic_are_dropped(
    root: Path, store: MessageStore, reader: StoreReader
) -> None:
    put_message(store, message(store, 1, topic="U"))
    store.delete_topic("T")
    reader.drop_deleted()
    assert [line for line in _deleted_maps(root) if "consumequeue" in line] == []


def test_units_of_filters_are_dropped(tmp_path: Path) -> None:
    with open_store(tmp_path, EXT) as store:
        store.create_topic("T", queues=1)
        store.subscriptions.put("g", "T", "a > 1")
        put_some(store, 1500, queues=1)
        with StoreReader.open(tmp_path, production_seams()) as reader:
            queue = reader.queues.get("T", 0)
            assert queue is not None
            entry = queue.entry(0)
            assert entry is not None
            assert queue.units(entry.tags_code) is not None
            store.expire(len(store.log.files.files) - 2)
            assert any("consumequeue_ext" in line for line in _deleted_maps(tmp_path))
            reader.drop_deleted()
            assert _deleted_maps(tmp_path) == []
