"""Damage that a look-up meets is checked, listed and repaired without a pass of the scrub."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage._kernel import LogWindow
from mqstore.storage.codec.record import Record
from mqstore.storage.config import DamageRepair
from mqstore.storage.errors import (
    RecordBlockCorrupt,
    RepairRefused,
    StorageError,
    StoreNotWritable,
)
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata import block_guard
from mqstore.storage.metadata.block_guard import BlockGuard
from mqstore.storage.paths import segment_name
from mqstore.storage.scrub import service
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.scrub.test_scrub import run_pass
from tests.unit.storage.stores import CONFIG, message, open_store, put_some

SEGMENT = 8 * BLOCK_SIZE
AUTOMATIC = CONFIG.model_copy(
    update={"mapped_file_size_commit_log": SEGMENT, "scrub_bytes_per_second": BLOCK_SIZE}
)
MANUAL = AUTOMATIC.model_copy(update={"damage_repair": DamageRepair.MANUAL})
COUNT = 900
HURT = 40
"""Number of the record that is damaged."""
FIELDS = {
    "TOTALSIZE": 3,
    "MAGICCODE": 4,
    "BODYCRC": 9,
    "FLAG": 16,
    "QUEUEOFFSET": 27,
    "BODYLENGTH": 87,
    "BODY": 100,
}
LARGE = 3 * BLOCK_SIZE
"""Bytes of the last message's body."""
PAGE = 4096


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """A segment or two, closed cleanly behind a whole pass: the next one is a week away."""
    root = tmp_path_factory.mktemp("reported") / "store"
    with open_store(root, AUTOMATIC) as store:
        store.create_topic("T", queues=1)
        put_some(store, COUNT, queues=1)
        large = message(store, COUNT)
        large.body = b"large " * (LARGE // 6)
        put_message(store, large, Durability.SYNC)
    with open_store(root, AUTOMATIC) as store:
        found = store.lookups.records("T", 0, 0, COUNT + 1).records
        run_pass(store.scrub)
    assert len(found) == COUNT + 1
    return root, found


@pytest.fixture
def root(original: tuple[Path, list[Record]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(original[0], tmp_path / "store"))


@pytest.fixture
def due(original: tuple[Path, list[Record]]) -> list[Record]:
    return original[1]


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    """Whole, and repaired by itself; the test steps the scrub."""
    with open_store(root, AUTOMATIC) as opened:
        yield opened


def change(root: Path, offset: int, length: int = 1) -> None:
    """Flip a bit in each of these bytes of the log."""
    with (root / "commitlog" / segment_name(offset - offset % SEGMENT)).open("r+b") as file:
        file.seek(offset % SEGMENT)
        data = bytes(byte ^ 0x40 for byte in file.read(length))
        file.seek(offset % SEGMENT)
        file.write(data)


def test_a_refused_repair_is_tried_again(
    root: Path, due: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(root, due[HURT].physical_offset + FIELDS["BODY"])
    with open_store(root, AUTOMATIC) as store:

        def refuse(*_: object, **__: object) -> None:
            raise RepairRefused("no room for the damaged bytes")

        store.scrub.report(due[HURT].physical_offset)
        with monkeypatch.context() as patched:
            patched.setattr(store.repairs, "run", refuse)
            store.scrub.step(0.0)
        assert store.scrub.progress.finding_count == 1
        assert store.scrub.step(1.0) <= service.RECHECK_S
        assert store.scrub.progress.repair_count == 0
        store.scrub.step(service.RECHECK_S)
        assert store.scrub.progress.repair_count == 1


def passes(store: MessageStore) -> int:
    return store.scrub.progress.began_at_ms


@pytest.mark.parametrize("field", FIELDS)
def test_damage_that_a_look_up_meets_is_repaired_without_a_pass(
    root: Path, due: list[Record], field: str
) -> None:
    change(root, due[HURT].physical_offset + FIELDS[field])
    with open_store(root, AUTOMATIC) as store:
        began = passes(store)
        store.scrub.step(0.0)
        assert store.scrub.progress.repair_count == 0, "no pass is due, and nothing was read"
        with pytest.raises(StorageError):
            store.lookups.by_physical_offset(due[HURT].physical_offset)
        store.scrub.step(0.0)
        progress = store.scrub.progress
        assert (progress.repair_count, progress.finding_count) == (1, 0)
        assert (passes(store), progress.position) == (began, None)
        assert store.lookups.by_physical_offset(due[HURT].physical_offset) == due[HURT]


def test_with_manual_repair_it_is_listed(root: Path, due: list[Record]) -> None:
    place = due[HURT].physical_offset + FIELDS["FLAG"]
    change(root, place)
    with open_store(root, MANUAL) as store:
        epoch = store.state.epoch
        for _ in range(3):
            with pytest.raises(RecordBlockCorrupt):
                store.lookups.by_physical_offset(due[HURT].physical_offset)
            store.scrub.step(0.0)
        progress = store.scrub.progress
        (found,) = progress.findings
        assert (found.offset, found.field) == (place, "FLAG")
        assert (progress.finding_count, progress.repair_count) == (1, 0)
        assert store.state.epoch == epoch + 1, "the finding is new once"


def test_a_message_that_its_own_checks_vouch_for_is_served_and_its_block_reported(
    root: Path, due: list[Record]
) -> None:
    change(root, PAGE, PAGE)
    served = next(each for each in due if each.physical_offset > 2 * PAGE)
    with open_store(root, MANUAL) as store:
        assert store.lookups.by_physical_offset(served.physical_offset).is_self_checked
        store.scrub.step(0.0)
        (found,) = store.scrub.progress.findings
        assert (found.offset, found.field) == (0, None)


def test_damage_far_inside_a_large_message_is_found(root: Path, due: list[Record]) -> None:
    place = due[-1].physical_offset + due[-1].size - BLOCK_SIZE
    change(root, place, 3)
    with open_store(root, MANUAL) as store:
        with pytest.raises(StorageError):
            store.lookups.by_physical_offset(due[-1].physical_offset)
        store.scrub.step(0.0)
        (found,) = store.scrub.progress.findings
        assert found.offset <= place < found.offset + found.length


def test_reports_of_whole_blocks_change_nothing(store: MessageStore) -> None:
    epoch, end = store.state.epoch, store.log.max_offset
    for offset in range(0, end, 100):
        store.scrub.report(offset)
    blocks = -(-end // BLOCK_SIZE)
    assert store.scrub.waiting == store.scrub.report_count == blocks, "each block once"
    while store.scrub.waiting:
        store.scrub.step(0.0)
    progress = store.scrub.progress
    assert (progress.finding_count, progress.repair_count) == (0, 0)
    assert store.state.epoch == epoch


def test_offsets_outside_of_the_log_are_ignored(store: MessageStore) -> None:
    for offset in (-1, -(2**63), store.log.max_offset, 2**62, 2**63 - 1):
        store.scrub.report(offset)
    assert (store.scrub.waiting, store.scrub.report_count) == (0, 0)


def test_reports_are_bounded(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "REPORTS_MAX", 3)
    for offset in range(0, store.log.max_offset, BLOCK_SIZE):
        store.scrub.report(offset)
    assert store.scrub.waiting == 3
    store.scrub.step(0.0)
    store.scrub.report(store.log.max_offset - 1)
    assert store.scrub.waiting == 1


def test_a_report_wakes_the_scrub_and_leaves_the_pass_its_pace(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr(store.scrub, "_on_report", lambda: woken.append(store.scrub.waiting))
    store.scrub.report(0)
    store.scrub.report(1)
    assert woken == [1], "a block that waits is reported once"
    assert store.scrub.step(0.0) == pytest.approx(1.0), "a block a second"

    store.scrub.request()
    assert store.scrub.step(10.0) == pytest.approx(11.0)
    position = store.scrub.progress.position
    store.scrub.report(0)
    assert store.scrub.step(10.5) >= 11.0
    assert store.scrub.progress.position == position


def test_where_no_pass_runs_reports_are_checked_all_the_same(root: Path, due: list[Record]) -> None:
    change(root, due[HURT].physical_offset + FIELDS["FLAG"])
    config = AUTOMATIC.model_copy(update={"scrub_bytes_per_second": 0})
    with open_store(root, config) as store:
        assert store.scrub.step(1.0) == math.inf
        store.scrub.report(due[HURT].physical_offset)
        assert store.scrub.step(1.0) == 1.0
        assert store.scrub.progress.repair_count == 1
        assert store.scrub.step(1.0) == math.inf


def test_while_the_list_is_full_no_finding_counts_twice(
    root: Path, due: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FINDINGS_MAX", 1)
    for offset in (0, BLOCK_SIZE):
        change(root, offset + 100)
    with open_store(root, MANUAL) as store:
        for _ in range(3):
            for offset in (0, BLOCK_SIZE):
                store.scrub.report(offset)
                store.scrub.step(0.0)
        assert store.scrub.progress.finding_count == 1


def test_what_was_reported_before_a_close_is_repaired_by_it(root: Path, due: list[Record]) -> None:
    change(root, due[HURT].physical_offset + FIELDS["FLAG"])
    with open_store(root, AUTOMATIC) as store:
        store.scrub.report(due[HURT].physical_offset)
        store.scrub.repair_known()
        assert store.scrub.progress.repair_count == 1


def test_an_open_store_repairs_what_it_reads(root: Path, due: list[Record]) -> None:
    change(root, due[HURT].physical_offset + FIELDS["FLAG"])
    with open_store(root, AUTOMATIC, scrubs=True) as store:
        began = passes(store)
        with pytest.raises(StorageError):
            store.lookups.by_physical_offset(due[HURT].physical_offset)
        while not store.scrub.progress.repair_count:
            pass
        assert store.lookups.by_physical_offset(due[HURT].physical_offset) == due[HURT]
        assert passes(store) == began


def test_a_reader_reports_each_block_once_in_an_epoch(root: Path, due: list[Record]) -> None:
    place = due[HURT].physical_offset + FIELDS["FLAG"]
    change(root, place)
    reports: list[int] = []
    with (
        open_store(root, MANUAL) as store,
        StoreReader.open(root, production_seams(), reports.append) as reader,
    ):
        for _ in range(3):
            with pytest.raises(RecordBlockCorrupt):
                reader.lookups.by_physical_offset(due[HURT].physical_offset)
        assert reports == [place]
        assert store.scrub.waiting == 0, "another process reads"
        store.state.advance_epoch()
        with pytest.raises(RecordBlockCorrupt):
            reader.lookups.by_physical_offset(due[HURT].physical_offset)
        assert len(reports) == 2


def test_a_guard_remembers_a_bounded_number_of_blocks(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_guard, "REPORTED_MAX", 4)
    reports: list[int] = []
    window = LogWindow(*store.state.bound_words)
    guard = BlockGuard(store._parts.directory.blocks, window, on_damage=reports.append)
    guard.report(0, 5, 5 + 4 * BLOCK_SIZE)
    assert reports == [5, *(number * BLOCK_SIZE for number in range(1, 5))]
    guard.report(0, 4 * BLOCK_SIZE, 4 * BLOCK_SIZE + 1)
    assert len(reports) == 5, "the last one is remembered"
    guard.report(0, 0, 1)
    assert len(reports) == 6, "the first ones are not"


def test_a_store_takes_reports_only_where_it_is_scrubbed(root: Path) -> None:
    with open_store(root, AUTOMATIC, scrubs=True) as store:
        assert 0 <= store.report_damage([0, 1, 2**40]) <= 1
        assert store.scrub.report_count >= 1
    with open_store(root, AUTOMATIC) as store, pytest.raises(StoreNotWritable):
        store.report_damage([0])
