"""Each bit of a store of ours flipped: detected or harmless, never a wrong message served.

BODYCRC covers the body alone; our block checksums cover everything, and locate
the bytes that changed.
``make test`` takes a sample of the bits of each file, ``make nightly`` all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import QueryError, StorageError, StoreDamaged
from mqstore.storage.layout import CHECKPOINT_SIZE, QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import format_file, manifest
from mqstore.storage.metadata.state_page import read_state
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.overlay_files import OverlayFileSystem
from mqstore.storage.verify import Verification
from tests.fuzz import stores
from tests.fuzz.flips import Field, bits, fields_of, flipped

EVERY_BIT = pytest.param(1, id="every", marks=pytest.mark.nightly)
SAMPLE = pytest.param(251, id="sample")
"""No divisor of 8, so that each of the eight bits of a byte has its turn."""
every_bit = pytest.mark.parametrize("step", [SAMPLE, EVERY_BIT])
STATE_SIZE = 512
"""Bytes of the state page that hold fields."""


@pytest.fixture(scope="module", params=list(StoreFormat), ids=str)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed cleanly; tests change it in memory only."""
    path: Path = tmp_path_factory.mktemp("flips") / "store"
    stores.make(path, request.param)
    return path


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[MessageStore]:
    with stores.opened(root) as opened:
        yield opened


@pytest.fixture(scope="module")
def records(store: MessageStore) -> dict[int, Record]:
    return stores.records_of(store)


# the log ----------------------------------------------------------------------------------


@contextmanager
def flipped_in_log(store: MessageStore, bit: int) -> Iterator[None]:
    """A flipped bit, as a reader finds it that reads its block for the first time."""
    with flipped(store.log.files.files[0].view, bit):
        store.state.advance_epoch()
        yield
    store.state.advance_epoch()


@every_bit
def test_a_flip_in_the_log_is_an_error(
    store: MessageStore, records: dict[int, Record], step: int
) -> None:
    for bit, original, field in bits_of_records(records_view(store), records, step):
        with flipped_in_log(store, bit):
            served = answer(store.lookups.by_physical_offset, original.physical_offset)
        assert served is None, f"bit {bit}, {field.name}"


@every_bit
def test_a_flip_in_the_log_is_an_error_in_its_queue_too(
    store: MessageStore, records: dict[int, Record], step: int
) -> None:
    for bit, original, field in bits_of_records(records_view(store), records, step * 11):
        place = original.topic, original.queue_id, original.queue_offset
        with flipped_in_log(store, bit):
            pull = store.lookups.records(*place, count=3)
        assert original.queue_offset not in {each.queue_offset for each in pull.records}
        unreadable = [each.queue_offset for each in pull.unreadable]
        assert unreadable == [original.queue_offset], f"bit {bit}, {field.name}"


@every_bit
def test_a_flip_in_one_record_leaves_every_other_as_it_was(
    store: MessageStore, records: dict[int, Record], step: int
) -> None:
    order = list(records)
    following = dict(itertools.pairwise(order))
    for bit, original, _ in bits_of_records(records_view(store), records, step * 7):
        behind = following.get(original.physical_offset)
        if behind is not None:
            with flipped_in_log(store, bit):
                assert store.lookups.by_physical_offset(behind) == records[behind]


@every_bit
def test_a_flip_hides_no_message_from_a_query_by_its_key(
    store: MessageStore, records: dict[int, Record], step: int
) -> None:
    """A record that the index names and the disk has changed is listed as unreadable."""
    names = {"queue_id", "flag", "queue_offset", "born_timestamp", "store_timestamp", "body"}
    for bit, original, field in bits_of_records(records_view(store), records, step * 3):
        if original.uniq_key is not None and field.name in names:
            with flipped_in_log(store, bit):
                found = store.lookups.by_key(original.topic, original.uniq_key)
            assert found.records == [], f"bit {bit}, {field.name}"
            offsets = [each.physical_offset for each in found.unreadable]
            assert offsets == [original.physical_offset], f"bit {bit}, {field.name}"


@every_bit
def test_a_message_id_never_answers_a_record_of_another_host_or_place(
    store: MessageStore, records: dict[int, Record], step: int
) -> None:
    for bit, original, field in bits_of_records(records_view(store), records, step * 3):
        if field.name in ("store_host", "physical_offset", "body"):
            with flipped_in_log(store, bit):
                found = answer(store.lookups.by_message_id, original.offset_message_id)
            assert found is None, f"bit {bit}, {field.name}"


