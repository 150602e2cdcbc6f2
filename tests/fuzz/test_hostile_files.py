"""Files cut, twisted and with wrong pointers: each ends in a named error or a known recovery."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mqstore.storage.errors import ConfigTableError, OffsetOutOfRange, RecordError
from mqstore.storage.index.file import IndexFile, file_size
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.lookup.answers import PullStatus
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables import java_json
from mqstore.storage.tables.config_tables import (
    ConsumerOffsets,
    DelayOffsets,
    TopicTable,
)
from mqstore.storage.tables.consumer_filters import ConsumerFilters
from mqstore.storage.tables.subscription_groups import SubscriptionGroups
from mqstore.storage.tables.table import Source, Table
from tests.fuzz import stores
from tests.fuzz.targets import DELAYS, OFFSETS, TOPICS

TABLES: list[tuple[type[Table], str]] = [
    (TopicTable, TOPICS),
    (ConsumerOffsets, OFFSETS),
    (DelayOffsets, DELAYS),
    (SubscriptionGroups, '{"subscriptionGroupTable":{"G":{"groupName":"G"}},"forbiddenTable":{}}'),
    (ConsumerFilters, '{"filterDataByTopic":{"T":{"bitPos":[1,2]}}}'),
]

# config tables ----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "text"), TABLES, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("store_format", list(StoreFormat))
def test_a_table_cut_at_any_byte_is_read_from_its_bak(
    tmp_path: Path, kind: type[Table], text: str, store_format: StoreFormat
) -> None:
    paths, whole = StorePaths(tmp_path), java_json.parse(text)
    path = paths.config / kind.file_name
    backup = path.with_name(path.name + ".bak")
    seams = stores.seams(stores.overlay())
    seams.files.make_directories(paths.config)
    seams.files.write(backup, text.encode())
    for length in range(len(text)):
        seams.files.write(path, text[:length].encode())

        table = kind.load(paths, store_format, seams)

        assert table.source is Source.BACKUP, length
        assert table.data == whole
        assert table.problem is not None
        assert table.problem.startswith(path.name)


@pytest.mark.parametrize("length", [0, 1, 40, -1])
def test_a_table_that_is_cut_together_with_its_bak_is_refused_by_name(
    tmp_path: Path, length: int
) -> None:
    paths = StorePaths(tmp_path)
    paths.config.mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (paths.config / name).write_text(TOPICS[:length])

    with pytest.raises(ConfigTableError, match=r"topics\.json cannot be read .* restore"):
        TopicTable.load(paths, StoreFormat.V4_9, production_seams())


# index chains -----------------------------------------------------------------------------

SLOTS, ITEMS = 1, 20
HASH, TIME = 5, 1_700_000_000_000


@pytest.fixture
def index(tmp_path: Path) -> IndexFile:
    """Ten items of one hash in one slot: offsets 0, 100, … 900."""
    path = tmp_path / "20240101000000000"
    path.write_bytes(bytes(file_size(SLOTS, ITEMS)))
    file = IndexFile(MappedFile.open(PosixFileSystem(), path), SLOTS, ITEMS)
    for number in range(10):
        file.put(HASH, number * 100, TIME)
    return file


@pytest.mark.parametrize(
    "link", [7, 9, 19, 20, 2**31 - 1, -1, -(2**31)], ids=lambda link: f"link_{link}"
)
def test_a_link_that_leads_not_back_ends_the_chain(index: IndexFile, link: int) -> None:
    """Item 7: to itself, to a newer one, beyond the count, beyond the file, negative."""
    struct.pack_into(">i", index.view, 40 + 4 * SLOTS + 20 * 7 + 16, link)

    found = list(index.find(HASH, 0, 2**62))

    # The first item is known without its chain.
    assert found == [900, 800, 700, 600, 0]


@pytest.mark.parametrize("head", [12, 20, 2**31 - 1, -1, -(2**31)])
def test_a_slot_that_names_no_item_is_an_empty_chain(index: IndexFile, head: int) -> None:
    struct.pack_into(">i", index.view, 40, head)

    assert list(index.find(HASH, 0, 2**62)) == [0]


@pytest.mark.parametrize("head", [-1, 12, 2**31 - 1])
def test_a_put_behind_a_damaged_slot_begins_a_new_chain(index: IndexFile, head: int) -> None:
    """As RocketMQ's putKey does with a slot that names no item."""
    struct.pack_into(">i", index.view, 40, head)

    assert index.put(HASH, 5_000, TIME)
    assert index.item(11).previous == 0
    assert list(index.find(HASH, 0, 2**62)) == [5_000, 0]


# queue entries ----------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 1, 1 << 20, 1 << 40, (1 << 62)])
def test_an_entry_beyond_the_log_is_unreadable_by_name(tmp_path: Path, shift: int) -> None:
    root = tmp_path / "store"
    stores.make(root, StoreFormat.V4_9)
    with stores.opened(root) as store:
        end = store.log.max_offset
        point(store, 3, end + shift, 200)

        pull = store.lookups.records("Topic", 0, 3, count=1)

    assert (pull.status, pull.records) == (PullStatus.NO_MATCHED_MESSAGE, [])
    (unreadable,) = pull.unreadable
    assert isinstance(unreadable.error, OffsetOutOfRange)
    assert (unreadable.queue_offset, pull.next_offset) == (3, 4)


@pytest.mark.parametrize(("into", "size"), [(1, 200), (90, 200), (0, 1), (0, 2**31 - 2), (0, 100)])
def test_an_entry_into_a_record_is_unreadable_by_name(tmp_path: Path, into: int, size: int) -> None:
    root = tmp_path / "store"
    stores.make(root, StoreFormat.V5_X)
    with stores.opened(root) as store:
        point(store, 3, into, size)

        pull = store.lookups.records("Topic", 0, 3, count=1)

    assert pull.records == []
    (unreadable,) = pull.unreadable
    assert isinstance(unreadable.error, OffsetOutOfRange | RecordError)


def test_entries_beyond_the_log_are_cut_when_the_store_recovers(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stores.make(root, StoreFormat.V4_9, close=False)
    queue = StorePaths(root).consume_queue / "Topic" / "0"
    last = max(queue.iterdir())
    content = bytearray(last.read_bytes())
    used = -(-len(content.rstrip(b"\0")) // QUEUE_ENTRY_SIZE) * QUEUE_ENTRY_SIZE
    content[used : used + 40] = struct.pack(">qiq", 1 << 40, 200, 7) * 2

    with stores.opened(root, stores.overlay({last: bytes(content)})) as store:
        found = store.queues.get("Topic", 0)
        assert found is not None
        assert found.max_index == (int(last.name) + used) // QUEUE_ENTRY_SIZE
        assert store.recovery.quarantined


def point(store: MessageStore, index: int, offset: int, size: int) -> None:
    """Change one entry of queue 0 in memory."""
    queue = store.queues.get("Topic", 0)
    assert queue is not None
    view = queue.files.files[0].view
    struct.pack_into(">qi", view, index * QUEUE_ENTRY_SIZE, offset, size)
