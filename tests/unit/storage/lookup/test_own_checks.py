"""A block of the log lost a page: whole records in it are served with a mark, others refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.lookup.record_place import Cover, RecordPlaces
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata.block_guard import BlockGuard
from mqstore.storage.paths import segment_name
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, message, open_store, put_some

PAGE = 4096
LOST = 3 * PAGE
"""Beginning of the lost page, in the first block."""
COUNT = 500
CHOSEN = CONFIG.model_copy(update={"mapped_file_size_commit_log": 4 * BLOCK_SIZE})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("own") / "store"
    with open_store(root, CHOSEN) as store:
        store.create_topic("T", queues=3)
        put_some(store, COUNT)
    return root


@pytest.fixture
def closed(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def lose(root: Path, start: int, length: int = PAGE) -> None:
    """Zeros stand where these bytes of the first segment were."""
    with (root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(start)
        file.write(bytes(length))


def records(root: Path) -> list[Record]:
    with open_store(root, CHOSEN, in_place=False, services=False) as store:
        return [each for queue in range(3) for each in pulled(store, queue)]


def pulled(store: MessageStore, queue_id: int) -> list[Record]:
    return store.lookups.records("T", queue_id, 0, COUNT).records


def is_touched(found: Record) -> bool:
    return found.physical_offset < LOST + PAGE and found.physical_offset + found.size > LOST


def is_doubtful(found: Record) -> bool:
    return found.physical_offset < BLOCK_SIZE and not is_touched(found)


def test_a_lost_page_costs_the_records_that_it_touches(closed: Path) -> None:
    due = records(closed)
    lose(closed, LOST)
    touched = [each for each in due if is_touched(each)]
    assert 10 < len(touched) < 40
    with open_store(closed, CHOSEN) as store:
        for queue_id in range(3):
            own = [each for each in due if each.queue_id == queue_id]
            pull = store.lookups.records("T", queue_id, 0, COUNT)
            assert pull.records == [each for each in own if not is_touched(each)]
            lost = [each.queue_offset for each in own if is_touched(each)]
            assert [each.queue_offset for each in pull.unreadable] == lost
            marked = [each for each in pull.records if each.is_self_checked]
            assert marked == [each for each in own if is_doubtful(each)]


def test_every_way_to_a_message_marks_what_only_its_own_checks_vouch_for(closed: Path) -> None:
    due = records(closed)
    lose(closed, LOST)
    found = next(each for each in due if is_doubtful(each))
    far = next(each for each in due if each.physical_offset >= BLOCK_SIZE)
    assert found.uniq_key is not None
    with open_store(closed, CHOSEN) as store:
        lookups = store.lookups
        for read in (
            lookups.by_physical_offset(found.physical_offset),
            lookups.by_message_id(found.offset_message_id),
            lookups.by_unique_key("T", found.uniq_key),
            lookups.by_key("T", found.uniq_key).records[0],
        ):
            assert (read, read.is_self_checked) == (found, True)
        assert not lookups.by_physical_offset(far.physical_offset).is_self_checked
        slices = lookups.slices("T", 0, 0, COUNT)
        own = [each for each in due if each.queue_id == 0]
        assert slices.self_checked == sum(is_doubtful(each) for each in own)
        assert len(slices) == sum(not is_touched(each) for each in own)
        window = lookups._window
        guard = BlockGuard(store._parts.directory.blocks, window)
        places = RecordPlaces(lookups, store.log, store.queues, guard)
        place = places.of(lookups.by_physical_offset(found.physical_offset))
        assert place is not None
        assert (place.cover, place.covered) == (Cover.DAMAGED, 0)


def test_a_page_lost_across_properties_is_no_message(tmp_path: Path) -> None:
    """RocketMQ's checksum covers the body only: zeros in the properties pass it."""
    root = tmp_path / "store"
    with open_store(root, CHOSEN) as store:
        store.create_topic("T", queues=1)
        long = properties.encode({"TAGS": "a", "note": "x" * 3 * PAGE}, trailing_separator=True)
        host = store.host
        message_ = Message("T", 0, b"body", long, host, host, 1_700_000_000_000)
        placed = put_message(store, message_, Durability.SYNC)
        put_some(store, 30, queues=1)
    lose(root, PAGE, 2048)
    with open_store(root, CHOSEN) as store, pytest.raises(StorageError):
        store.lookups.by_physical_offset(placed.physical_offset)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[tuple[Path, list[Record]]]:
    """Records without a body, with TAGS and without."""
    root = tmp_path / "empty"
    with open_store(root, CHOSEN) as store:
        store.create_topic("T", queues=2)
        for number in range(COUNT):
            pairs = {"UNIQ_KEY": f"U{number}"} | ({"TAGS": "a"} if number % 2 else {})
            text = properties.encode(pairs, trailing_separator=True)
            host = store.host
            put_message(store, Message("T", number % 2, b"", text, host, host, 1))
        due = [each for queue in range(2) for each in pulled(store, queue)]
    yield root, due


def test_a_record_without_a_body_is_served_where_its_tags_prove_it(
    empty: tuple[Path, list[Record]],
) -> None:
    root, due = empty
    lose(root, LOST)
    with open_store(root, CHOSEN) as store:
        served = [each for queue in range(2) for each in pulled(store, queue)]
    assert served == [
        each
        for each in due
        if each.physical_offset >= BLOCK_SIZE or (each.tags and is_doubtful(each))
    ]


def test_a_record_that_its_queue_does_not_name_is_refused(closed: Path) -> None:
    due = records(closed)
    lose(closed, LOST)
    found = next(each for each in due if is_doubtful(each) and each.queue_offset > 2)
    other = next(each for each in due if each.physical_offset >= BLOCK_SIZE)
    with open_store(closed, CHOSEN) as store:
        queue = store.queues.get("T", found.queue_id)
        assert queue is not None
        place = queue.block(found.queue_offset)
        assert place is not None
        file = queue.files.find(found.queue_offset * 20)
        assert file is not None
        file.view[place[1] + 12] ^= 1  # its tagsCode
        with pytest.raises(StorageError, match="changed on the disk"):
            store.lookups.by_physical_offset(found.physical_offset)
        assert store.lookups.by_physical_offset(other.physical_offset)


def test_what_is_put_after_the_damage_is_vouched_for_by_its_block(closed: Path) -> None:
    lose(closed, LOST)
    with open_store(closed, CHOSEN) as store:
        placed = put_message(store, message(store, COUNT), Durability.SYNC)
        assert not store.lookups.by_physical_offset(placed.physical_offset).is_self_checked
