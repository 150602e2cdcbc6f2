"""A store of ours with a log of one full segment of 64 KiB, opened so that it can be hurt."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.seams import Seams
from mqstore.storage.system.overlay_files import OverlayFileSystem
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams

REGION = 64 << 10
CONFIG = StoreConfig(
    mapped_file_size_commit_log=REGION,
    mapped_file_size_consume_queue=20 * 2_000,
    max_hash_slot_num=60,
    max_index_num=3_200,
)
LONG_QUEUE = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=REGION,
    max_hash_slot_num=10,
    max_index_num=100,
)
BORN = Host.parse("10.0.0.9", 4321)
BORN_V6 = Host.parse("2001:db8::1", 4321)
BORN_MS = 1_700_000_000_000
QUEUES = 3


def make(root: Path, store_format: StoreFormat, *, close: bool = True) -> None:
    """Bodies of many lengths (also none), both kinds of hosts, tags, keys, no properties at all;
    V2 records where the format has them."""
    options = StoreOptions(format=store_format)
    with MessageStore.open(root, CONFIG, production_seams(), options) as store:
        number = 0
        while store.log.max_offset < REGION - 700:
            store.append(message(store, number))
            number += 1
        if not close:
            abandon(store)


def message(store: MessageStore, number: int) -> Message:
    is_long = number % 11 == 10 and store.format is StoreFormat.V5_X
    named = {"UNIQ_KEY": f"U{number:031d}", "KEYS": f"k{number} all", "TAGS": f"t{number % 5}"}
    encoded = properties.encode(
        {} if number % 9 == 8 else named,
        trailing_separator=store.format.trailing_property_separator,
    )
    return Message(
        topic="Long" * 40 if is_long else "Topic",
        queue_id=number % QUEUES,
        body=hashlib.shake_128(b"%d" % number).digest(number * 7 % 200),
        properties=encoded,
        born_host=BORN_V6 if number % 7 == 6 else BORN,
        store_host=store.host,
        born_timestamp_ms=BORN_MS + number,
    )


def make_long_queue(root: Path) -> None:
    """One queue of 64 KiB. All records have 128 bytes, so that a flip in an entry's offset mostly
    leads to another whole record of the right size."""
    with MessageStore.open(root, LONG_QUEUE, production_seams()) as store:
        for number in range(REGION // QUEUE_ENTRY_SIZE):
            body = b"%027d" % number
            store.append(
                Message("T" * 10, 0, body, b"", BORN, store.host, BORN_MS)  # 91 + 27 + 10
            )


def abandon(store: MessageStore) -> None:
    """Leave as a killed process does."""
    store._stop_services()
    store._parts.directory.lock.release()
    store._closed = True


def overlay(replaced: dict[Path, bytes] | None = None) -> OverlayFileSystem:
    """The real files, some of them with other content; all changes stay in memory."""
    files = OverlayFileSystem(PosixFileSystem())
    for path, content in (replaced or {}).items():
        files.write(path, content)
    return files


def seams(files: OverlayFileSystem) -> Seams:
    return replace(production_seams(), files=files)


@contextmanager
def opened(root: Path, files: OverlayFileSystem | None = None) -> Iterator[MessageStore]:
    """The store, recovered in memory; its mapped views may be changed."""
    options = StoreOptions(create=False, services=False)
    with MessageStore.open(root, CONFIG, seams(files or overlay()), options) as store:
        store.wait_for_index()
        yield store


def records_of(store: MessageStore) -> dict[int, Record]:
    """Every record of the log by its physical offset."""
    found = {}
    offset = store.log.min_offset
    while offset < store.log.max_offset:
        found[offset] = store.lookups.by_physical_offset(offset)
        offset += found[offset].size
    return found
