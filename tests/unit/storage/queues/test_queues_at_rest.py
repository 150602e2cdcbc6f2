"""Queues cost what they hold: on disk, in memory, at an opening, and at their first message."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.config import StoreConfig
from mqstore.storage.dedup.tail import QUEUES_MAX
from mqstore.storage.errors import FilePending, StoreFailed
from mqstore.storage.layout import PAGE_SIZE, QUEUE_ENTRY_SIZE
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.metadata import manifest
from mqstore.storage.metadata.manifest import Manifest
from mqstore.storage.options import Durability
from mqstore.storage.queues.queue_entry import ENTRY
from mqstore.storage.recovery.report import StartReason
from mqstore.storage.seams import FileStat, FileSystem, MappedBytes
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from tests.page_cache import evict, pages_in_memory
from tests.unit.storage import stores
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import abandon, message, open_store

QUEUES = 2 * QUEUES_MAX
FILE = 320 * PAGE_SIZE
CONFIG = stores.CONFIG.model_copy(update={"mapped_file_size_consume_queue": FILE})
"""Queue files of many pages, as RocketMQ's of 1,465 are."""
WITHOUT_KEYS = CONFIG.model_copy(update={"unique_key_window_count": 0})
"""No key is loaded, for which an opening reads some of the queues."""


class CountedFiles(PosixFileSystem):
    """Counts what is done to files of queues and their directories."""

    def __init__(self, root: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._queues = root / "consumequeue"

    def stat(self, path: Path) -> FileStat | None:
        self._count("stat", path)
        return super().stat(path)

    def list(self, directory: Path) -> list[str]:
        self._count("list", directory)
        return super().list(directory)

    def map(self, path: Path, *, writable: bool, sparse: bool = False) -> MappedBytes:
        self._count("map", path)
        return super().map(path, writable=writable, sparse=sparse)

    def sync_directory(self, path: Path) -> None:
        self._count("sync_directory", path)
        super().sync_directory(path)

    def next_data(self, path: Path, offset: int) -> int | None:
        self._count("next_data", path)
        return super().next_data(path, offset)

    def _count(self, name: str, path: Path) -> None:
        if path.is_relative_to(self._queues):
            self.counts[name] += 1


def opened(
    root: Path, config: StoreConfig = CONFIG, **options: object
) -> tuple[MessageStore, CountedFiles]:
    files = CountedFiles(root)
    seams = replace(production_seams(), files=files)
    chosen = StoreOptions(**options)  # type: ignore[arg-type] # passed through
    return MessageStore.open(root, config, seams, chosen), files


def fill(root: Path) -> None:
    """One message in each queue."""
    with open_store(root, CONFIG) as store:
        put_each(store)


def put_each(store: MessageStore, start: int = 0) -> None:
    for number in range(QUEUES):
        put_message(store, message(store, start + number, queue_id=number), Durability.ASYNC)


def body(store: MessageStore, queue_id: int, index: int = 0) -> bytes:
    queue = store.queues.get("T", queue_id)
    assert queue is not None
    entry = queue.entry(index)
    assert entry is not None
    return store.log.record_at(entry.physical_offset).body


def queue_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())


def put_to_the_cold(root: Path) -> None:
    gc.collect()  # maps of stores that were closed
    for path in queue_files(root):
        evict(path)