@every_bit
def test_a_flip_in_the_block_checksums_condemns_no_record(
    root: Path, records: dict[int, Record], step: int
) -> None:
    path = StorePaths(root).blocks / ("0" * 20)
    some = dict(list(records.items())[::40])
    for flip in flips_of(path, step):
        with stores.opened(root, stores.overlay({path: flip})) as store:
            for offset, due in some.items():
                assert store.lookups.by_physical_offset(offset) == due


def records_view(store: MessageStore) -> memoryview:
    return store.log.files.files[0].view


def bits_of_records(
    view: memoryview, records: dict[int, Record], step: int
) -> Iterator[tuple[int, Record, Field]]:
    """The bits to flip, each with its record and field."""
    skipped = 0
    for offset, original in records.items():
        for field in fields_of(bytes(view[offset : offset + original.size])):
            first, end = (offset + field.start) * 8, (offset + field.end) * 8
            for bit in range(first + skipped, end, step):
                yield bit, original, field
            skipped = (skipped - (end - first)) % step


def answer(look_up: Callable[..., Record], *arguments: object) -> Record | None:
    """Result of a look-up; None when it raises a named error."""
    try:
        return look_up(*arguments)
    except StorageError:
        return None


# queues and index -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    path = tmp_path_factory.mktemp("long-queue") / "store"
    stores.make_long_queue(path)
    with stores.opened(path) as opened:
        yield opened


@every_bit
def test_a_flip_in_a_queue_never_serves_another_message_in_its_place(
    long_queue: MessageStore, step: int
) -> None:
    ((topic, queue_id),) = [(queue.topic, queue.queue_id) for queue in long_queue.queues.all()]
    due = {found.queue_offset: found for found in stores.records_of(long_queue).values()}
    queue = long_queue.queues.get(topic, queue_id)
    assert queue is not None
    (mapped,) = queue.files.files
    for bit in bits(0, len(due) * QUEUE_ENTRY_SIZE, step):
        index = bit // 8 // QUEUE_ENTRY_SIZE
        with flipped(mapped.view, bit):
            pull = long_queue.lookups.records(topic, queue_id, index, count=2)
        assert all(due[found.queue_offset] == found for found in pull.records), f"bit {bit}"
        named = {found.queue_offset for found in pull.records}
        assert index + 1 in named or index + 1 == queue.max_index, "the next is served"


@every_bit
def test_a_flip_in_the_index_may_hide_a_message_and_never_shows_a_wrong_one(
    store: MessageStore, records: dict[int, Record], step: int
) -> None:
    (file,) = store.index.files
    holders = {key: found for found in records.values() for key in (found.keys or "").split()[:1]}
    keys = itertools.cycle(holders.items())
    for bit in bits(0, len(file.view), step * 5):
        key, due = next(keys)
        with flipped(file.view, bit):
            found = store.lookups.by_key(due.topic, key)
            unique = answer(store.lookups.by_unique_key, due.topic, due.uniq_key)
        assert found.records in ([], [due]), f"bit {bit}"
        assert unique in (None, due), f"bit {bit}"


# small files ------------------------------------------------------------------------------


@every_bit
def test_a_flip_in_format_json_is_refused_or_leaves_the_content(root: Path, step: int) -> None:
    paths = StorePaths(root)
    original = format_file.load(stores.overlay(), paths)
    for flip in flips_of(paths.format, step):
        try:
            found = format_file.load(stores.overlay({paths.format: flip}), paths)
        except StoreDamaged:
            continue
        assert found is not None
        assert content_of(found) == content_of(original)


@every_bit
@pytest.mark.parametrize("name", ["manifest", "running"])
def test_a_flip_in_a_manifest_is_no_manifest_or_leaves_the_content(
    root: Path, name: str, step: int
) -> None:
    path: Path = getattr(StorePaths(root), name)
    if not path.exists():
        pytest.skip(f"this store has no {path.name}")
    original = manifest.load(stores.overlay(), path)
    for flip in flips_of(path, step):
        assert manifest.load(stores.overlay({path: flip}), path) in (None, original)


@every_bit
def test_a_flip_in_the_state_page_never_makes_another_watermark(root: Path, step: int) -> None:
    path = StorePaths(root).state
    original = read_state(stores.overlay(), path)
    assert original is not None
    for flip in flips_of(path, step, STATE_SIZE):
        left = read_state(stores.overlay({path: flip}), path)
        if left is not None and left.store_id == original.store_id:
            assert left.flushed_offset in (0, original.flushed_offset)


