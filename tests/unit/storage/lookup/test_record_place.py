"""Places of records and the checksums that cover them, read beside a writer and at rest."""

from __future__ import annotations

import shutil
from pathlib import Path

from mqstore.storage.lookup.record_place import Cover
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

BODY_AT = 95


def _store(root: Path) -> MessageStore:
    store = open_store(root)
    store.create_topic("T", queues=1)
    return store


def _reader(root: Path) -> StoreReader:
    return StoreReader.open(root, production_seams())


def test_place_names_segment_and_queue_entry(tmp_path: Path) -> None:
    with _store(tmp_path) as store, _reader(tmp_path) as reader:
        for number in range(600):
            last = put_message(store, message(store, number), Durability.SYNC)
        place = reader.places.of(reader.lookups.by_physical_offset(last.physical_offset))
        assert place is not None
        assert place.segment > 0
        assert place.segment + place.position == last.physical_offset
        assert place.entry is not None
        assert (place.entry.physical_offset, place.entry.size) == (last.physical_offset, last.size)


def test_cover_is_whole_once_the_blocks_have_checksums(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        put_message(store, message(store, 0), Durability.SYNC)
    with _reader(tmp_path) as reader:
        found = reader.lookups.by_physical_offset(0)
        place = reader.places.of(found)
        assert place is not None
        assert (place.cover, place.covered) == (Cover.WHOLE, found.size)


def test_without_checksums_nothing_is_covered(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        put_message(store, message(store, 0), Durability.SYNC)
    shutil.rmtree(StorePaths(tmp_path).blocks)
    with _reader(tmp_path) as reader:
        place = reader.places.of(reader.lookups.by_physical_offset(0))
        assert place is not None
        assert (place.cover, place.covered) == (Cover.NONE, 0)


def test_record_without_a_queue_entry_has_none(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        put_message(store, message(store, 0), Durability.SYNC)
    shutil.rmtree(StorePaths(tmp_path).consume_queue)
    with _reader(tmp_path) as reader:
        place = reader.places.of(reader.lookups.by_physical_offset(0))
        assert place is not None
        assert place.entry is None


def test_header_of_a_damaged_record_is_what_it_says(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        put_message(store, message(store, 0), Durability.SYNC)
    with (StorePaths(tmp_path).commit_log / segment_name(0)).open("r+b") as file:
        file.seek(BODY_AT)
        file.write(b"?")
    with _reader(tmp_path) as reader:
        header = reader.places.header(0)
        assert header is not None
        assert (header.topic, header.tags, header.queue_offset) == ("T", "a", 0)
        assert reader.places.header(1) is None
        assert reader.places.header(1 << 40) is None