def test_a_queue_with_one_message_takes_one_page(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        put_each(store)
        for path in queue_files(tmp_path):
            found = path.stat()
            assert (found.st_size, found.st_blocks * 512) == (FILE, PAGE_SIZE)
            assert pages_in_memory(path) == 1


def test_an_opening_after_a_clean_close_leaves_queues_at_rest(tmp_path: Path) -> None:
    fill(tmp_path)
    put_to_the_cold(tmp_path)
    store, files = opened(tmp_path)
    with store:
        assert store.recovery.plan.start_reason is StartReason.CLEAN_CLOSE
        assert len(store.queues.opened()) == QUEUES_MAX, "those that are searched for unique keys"
        assert files.counts["map"] == QUEUES_MAX
        assert files.counts["stat"] < 6 * QUEUES
        assert store.status().queues == store.queues.count == QUEUES
        assert [state.end for state in store.queues.states()] == [1] * QUEUES
    resting = [path for path in queue_files(tmp_path) if not pages_in_memory(path)]
    assert len(resting) == QUEUES - QUEUES_MAX


def test_queues_at_rest_stay_so_over_further_closes(tmp_path: Path) -> None:
    fill(tmp_path)
    for _ in range(2):
        with open_store(tmp_path, CONFIG) as store:
            assert store.queues.count - len(store.queues.opened()) == QUEUES - QUEUES_MAX
    with open_store(tmp_path, CONFIG) as store:
        assert [body(store, number) for number in range(QUEUES)] == [
            message(store, number).body for number in range(QUEUES)
        ]


def test_no_descriptor_is_kept_of_a_queue(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        put_message(store, message(store, 0))
        before = len(list(Path("/proc/self/fd").iterdir()))
        put_each(store)
        assert len(list(Path("/proc/self/fd").iterdir())) < before + QUEUES // 2


def test_put_to_a_queue_at_rest_requires_its_files_first(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_store(tmp_path, CONFIG, waits_for_files=False) as store:
        (resting, *_) = [
            state for state in store.queues.states() if store.queues.known(*state.place) is None
        ]
        new = message(store, 900, queue_id=resting.queue_id)
        end = store.log.max_offset
        with pytest.raises(FilePending) as caught:
            store.append(new)
        assert store.log.max_offset == end
        caught.value.make()
        store.append(new)
        assert store.dispatcher.behind == 0
        assert body(store, resting.queue_id, 1) == new.body


def test_each_directory_of_new_queues_is_synced_once_and_by_the_flush(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    with store:
        with store._parts.core.queue_flush.pause():
            put_each(store)
            assert files.counts["sync_directory"] == 0
        store._parts.core.queue_flush.flush_all()
        assert files.counts["sync_directory"] == QUEUES + 2
        put_each(store, QUEUES)
        store._parts.core.queue_flush.flush_all()
        assert files.counts["sync_directory"] == QUEUES + 2


def lose_an_entry(root: Path) -> Path:
    """Zero the entries of a queue that the next opening leaves at rest; returns its file."""
    path = queue_files(root)[-1]
    path.write_bytes(bytes(FILE))
    return path


def test_a_queue_that_lost_entries_ends_the_store_and_the_next_opening_makes_them(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    queue_id = int(lose_an_entry(tmp_path).parent.name)
    failures: list[BaseException] = []
    store = open_store(tmp_path, CONFIG, on_failure=failures.append)
    assert store.recovery.plan.start_reason is StartReason.CLEAN_CLOSE
    with pytest.raises(StoreFailed, match=rf"queue {queue_id} of T was left with .* 0 to 1"):
        store.queues.get("T", queue_id)
    assert store.failure is failures[0]
    store.close()
    with open_store(tmp_path, CONFIG) as again:
        assert body(again, queue_id) == message(again, queue_id).body


def test_a_reader_makes_no_page_behind_the_end_of_a_queue(tmp_path: Path) -> None:
    fill(tmp_path)
    put_to_the_cold(tmp_path)
    with StoreReader.open(tmp_path, production_seams()) as reader:
        assert [queue.max_index for queue in reader.queues.of_topic("T")] == [1] * QUEUES
        reader.drop_deleted()
    assert {pages_in_memory(path) for path in queue_files(tmp_path)} == {1}


def test_an_opening_after_a_halt_makes_no_page_behind_the_end_of_a_queue(tmp_path: Path) -> None:
    store = open_store(tmp_path, CONFIG)
    put_each(store)
    abandon(store)
    put_to_the_cold(tmp_path)
    with open_store(tmp_path, CONFIG) as again:
        assert len(again.queues.opened()) == QUEUES
    assert {pages_in_memory(path) for path in queue_files(tmp_path)} == {1}


def test_expiry_opens_no_queue_of_one_file(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_store(tmp_path, CONFIG) as store:
        before = len(store.queues.opened())
        assert list(store.queues.delete_before(10_000)) == []
        assert len(store.queues.opened()) == before
        ranges = [(queue.min_index, queue.max_index) for queue in store.queues.all()]
        assert {low for low, _ in ranges} == {0, 1}, "expired entries are below the minimum"


def noted(root: Path) -> MessageStore:
    """A store with a message in each queue, once it has noted how far the queues are on disk."""
    store = open_store(root, WITHOUT_KEYS)
    put_each(store)
    store._parts.running_manifest.step(0.0)
    return store


def test_an_opening_after_a_kill_maps_only_queues_that_got_messages_since_they_were_noted(
    tmp_path: Path,
) -> None:
    store = noted(tmp_path)
    put_message(store, message(store, 900, queue_id=3), Durability.ASYNC)
    abandon(store)

    again, files = opened(tmp_path, WITHOUT_KEYS)

    assert [queue.queue_id for queue in again.queues.opened()] == [3]
    assert files.counts["map"] <= 2 * QUEUES + 3, "files are looked at, and let go"
    assert body(again, 3, 1) == message(again, 900).body
    for number in range(QUEUES):
        assert body(again, number) == message(again, number).body
    again.close()


@pytest.mark.parametrize("killed", [False, True])
def test_an_opening_looks_once_at_each_queue_and_reads_each_manifest_once(
    tmp_path: Path, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = noted(tmp_path)
    abandon(store) if killed else store.close()
    loaded: list[str] = []
    load = manifest.load

    def noting(files: FileSystem, path: Path) -> Manifest | None:
        loaded.append(path.name)
        return load(files, path)

    monkeypatch.setattr(manifest, "load", noting)

    again, files = opened(tmp_path, WITHOUT_KEYS)

    # Each queue: its directory is listed, the length of its file read, and after a kill its end.
    assert not again.queues.opened()
    others = 8
    assert files.counts["stat"] <= QUEUES + others
    assert files.counts["list"] <= QUEUES + others
    assert files.counts["map"] <= (QUEUES if killed else 0) + others
    assert files.counts["next_data"] <= (2 * QUEUES if killed else 0) + others
    assert sorted(loaded) == ["clean-close.json", "running.json"]
    again.close()


def test_a_second_kill_changes_nothing(tmp_path: Path) -> None:
    abandon(noted(tmp_path))
    abandon(open_store(tmp_path, WITHOUT_KEYS))
    with open_store(tmp_path, WITHOUT_KEYS) as again:
        assert again.queues.opened() == []
        for number in range(QUEUES):
            assert body(again, number) == message(again, number).body


@pytest.mark.parametrize("beyond", [0, 300], ids=["next", "far"])
def test_a_queue_with_entries_of_records_that_were_lost_is_not_left_at_rest(
    tmp_path: Path, beyond: int
) -> None:
    """A power cut may keep the entry and lose the record."""
    abandon(noted(tmp_path))
    path = queue_files(tmp_path)[5]
    with path.open("r+b") as file:
        file.seek((1 + beyond) * QUEUE_ENTRY_SIZE)
        file.write(ENTRY.pack(1 << 40, 100, 0))

    with open_store(tmp_path, WITHOUT_KEYS) as again:
        [queue] = again.queues.opened()
        assert queue.queue_id == int(path.parent.name)
        assert queue.max_index == 1


def test_a_queue_that_lost_its_entries_is_made_again_after_a_kill(tmp_path: Path) -> None:
    abandon(noted(tmp_path))
    queue_id = int(lose_an_entry(tmp_path).parent.name)
    with open_store(tmp_path, WITHOUT_KEYS) as again:
        assert body(again, queue_id) == message(again, queue_id).body
