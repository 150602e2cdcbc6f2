"""A queue that is not used gives its mapping back, and loses nothing by it."""

from __future__ import annotations

import gc
import math
from pathlib import Path
from queue import Queue

import pytest

from mqstore.storage import reader_views
from mqstore.storage.dispatch.queue_flush import REST_STEP
from mqstore.storage.errors import StoreFailed
from mqstore.storage.layout import EXT_ADDRESS_MIN, PAGE_SIZE
from mqstore.storage.message_store import MessageStore
from mqstore.storage.options import Durability
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage import stores
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import abandon, message, open_store

QUEUES = 2 * REST_STEP + 1
CONFIG = stores.CONFIG.model_copy(
    update={
        "mapped_file_size_consume_queue": 4 * PAGE_SIZE,
    }
)

FAR = 1e12
PER_FILE = 4 * PAGE_SIZE // 20


def maps(root: Path) -> list[str]:
    gc.collect()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if f"{root}/consumequeue/" in line]


def mappings(root: Path) -> int:
    return len(maps(root))


def put_each(store: MessageStore, start: int = 0) -> None:
    for number in range(QUEUES):
        put_message(store, message(store, start + number, queue_id=number), Durability.ASYNC)
    store.dispatcher.run_to_end()


def look_at_all(store: MessageStore) -> None:
    flush = store._parts.core.queue_flush
    flush._thorough_due = -math.inf
    flush.step(FAR)  # from now on the service itself begins no look
    while flush._unseen:
        flush.step(FAR)


def put_at_rest(store: MessageStore) -> None:
    """Put a message into each queue, and have all queues unmapped by the second look."""
    put_each(store)
    look_at_all(store)
    look_at_all(store)


def body(store: MessageStore, queue_id: int, index: int = 0) -> bytes:
    queue = store.queues.get("T", queue_id)
    assert queue is not None
    entry = queue.entry(index)
    assert entry is not None
    return store.log.record_at(entry.physical_offset).body


