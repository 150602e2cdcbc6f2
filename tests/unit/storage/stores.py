"""Small stores on a real disk, for tests of what is made of all the parts."""

from __future__ import annotations

from pathlib import Path

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message

CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=100,
    max_index_num=400,
)
FILES = PosixFileSystem()


def open_store(root: Path, config: StoreConfig = CONFIG, **options: object) -> MessageStore:
    chosen = StoreOptions(**options)  # type: ignore[arg-type] # passed through
    return MessageStore.open(root, config, production_seams(), chosen)


def message(store: MessageStore, number: int, *, topic: str = "T", queue_id: int = 0) -> Message:
    encoded = properties.encode(
        {"KEYS": f"k{number}", "TAGS": "a", "UNIQ_KEY": f"U{number:031d}"},
        trailing_separator=store.format.trailing_property_separator,
    )
    body = b"body %d " % number * 10
    return Message(topic, queue_id, body, encoded, store.host, store.host, 1_700_000_000_000)


def put_some(store: MessageStore, count: int, *, start: int = 0, queues: int = 3) -> None:
    for number in range(start, start + count):
        put_message(store, message(store, number, queue_id=number % queues), Durability.ASYNC)


def bodies(store: MessageStore, *, topic: str = "T", queues: int = 3) -> set[bytes]:
    found = set()
    for queue_id in range(queues):
        queue = store.queues.get(topic, queue_id)
        if queue is None:
            continue
        for index, entry in queue.entries(0, queue.max_index):
            assert not entry.is_hole, index
            found.add(store.log.record_at(entry.physical_offset).body)
    return found


def all_bodies(count: int) -> set[bytes]:
    return {b"body %d " % number * 10 for number in range(count)}


def segments(root: Path) -> list[Path]:
    """The files of the log, in its order."""
    return sorted((root / "commitlog").iterdir())


def used_segments(root: Path) -> list[Path]:
    """The files of the log with a record."""
    return [path for path in segments(root) if any(path.read_bytes()[:8])]


def abandon(store: MessageStore) -> None:
    """End as a killed process does: no flush, no close; only the lock goes."""
    store._stop_services()
    store._parts.directory.lock.release()