@pytest.mark.parametrize("step", [pytest.param(167, id="sample"), EVERY_BIT])
@pytest.mark.parametrize("name", ["checkpoint", "state", "manifest"])
def test_a_flip_in_a_small_file_costs_recovery_no_message(
    root: Path, records: dict[int, Record], name: str, step: int
) -> None:
    path: Path = getattr(StorePaths(root), name)
    size = {"checkpoint": 40, "state": STATE_SIZE}.get(name)
    for flip in flips_of(path, step if name != "manifest" else step * 29, size):
        with stores.opened(root, stores.overlay({path: flip})) as store:
            assert stores.records_of(store) == records


def flips_of(path: Path, step: int, size: int | None = None) -> Iterator[bytes]:
    """A small file with one bit flipped each."""
    content = bytearray(path.read_bytes())
    for bit in bits(0, len(content) if size is None else size, step):
        with flipped(content, bit):
            yield bytes(content)


def content_of(found: format_file.FormatFile | None) -> dict[str, object]:
    """Its known fields: a flip in the checksum's own name leaves an unknown one."""
    assert found is not None
    fields = format_file.FormatFile.model_fields
    return {name: value for name, value in found if name in fields}


# whole recoveries, and what verify says ------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(60_013, id="sample"),
        pytest.param(10_007, id="more", marks=pytest.mark.slow),
        pytest.param(409, id="most", marks=pytest.mark.nightly),
    ],
)
def test_recovery_from_a_flip_in_the_log_keeps_every_other_message(
    tmp_path_factory: pytest.TempPathFactory, step: int
) -> None:
    root = tmp_path_factory.mktemp("crashed") / "store"
    stores.make(root, StoreFormat.V5_X, close=False)
    (root / "mqstore" / "state").unlink()
    with stores.opened(root) as store:
        records = stores.records_of(store)
    path = StorePaths(root).commit_log / ("0" * 20)
    content = bytearray(path.read_bytes())
    for bit, original, field in bits_of_records(memoryview(content), records, step):
        with flipped(content, bit):
            files = stores.overlay({path: bytes(content)})
        with stores.opened(root, files) as store:
            for offset, due in records.items():
                found = answer(store.lookups.by_physical_offset, offset)
                is_hurt = offset == original.physical_offset
                assert found == (None if is_hurt else due), f"bit {bit}, {field.name}"


@pytest.mark.parametrize(
    "step",
    [pytest.param(40_009, id="sample"), pytest.param(997, id="more", marks=pytest.mark.nightly)],
)
def test_verify_finds_what_a_flip_made_undetectable_in_queues_and_index(
    root: Path, step: int
) -> None:
    paths = StorePaths(root)
    (index,) = paths.index.iterdir()
    queue = paths.consume_queue / "Topic" / "1" / ("0" * 20)
    used = {index: used_of_index(index), queue: len(queue.read_bytes().rstrip(b"\0"))}
    for path, size in used.items():
        content = bytearray(path.read_bytes())
        for bit in bits(0, size, step if path == index else step // 10 + 1):
            with flipped(content, bit):
                files = stores.overlay({path: bytes(content)})
            assert kinds_found(root, files), f"bit {bit} of {path.name}"


def used_of_index(path: Path) -> int:
    count = int.from_bytes(path.read_bytes()[36:40])
    return 40 + 4 * stores.CONFIG.max_hash_slot_num + 20 * count


def kinds_found(root: Path, files: OverlayFileSystem) -> list[str]:
    verification = Verification(root, stores.CONFIG, stores.seams(files))
    return [finding.kind.value for finding in verification.findings()]


def test_the_store_is_found_whole_before_anything_is_flipped(root: Path) -> None:
    assert kinds_found(root, stores.overlay()) == []
    assert (root / "checkpoint").stat().st_size == CHECKPOINT_SIZE


def test_a_queue_entry_that_names_a_neighbour_is_unreadable_by_name(
    long_queue: MessageStore,
) -> None:
    (queue,) = long_queue.queues.all()
    view = queue.files.files[0].view
    saved = bytes(view[:QUEUE_ENTRY_SIZE])
    view[:QUEUE_ENTRY_SIZE] = view[QUEUE_ENTRY_SIZE : 2 * QUEUE_ENTRY_SIZE]
    try:
        pull = long_queue.lookups.records(queue.topic, 0, 0, count=1)
    finally:
        view[:QUEUE_ENTRY_SIZE] = saved

    assert pull.records == []
    assert [each.queue_offset for each in pull.unreadable] == [0]
    assert isinstance(pull.unreadable[0].error, QueryError)
    assert "names the record at queue offset 1" in str(pull.unreadable[0].error)