def test_queues_that_are_not_used_have_no_mappings(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        put_each(store)
        look_at_all(store)  # from now on there is no other look, as at the opening
        put_each(store, QUEUES)
        assert mappings(tmp_path) == QUEUES
        look_at_all(store)
        assert mappings(tmp_path) == QUEUES, "all got an entry since the look before"
        put_message(store, message(store, 2 * QUEUES, queue_id=0), Durability.ASYNC)
        look_at_all(store)
        assert mappings(tmp_path) == 1
        look_at_all(store)
        assert mappings(tmp_path) == 0
        assert [state.end for state in store.queues.states()] == [3, *[2] * (QUEUES - 1)]
        assert mappings(tmp_path) == 0, "their entries are known without"


def test_a_queue_is_mapped_again_when_it_is_used(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        put_each(store)
        queue = store.queues.get("T", 1)
        assert queue is not None
        block = queue.block(0)
        assert block is not None
        look_at_all(store)
        look_at_all(store)
        assert mappings(tmp_path) == 1, "a slice that is held stays valid"
        assert bytes(block[0][:20]) == bytes(block[0][:20])
        del block
        assert mappings(tmp_path) == 0
        assert body(store, 1) == message(store, 1).body
        assert mappings(tmp_path) == 1
        put_message(store, message(store, QUEUES + 2, queue_id=2), Durability.ASYNC)
        assert mappings(tmp_path) == 2
        assert [body(store, 2, index) for index in range(2)] == [
            message(store, number).body for number in (2, QUEUES + 2)
        ]
    with open_store(tmp_path, CONFIG) as store:
        assert body(store, 2, 1) == message(store, QUEUES + 2).body


def test_a_queue_goes_on_in_its_next_file(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        for number in range(PER_FILE):
            put_message(store, message(store, number), Durability.ASYNC)
        look_at_all(store)
        look_at_all(store)
        assert mappings(tmp_path) == 0
        put_message(store, message(store, PER_FILE), Durability.ASYNC)
        assert mappings(tmp_path) == 1, "the full one is not needed"
        assert body(store, 0, PER_FILE) == message(store, PER_FILE).body
        assert body(store, 0, 0) == message(store, 0).body


def test_a_killed_writer_has_lost_nothing_of_them(tmp_path: Path) -> None:
    store = open_store(tmp_path, CONFIG)
    put_at_rest(store)
    put_message(store, message(store, QUEUES, queue_id=0), Durability.ASYNC)
    abandon(store)
    with open_store(tmp_path, CONFIG) as store:
        assert [state.end for state in store.queues.states()] == [2, *[1] * (QUEUES - 1)]
        assert body(store, 0, 1) == message(store, QUEUES).body


def test_the_minimum_moves_without_a_mapping(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        put_each(store)
        queue = store.queues.get("T", 7)
        assert queue is not None
        second = store.queues.get("T", 8)
        assert second is not None
        entry = second.entry(0)
        assert entry is not None
        look_at_all(store)
        look_at_all(store)
        assert list(store.queues.delete_before(entry.physical_offset)) == []
        assert mappings(tmp_path) == 0
        assert (queue.min_index, second.min_index) == (1, 0)


def test_a_topic_is_deleted_while_its_queues_have_no_mappings(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        put_each(store)
        queue = store.queues.get("T", 7)
        assert queue is not None
        look_at_all(store)
        look_at_all(store)
        mapped = queue.files.files[0]
        store.dispatcher.drop_queues("T", store.log.max_offset)
        assert store.queues.count == 0
        assert len(mapped.view) == mapped.size, "for readers that hold it"
        put_message(store, message(store, QUEUES), Durability.ASYNC)
        look_at_all(store)
        look_at_all(store)


def test_queues_with_units_rest_too(tmp_path: Path) -> None:
    config = CONFIG.model_copy(
        update={"enable_consume_queue_ext": True, "enable_calc_filter_bit_map": True}
    )
    with open_store(tmp_path, config) as store:
        store.create_topic("T", queues=1)
        store.subscriptions.put("g", "T", "a > 5")
        for number in range(2):
            put_message(store, message(store, number), Durability.ASYNC)
            queue = store.queues.get("T", 0)
            assert queue is not None and queue.ext is not None
            assert queue.units(queue.ext.files.min_offset + EXT_ADDRESS_MIN) is not None
            look_at_all(store)
            assert queue.is_mapped
            look_at_all(store)
            assert [*queue.files.mapped_sizes(), *queue.ext.files.mapped_sizes()] == []
            assert len(queue.ext.files.files) == 1


def test_a_file_that_is_gone_when_it_is_used_ends_the_store_and_the_next_opening_makes_it(
    tmp_path: Path,
) -> None:
    failures: Queue[BaseException] = Queue()
    store = open_store(tmp_path, CONFIG, on_failure=failures.put)
    for number in range(3):
        put_message(store, message(store, number, queue_id=number), Durability.ASYNC)
    look_at_all(store)
    look_at_all(store)
    paths = [queue.files.files[0].path for queue in store.queues.opened()]
    paths[0].unlink()
    replacement = paths[1].read_bytes()
    paths[1].rename(paths[1].with_name("aside"))
    paths[1].write_bytes(replacement)
    for queue_id in range(2):
        with pytest.raises(StoreFailed, match="removed or replaced"):
            body(store, queue_id)
    assert body(store, 2) == message(store, 2).body
    put_message(store, message(store, 3, queue_id=0), Durability.ASYNC)
    assert "removed or replaced" in str(failures.get(timeout=30))
    store.close()
    with open_store(tmp_path, CONFIG) as again:
        assert [body(again, 0, 0), body(again, 0, 1), body(again, 1)] == [
            message(again, number).body for number in (0, 3, 1)
        ]


def test_a_reader_unmaps_queues_that_are_not_looked_up(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        put_at_rest(store)
        with StoreReader.open(tmp_path, production_seams()) as reader:
            for number in range(QUEUES):
                assert reader.lookups.records("T", number, 0, 1).records
                reader.queues.aim("T", number, 0)
            assert mappings(tmp_path) >= QUEUES
            reader.drop_idle()
            assert mappings(tmp_path) >= QUEUES, "all were looked up before"
            pulled = reader.queues.pulled("T", 3)
            reader.drop_idle()
            assert {line.split("/")[-2] for line in maps(tmp_path)} == {"3"}
            assert reader.queues.pulled("T", 3) is pulled
            assert reader.lookups.records("T", 4, 0, 1).records


def test_a_reader_maps_a_limited_number_of_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_views, "QUEUES_MAX", 16)
    with open_store(tmp_path, CONFIG) as store:
        put_at_rest(store)
        with StoreReader.open(tmp_path, production_seams()) as reader:
            for number in range(QUEUES):
                assert reader.lookups.records("T", number, 0, 1).records
                assert len({line.split("/")[-2] for line in maps(tmp_path)}) <= 16
            assert len(reader.lookups.queues("T")) == QUEUES
