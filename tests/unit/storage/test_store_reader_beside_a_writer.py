"""StoreReader beside a real MessageStore: live, killed, recovering, expiring, closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError, StoreNotOpen
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.forked_processes import start_program

CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 14,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=20,
    max_index_num=100,
)


def open_store(root: Path) -> MessageStore:
    return MessageStore.open(root, CONFIG, production_seams())


def open_reader(root: Path) -> StoreReader:
    return StoreReader.open(root, production_seams())


def message(store: MessageStore, number: int) -> Message:
    """Its body says which message of queue 0 it is."""
    named = {"KEYS": "k", "UNIQ_KEY": f"U{number}"}
    encoded = properties.encode(named, trailing_separator=store.format.trailing_property_separator)
    return Message("T", 0, b"%d" % number, encoded, store.host, store.host, 0)


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root) as opened:
        yield opened


def test_a_message_is_found_every_way_at_once(root: Path, store: MessageStore) -> None:
    with open_reader(root) as reader:
        for number in range(500):
            placed = store.append(message(store, number))
            body = b"%d" % number
            look = reader.lookups
            assert look.by_message_id(placed.offset_message_id).body == body
            assert look.by_unique_key("T", f"U{number}").body == body
            assert look.records("T", 0, number).records[0].body == body
            assert look.by_key("T", "k", limit=1).records[0].body == body
        assert reader.lookups.by_key("T", "k", limit=1000).complete


def test_the_writers_own_lookups_agree_with_a_readers(root: Path, store: MessageStore) -> None:
    for number in range(300):
        store.append(message(store, number))

    with open_reader(root) as reader:
        mine, other = reader.lookups, store.lookups
        assert mine.records("T", 0, 250, 100) == other.records("T", 0, 250, 100)
        assert mine.by_key("T", "k") == other.by_key("T", "k")


def test_an_arrival_ends_a_wait(root: Path, store: MessageStore) -> None:
    with open_reader(root) as reader:
        seen = reader.state.arrivals
        waiter = threading.Thread(target=reader.wait_for_arrival, args=(seen, 60))
        waiter.start()
        store.append(message(store, 0))
        waiter.join(30)
        assert not waiter.is_alive()


def test_a_closed_store_is_read_and_says_so(root: Path) -> None:
    with open_store(root) as store:
        store.append(message(store, 0))

    with open_reader(root) as reader:
        assert reader.snapshot().health is Health.CLOSED
        assert not reader.writer_is_alive
        assert reader.lookups.records("T", 0, 0).records[0].body == b"0"


@pytest.mark.slow
def test_a_reader_lives_on_through_kills_and_recoveries(root: Path) -> None:
    """The reader serves only valid data, and sees the recovered store after each recovery."""
    with open_store(root) as store:
        store.append(message(store, 0))
    stop = threading.Event()
    wrong: list[str] = []
    reads = 0
    with open_reader(root) as reader:

        def read() -> None:
            nonlocal reads
            while not stop.is_set():
                try:
                    end = reader.lookups.queue_range("T", 0).max_offset
                    start = max(0, end - 20)
                    pull = reader.lookups.records("T", 0, start)
                    keyed = reader.lookups.by_key("T", "k", limit=10).records
                except StoreNotOpen:
                    continue
                except StorageError as error:
                    wrong.append(repr(error))
                    return
                wrong.extend(
                    f"{found.body!r} is at {found.queue_offset}"
                    for found in (*pull.records, *keyed)
                    if found.body != b"%d" % found.queue_offset
                )
                reads += len(pull.records)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for _ in range(2):
                put_until_killed(root)
        finally:
            stop.set()
            thread.join()
        assert wrong == []
        assert reads > 0
        with open_store(root) as store:
            store.wait_for_index()
            count = store.lookups.queue_range("T", 0).max_offset
            assert count > 4
            assert reader.lookups.queue_range("T", 0).max_offset == count
            last = reader.lookups.records("T", 0, count - 1).records[0]
            assert last.body == b"%d" % (count - 1)
            assert reader.lookups.by_key("T", "k", limit=1).records[0] == last


def put_until_killed(root: Path) -> None:
    """A process that opens the store, puts messages, and is killed in the middle of it."""
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.unit.storage import test_store_reader_beside_a_writer as t\n"
        "store = t.open_store(Path(sys.argv[1]))\n"
        "number = store.lookups.queue_range('T', 0).max_offset\n"
        "while True:\n"
        "    store.append(t.message(store, number)); number += 1\n"
        "    if number % 100 == 0: print(number, flush=True)\n"
    )
    process = start_program(program, str(root), interactive=True)
    for _ in range(3):
        process.stdout.readline()
    process.kill()
    process.communicate()
