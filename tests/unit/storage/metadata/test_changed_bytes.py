"""The finding of one flipped bit: the record, the field and the queue that it touches."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.codec.record import Record
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.changed_bytes import BLANK, ChangedBytes, explain
from tests.fuzz.flips import fields_of
from tests.unit.storage.stores import CONFIG, open_store, put_some

SEGMENT = 2 * BLOCK_SIZE
SMALL = CONFIG.model_copy(update={"mapped_file_size_commit_log": SEGMENT})
COUNT = 900
NAMES = {
    "body_crc_of_no_body": "BODYCRC",
    "port_zeros": "HOST",
    "magic": "MAGICCODE",
}
"""Names of the test's fields; all others are RocketMQ's without underscores."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    root: Path = tmp_path_factory.mktemp("scrub") / "store"
    with open_store(root, SMALL) as filled:
        filled.create_topic("T", queues=3)
        put_some(filled, COUNT)
    return open_store(root, SMALL, in_place=False, services=False)


def found_at(store: MessageStore, offset: int, mask: int = 0x10) -> ChangedBytes:
    """The finding after a byte of the log has changed."""
    file = store.log.files.find(offset)
    assert file is not None
    entries = store._parts.directory.blocks.entries(file.base_offset)
    assert entries is not None
    position = offset - file.base_offset
    file.view[position] ^= mask
    try:
        number = position // BLOCK_SIZE
        return explain(file.view, file.wrote_position, entries, file.base_offset, number, 7)
    finally:
        file.view[position] ^= mask


@pytest.fixture(scope="module")
def originals(store: MessageStore) -> list[Record]:
    """One in the middle of a block, one over two blocks, the last of a segment."""
    found, offset = [], 0
    while offset < SEGMENT:
        try:
            record = store.log.record_at(offset)
        except Exception:
            break
        found.append(record)
        offset += record.size
    over = next(
        each
        for each in found
        if each.physical_offset // BLOCK_SIZE
        != (each.physical_offset + each.size - 1) // BLOCK_SIZE
    )
    return [found[10], over, found[-1]]


def test_a_flipped_bit_of_any_byte_is_reported_with_its_record_and_field(
    store: MessageStore, originals: list[Record]
) -> None:
    for original in originals:
        for field in fields_of(original.raw):
            expected = NAMES.get(field.name, field.name.replace("_", "").upper())
            for at in {field.start, field.end - 1} if field.end > field.start else ():
                offset = original.physical_offset + at
                found = found_at(store, offset, 1 << at % 8)
                assert (found.offset, found.length) == (offset, 1)
                assert found.record_offset == original.physical_offset, field
                assert found.field is not None
                assert found.field.endswith(expected), (field, found.field)
                place = found.topic, found.queue_id, found.queue_offset
                assert place == (original.topic, original.queue_id, original.queue_offset)


def test_a_flipped_bit_in_blank_space_is_in_no_record(
    store: MessageStore, originals: list[Record]
) -> None:
    end = originals[-1].physical_offset + originals[-1].size
    for offset in {end, SEGMENT - 1}:
        found = found_at(store, offset)
        assert (found.offset, found.field, found.record_offset) == (offset, BLANK, None)


def test_a_change_that_is_spread_wider_names_its_bytes_only(store: MessageStore) -> None:
    first = store.log.files.first
    assert first is not None
    first.view[1_000] ^= 1
    try:
        found = found_at(store, 3_000)
    finally:
        first.view[1_000] ^= 1
    assert (found.offset, found.field) == (0, None)
    assert found.length == BLOCK_SIZE
