"""Damage below the durable watermark is repaired before a store is handed on."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage._kernel import check_block
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.config import DamageRepair
from mqstore.storage.errors import RecordTombstone, RepairRefused, StorageError, StoreFailed
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata.block_files import blocks_of
from mqstore.storage.paths import segment_name
from mqstore.storage.recovery import Applier
from mqstore.storage.recovery.report import FetchBytes, PlaceTombstone, RepairPlan, RestoreBytes
from mqstore.storage.scrub import repairs, service
from mqstore.storage.scrub.service import FINDINGS_MAX
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Kind, Verification
from tests.unit.storage.puts import put_message
from tests.unit.storage.scrub.test_scrub import run_pass
from tests.unit.storage.stores import CONFIG, message, open_store, put_some

SEGMENT = 2 * BLOCK_SIZE
CHOSEN = CONFIG.model_copy(
    update={"mapped_file_size_commit_log": SEGMENT, "scrub_bytes_per_second": 64 * BLOCK_SIZE}
)
MANUAL = CHOSEN.model_copy(update={"damage_repair": DamageRepair.MANUAL})
COUNT = 1_500
HURT = 40
"""Number of the record that is damaged."""
FIELDS = {
    "TOTALSIZE": 3,
    "MAGICCODE": 4,
    "BODYCRC": 9,
    "QUEUEID": 15,
    "QUEUEOFFSET": 27,
    "BODYLENGTH": 87,
    "BODY": 100,
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """Some segments, closed cleanly: everything in them is durable."""
    root = tmp_path_factory.mktemp("repairs") / "store"
    with open_store(root, CHOSEN) as store:
        store.create_topic("T", queues=3)
        put_some(store, COUNT)
    with open_store(root, CHOSEN, in_place=False, services=False) as store:
        found = [e for queue in range(3) for e in store.lookups.records("T", queue, 0, 999).records]
    found.sort(key=lambda each: each.physical_offset)
    assert len(found) == COUNT
    return root, found


@pytest.fixture
def root(original: tuple[Path, list[Record]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(original[0], tmp_path / "store"))


@pytest.fixture
def due(original: tuple[Path, list[Record]]) -> list[Record]:
    return original[1]


def poke(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / segment_name(offset - offset % SEGMENT)).open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


def flip(root: Path, offset: int) -> None:
    with (root / "commitlog" / segment_name(offset - offset % SEGMENT)).open("r+b") as file:
        file.seek(offset % SEGMENT)
        byte = file.read(1)[0]
        file.seek(offset % SEGMENT)
        file.write(bytes([byte ^ 0x40]))


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def served(store: MessageStore, due: list[Record]) -> list[Record]:
    found = []
    for each in due:
        try:
            found.append(store.lookups.by_physical_offset(each.physical_offset))
        except StorageError:
            continue
    return found


def kinds(root: Path) -> set[Kind]:
    verification = Verification(root, CHOSEN, production_seams())
    return {each.kind for each in verification.findings() if each.level == "finding"}


def changed_blocks(store: MessageStore) -> int:
    """Blocks that are not as their checksums say."""
    count = 0
    for file in store.log.files.files:
        entries = store._parts.directory.blocks.entries(file.base_offset)
        assert entries is not None
        for number in range(blocks_of(file.size)):
            count += check_block(file.view, entries, file.base_offset, number, 0) < 0
    return count


@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_below_the_watermark_is_put_back(
    root: Path, due: list[Record], field: str
) -> None:
    before = log_of(root)
    flip(root, due[HURT].physical_offset + FIELDS[field])
    with open_store(root, CHOSEN) as store:
        report = store.repair_damage()
        (action,) = report.plan.actions
        assert isinstance(action, RestoreBytes)
        assert action.record_offset == due[HURT].physical_offset
        assert served(store, due) == due
        (kept,) = report.quarantined
        assert store._parts.quarantine.data(kept).stat().st_size == 4
    assert log_of(root) == before


def test_the_scrub_repairs_what_it_finds_by_itself(root: Path, due: list[Record]) -> None:
    flip(root, due[HURT].physical_offset + FIELDS["MAGICCODE"])
    with open_store(root, CHOSEN) as store:
        epoch = store.state.epoch
        run_pass(store.scrub)
        store.scrub.step(0.0)
        progress = store.scrub.progress
        assert (progress.finding_count, progress.findings, progress.repair_count) == (0, (), 1)
        (done,) = progress.repairs
        assert (done.kind, progress.tombstone_count) == ("restore-bytes", 0)
        assert store.state.epoch > epoch
        assert served(store, due) == due


def test_by_hand_means_by_hand_and_the_close_says_what_is_left(
    root: Path, due: list[Record], caplog: pytest.LogCaptureFixture
) -> None:
    flip(root, due[HURT].physical_offset + FIELDS["MAGICCODE"])
    hurt = log_of(root)
    with open_store(root, MANUAL, scrubs=True) as store:
        run_pass(store.scrub)
        store.scrub.step(0.0)
        assert store.scrub.progress.finding_count == 1
    assert log_of(root) == hurt
    assert "closed with 1 damaged places in its log" in caplog.text
    with open_store(root, MANUAL) as store:
        assert store.repair_damage().done
        assert served(store, due) == due


def test_a_lost_page_becomes_tombstones_and_its_neighbours_stay_in_doubt(
    root: Path, due: list[Record]
) -> None:
    start = 3 * 4096
    poke(root, start, bytes(4096))
    touched = [
        e for e in due if e.physical_offset < start + 4096 and e.physical_offset + e.size > start
    ]
    beside = [e for e in due if e.physical_offset < BLOCK_SIZE and e not in touched]
    with open_store(root, CHOSEN) as store:
        report = store.repair_damage()
        assert {type(each) for each in report.plan.actions} == {PlaceTombstone}
        assert [each.offset for each in report.plan.actions] == [e.physical_offset for e in touched]
        assert served(store, due) == [each for each in due if each not in touched]
        for each in touched:
            with pytest.raises(RecordTombstone):
                store.lookups.by_physical_offset(each.physical_offset)
        pull = store.lookups.records("T", 0, 0, 999)
        assert len(pull.records) + len(pull.unreadable) == COUNT // 3
        assert changed_blocks(store) == 0
        assert not store.repair_damage().plan.actions
    with open_store(root, CHOSEN) as store:
        for each in beside[1:]:
            found = store.lookups.by_physical_offset(each.physical_offset)
            assert found.is_self_checked, "no checksum of what was written is left"
        run_pass(store.scrub)
        assert store.scrub.progress.finding_count == 0


def test_a_repaired_store_has_no_finding_left(root: Path, due: list[Record]) -> None:
    poke(root, due[HURT].physical_offset + 20, b"\xff" * 100)
    assert {Kind.RECORD_BODY, Kind.RECORD_BROKEN} & kinds(root)
    with open_store(root, CHOSEN) as store:
        assert store.repair_damage().done
    assert kinds(root) == set()


def test_a_damaged_record_without_a_checksum_becomes_a_tombstone(
    root: Path, due: list[Record]
) -> None:
    """As in a segment that a broker wrote."""
    shutil.rmtree(root / "mqstore" / "blocks")
    hurt = due[HURT]
    flip(root, hurt.physical_offset + FIELDS["BODY"])
    with open_store(root, CHOSEN) as store:
        report = store.repair_damage()
        (action,) = report.plan.actions
        assert isinstance(action, PlaceTombstone)
        place = (action.topic, action.queue_id, action.queue_offset)
        assert place == ("T", hurt.queue_id, hurt.queue_offset)
        assert action.keeps_header
        assert served(store, due) == [each for each in due if each is not hurt]
        with pytest.raises(RecordTombstone):
            store.lookups.by_unique_key("T", str(hurt.uniq_key))


def test_a_plan_changes_nothing(root: Path, due: list[Record]) -> None:
    poke(root, 3 * 4096, bytes(4096))
    hurt = log_of(root)
    with open_store(root, CHOSEN) as store:
        assert store.plan_repairs().actions
    assert log_of(root) == hurt


def test_the_last_durable_record_is_repaired_too(root: Path, due: list[Record]) -> None:
    """Nothing follows it: recovery would take it for a torn tail."""
    last = due[-1]
    with open_store(root, CHOSEN) as store:
        file = store.log.files.files[-1]
        at = last.physical_offset - file.base_offset
        file.view[at + 90 : at + 120] = bytes(30)
        report = store.repair_damage()
        assert [each.offset for each in report.plan.actions] == [last.physical_offset]
        placed = put_message(store, message(store, COUNT), Durability.SYNC)
        assert placed.physical_offset == last.physical_offset + last.size
        assert served(store, due) == due[:-1]


def test_much_damage_waits_for_a_command(
    root: Path, due: list[Record], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mqstore.storage.scrub.service.AUTOMATIC_BYTES_MAX", 4096)
    assert repairs.AUTOMATIC_BYTES_MAX > 4096
    poke(root, 3 * 4096, bytes(4096))
    hurt = log_of(root)
    with open_store(root, CHOSEN) as store:
        run_pass(store.scrub)
        store.scrub.step(0.0)
        assert (store.scrub.progress.finding_count, store.scrub.progress.repair_count) == (1, 0)
        assert "without a command" in caplog.text
        assert log_of(root) == hurt
        assert store.repair_damage().done
        assert store.scrub.progress.finding_count == 0


def test_a_segment_with_much_damage_is_read_once_for_a_repair(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further damaged block read all of it again."""
    monkeypatch.setattr("mqstore.storage.scrub.service.AUTOMATIC_BYTES_MAX", 0)
    for number in range(2):
        poke(root, number * BLOCK_SIZE, bytes(200))
    planned: list[object] = []
    block_a_step = CHOSEN.model_copy(update={"scrub_bytes_per_second": BLOCK_SIZE})
    with open_store(root, block_a_step) as store:
        plan = store.scrub._repairs.plan

        def noting(bases: set[int], progress: None) -> RepairPlan:
            planned.append((bases, progress))
            return plan(bases, progress)

        monkeypatch.setattr(store.scrub._repairs, "plan", noting)
        run_pass(store.scrub)
        store.scrub.step(0.0)
        assert store.scrub.progress.finding_count == 2
        assert planned == [({0}, None)]


def test_damage_found_before_a_restart_is_repaired_after_it(root: Path, due: list[Record]) -> None:
    flip(root, due[HURT].physical_offset + FIELDS["BODY"])
    with open_store(root, MANUAL) as store:
        run_pass(store.scrub)
    automatic = CHOSEN.model_copy(update={"damage_repair": DamageRepair.AUTOMATIC})
    with open_store(root, automatic) as store:
        store.scrub.step(0.0)
        assert store.scrub.progress.repair_count == 1
        assert served(store, due) == due


def test_a_full_disk_leaves_the_damage_and_the_store(
    root: Path, due: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    poke(root, 3 * 4096, bytes(4096))
    hurt = log_of(root)
    with open_store(root, CHOSEN) as store:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as patch:
            patch.setattr(store.repairs._applier.quarantine, "keep_range", full)
            with pytest.raises(RepairRefused, match="nothing was changed"):
                store.repair_damage()
            run_pass(store.scrub)  # by itself it only logs
            store.scrub.step(0.0)
        assert store.failure is None
        assert log_of(root) == hurt
        assert store.repair_damage().done


def test_a_log_that_cannot_be_synced_ends_the_store(
    root: Path, due: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    poke(root, 3 * 4096, bytes(4096))
    with open_store(root, CHOSEN) as store:

        def refuse(*_: object) -> None:
            raise OSError(errno.EIO, "lost")

        monkeypatch.setattr(Applier, "apply_repairs", refuse)
        with pytest.raises(StoreFailed):
            store.repair_damage()
        assert store.failure is not None


def test_opening_puts_back_a_bit_that_flipped_above_the_watermark(
    root: Path, due: list[Record]
) -> None:
    before = log_of(root)
    flip(root, due[HURT].physical_offset + FIELDS["BODY"])
    flip(root, due[-HURT].physical_offset + FIELDS["QUEUEOFFSET"])
    (root / "mqstore" / "state").unlink()
    (root / "mqstore" / "clean-close.json").unlink()
    with open_store(root, CHOSEN) as store:
        plan = store.recovery.plan
        assert sum(isinstance(each, RestoreBytes) for each in plan.actions) == 2
        assert (plan.damaged_count, plan.damaged_block_count) == (0, 0)
        assert served(store, due) == due
    assert log_of(root) == before


def spoil(root: Path, hurt: Record) -> None:
    """Change more of a body than the checksum of its block can restore."""
    poke(root, hurt.physical_offset + 90, b"\xee" * 40)


def test_a_record_that_would_be_lost_comes_from_a_replica(root: Path, due: list[Record]) -> None:
    before = log_of(root)
    spoil(root, due[HURT])

    def fetch(offset: int, size: int, is_right: Callable[[bytes], bool]) -> tuple[str, bytes]:
        data = before[offset : offset + size]
        assert is_right(data)
        assert not is_right(data[:-1])
        assert not is_right(data[:-1] + bytes([data[-1] ^ 1, 0]))
        assert not is_right(bytes(size))
        return "other", data

    with open_store(root, MANUAL) as store:
        store.repairs.fetch = fetch
        assert isinstance(store.plan_repairs().actions[0], PlaceTombstone)
        report = store.repair_damage()
        (action,) = report.plan.actions
        assert isinstance(action, FetchBytes)
        assert (action.offset, action.replica) == (due[HURT].physical_offset, "other")
        assert "content" not in action.model_dump_json()
        assert served(store, due) == due
        assert changed_blocks(store) == 0
        progress = store.scrub.progress
        assert [(each.kind, each.replica) for each in progress.repairs] == [
            ("fetch-bytes", "other")
        ]
        assert (progress.repair_count, progress.tombstone_count) == (1, 0)
        assert report.quarantined
    assert log_of(root) == before


def test_a_record_that_no_replica_has_becomes_a_tombstone(root: Path, due: list[Record]) -> None:
    spoil(root, due[HURT])
    with open_store(root, MANUAL) as store:
        store.repairs.fetch = lambda *_: None
        (action,) = store.repair_damage().plan.actions
        assert isinstance(action, PlaceTombstone)


def test_a_tombstone_of_a_replica_is_not_taken_for_the_record(
    root: Path, due: list[Record]
) -> None:
    before = log_of(root)
    spoil(root, due[HURT])
    with open_store(root, MANUAL) as store:
        store.repair_damage()
        with pytest.raises(RecordTombstone):
            store.lookups.by_message_id(due[HURT].offset_message_id)
    replicas = {"one": log_of(root), "two": before}
    spoil(root, due[HURT])

    def fetch(
        offset: int, size: int, is_right: Callable[[bytes], bool]
    ) -> tuple[str, bytes] | None:
        logs = {name: log[offset : offset + size] for name, log in replicas.items()}
        return next((each for each in logs.items() if is_right(each[1])), None)

    with open_store(root, MANUAL) as store:
        store.repairs.fetch = fetch
        (action,) = store.repair_damage().plan.actions
        assert isinstance(action, FetchBytes)
        assert action.replica == "two"
        assert served(store, due) == due
    assert log_of(root) == before


def test_nothing_is_lost_while_a_replica_may_have_it(root: Path, due: list[Record]) -> None:
    spoil(root, due[HURT])
    before = log_of(root)

    def refuse(*_: object) -> None:
        raise RepairRefused("a replica did not reply")

    with open_store(root, CHOSEN) as store:
        store.repairs.fetch = refuse
        with pytest.raises(RepairRefused):
            store.repair_damage()
        run_pass(store.scrub)
        assert store.scrub.progress.finding_count
        store.repairs.fetch = refuse
    assert log_of(root) == before


def test_a_follower_reports_damage_and_repairs_it_when_it_leads(
    root: Path, due: list[Record]
) -> None:
    before = log_of(root)
    spoil(root, due[HURT])
    spoiled = log_of(root)
    with open_store(root, CHOSEN, leader="a:1") as store:
        run_pass(store.scrub)
        (finding,) = store.scrub.progress.findings
        assert finding.offset <= due[HURT].physical_offset < finding.offset + finding.length
    assert log_of(root) == spoiled

    def fetch(offset: int, size: int, _: Callable[[bytes], bool]) -> tuple[str, bytes]:
        return "other", before[offset : offset + size]

    with open_store(root, CHOSEN, fetch=fetch) as store:
        store.scrub.step(0.0)
        assert [each.replica for each in store.scrub.progress.repairs] == ["other"]
    assert log_of(root) == before


def test_bytes_that_are_whole_are_never_replaced(root: Path, due: list[Record]) -> None:
    fetched: list[int] = []

    def fetch(offset: int, *_: object) -> None:
        fetched.append(offset)

    with open_store(root, MANUAL) as store:
        store.repairs.fetch = fetch
        assert not store.repair_damage().done
    assert fetched == []


def test_a_close_repairs_more_damage_than_is_listed_and_counts_none_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A repair took the 100 listed findings, the other one stayed counted, and the close named the
    least offset of none: "min() arg is an empty sequence"."""
    body, count = b"x" * (SEGMENT - 600), FINDINGS_MAX + 1
    with open_store(tmp_path, CHOSEN) as store:
        for number in range(count):
            sent = Message("T", 0, body, b"", store.host, store.host, number)
            put_message(store, sent, Durability.SYNC)
        for offset in range(0, count * SEGMENT, SEGMENT):
            flip(tmp_path, offset + FIELDS["BODYCRC"])
        scrub = store.scrub
        while scrub.progress.finding_count < count:
            scrub._go_on(0.0)
        assert len(scrub.progress.findings) == FINDINGS_MAX
        assert scrub.progress.position is not None, "the pass goes on"
        scrub.repair_known()  # as a close of a store that scrubs does
    assert scrub.progress.repair_count == count
    assert (scrub.progress.finding_count, scrub.progress.findings) == (0, ())
    assert "the store is closed with" not in caplog.text


def test_findings_that_are_not_listed_are_counted_once_a_pass(
    root: Path, due: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FINDINGS_MAX", 1)
    places = {each.physical_offset // BLOCK_SIZE: each.physical_offset for each in due}
    places.popitem()  # the last block has no checksum yet
    for offset in places.values():
        flip(root, offset + FIELDS["BODYCRC"])
    for _ in range(2):
        with open_store(root, MANUAL) as store:
            scrub = store.scrub
            for _ in range(2):
                run_pass(scrub)
                assert len(scrub.progress.findings) == 1
                assert scrub.progress.finding_count == len(places) > 1
                scrub.request()
    with open_store(root, MANUAL) as store:
        assert store.repair_damage().done
        assert store.scrub.progress.finding_count == 0
