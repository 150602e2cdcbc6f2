"""Block checksums of whole stores: bytes that the disk changed are refused, others are not."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage import accept_loss
from mqstore.storage._kernel import check_block
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import RecordBlockCorrupt, RecordTombstone
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.block_files import blocks_of
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.recovery.report import CutTail, PlaceTombstone
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Kind, Verification
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, message, open_store, put_some

SEGMENT = CONFIG.mapped_file_size_commit_log
COUNT = 900
HURT = 10
"""Number of the record that is damaged."""
FLAG_AT = 16
"""Position in a record of four bytes that no field of RocketMQ's format guards."""
BODY_AT = 100


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 messages in several segments: one store closed cleanly, one whose writer was killed."""
    root = tmp_path_factory.mktemp("blocks")
    for name in ("closed", "killed"):
        store = open_store(root / name)
        store.create_topic("T", queues=3)
        put_some(store, COUNT)
        store.close() if name == "closed" else abandon(store)
    return root


@pytest.fixture
def closed(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "closed", tmp_path / "store"))


@pytest.fixture
def killed(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "killed", tmp_path / "store"))


def records(root: Path) -> list[Record]:
    """Every record of the log, in order."""
    with open_store(root, in_place=False, services=False) as store:
        return records_of(store)


def records_of(store: MessageStore) -> list[Record]:
    found, offset = [], store.log.min_offset
    while offset < store.log.max_offset:
        found.append(store.log.record_at(offset))
        offset += found[-1].size
        if (
            offset % SEGMENT
            and bytes(store.log.select(offset, 8) or b"")[4:] == b"\xcb\xd4\x31\x94"
        ):
            offset += SEGMENT - offset % SEGMENT
    return found


def hurt(root: Path, found: Record, at: int = FLAG_AT, mask: int = 0x40) -> None:
    """Change one byte of a record without a write through the store."""
    offset = found.physical_offset
    path = root / "commitlog" / segment_name(offset - offset % SEGMENT)
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT + at)
        byte = file.read(1)[0]
        file.seek(offset % SEGMENT + at)
        file.write(bytes([byte ^ mask]))


def covered_end(store: MessageStore) -> int:
    """Up to where every byte of the log is covered, and as it was."""
    end = store.log.min_offset
    for file in store.log.files.files:
        entries = store._parts.directory.blocks.entries(file.base_offset)
        for number in range(blocks_of(file.size)):
            covered = 0
            if entries is not None:
                covered = check_block(file.view, entries, file.base_offset, number, 0)
            assert covered >= 0
            if end != file.base_offset + number * BLOCK_SIZE:
                return end
            end += covered
    return end


def catch_up(store: MessageStore) -> None:
    """Do what runs in the background; the store must run without services."""
    cover = store._parts.core.block_cover
    assert cover is not None
    while cover.step(0.0) < math.inf:
        pass
    store.flush.flush_all()


def forget_the_watermark(root: Path) -> None:
    """Delete the watermark, so that the next opening reads the whole log."""
    (root / "mqstore" / "state").unlink()
    (root / "mqstore" / "clean-close.json").unlink(missing_ok=True)


# writing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_all_that_was_synced_is_covered(originals: Path, name: str) -> None:
    with open_store(originals / name, in_place=False, services=False) as store:
        assert covered_end(store) == store.log.max_offset


def test_the_blocks_of_a_sync_put_have_checksums_when_it_returns(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for number in range(400):
            placed = put_message(store, message(store, number), Durability.SYNC)
            store.flush.flush_all()  # the put may have been served by the flush thread
            if number % 57 == 0:
                assert covered_end(store) == placed.end


def test_expiry_removes_the_checksums_too(closed: Path) -> None:
    with open_store(closed) as store:
        assert store.expire(2) == 2
        assert store._parts.directory.blocks.bases() == [
            f.base_offset for f in store.log.files.files
        ]


def test_a_store_without_checksums_gets_them_in_the_background(closed: Path) -> None:
    shutil.rmtree(closed / "mqstore" / "blocks")
    with open_store(closed, in_place=False, services=False) as store:
        assert covered_end(store) == 0
        catch_up(store)
        assert covered_end(store) == store.log.max_offset


# reading ----------------------------------------------------------------------------------


def test_a_record_that_the_disk_changed_is_refused_and_its_neighbours_are_served(
    closed: Path,
) -> None:
    due = records(closed)
    hurt(closed, due[HURT])
    with open_store(closed) as store:
        lookups = store.lookups
        with pytest.raises(RecordBlockCorrupt):
            lookups.by_physical_offset(due[HURT].physical_offset)
        for found in (*due[:HURT], *due[HURT + 1 :]):
            assert lookups.by_physical_offset(found.physical_offset) == found
        pull = lookups.records("T", due[HURT].queue_id, 0, 100)
        assert [each.queue_offset for each in pull.unreadable] == [due[HURT].queue_offset]
        assert len(pull.records) == 99
        answer = lookups.by_key("T", f"k{HURT}")
        assert (answer.records, len(answer.unreadable)) == ([], 1)


def test_readers_in_other_processes_refuse_it_too(closed: Path) -> None:
    due = records(closed)
    hurt(closed, due[HURT])
    with StoreReader.open(closed, production_seams()) as reader:
        with pytest.raises(RecordBlockCorrupt):
            reader.lookups.by_physical_offset(due[HURT].physical_offset)
        found = reader.lookups.by_physical_offset(due[HURT + 1].physical_offset)
        assert found == due[HURT + 1]


def test_a_reader_refuses_nothing_that_a_broker_may_have_written(closed: Path) -> None:
    due = records(closed)
    hurt(closed, due[HURT])
    touched_by_a_broker(closed)
    with StoreReader.open(closed, production_seams()) as reader:
        found = reader.lookups.by_physical_offset(due[HURT].physical_offset)
        assert found.flag != due[HURT].flag


@pytest.mark.parametrize("lost", ["format.json", "lock"])
def test_a_reader_refuses_nothing_when_the_last_writer_is_unknown(closed: Path, lost: str) -> None:
    due = records(closed)
    hurt(closed, due[HURT])
    with StoreReader.open(closed, production_seams()) as reader:
        path = closed / lost if lost == "lock" else closed / "mqstore" / lost
        path.write_bytes(b"{") if lost != "lock" else path.unlink()
        assert reader.lookups.by_physical_offset(due[HURT].physical_offset)


# recovery ---------------------------------------------------------------------------------


def test_recovery_reports_changed_headers_and_destroys_nothing(killed: Path) -> None:
    due = records(killed)
    for number in (HURT, HURT + 1):  # more than one word: which records, no checksum says
        hurt(killed, due[number])
    forget_the_watermark(killed)
    with open_store(killed) as store:
        plan = store.recovery.plan
        assert plan.damaged_count == 0
        (damaged,) = plan.damaged_blocks
        assert (damaged.offset, damaged.length, plan.damaged_block_count) == (0, BLOCK_SIZE, 1)
        assert store.log.max_offset == due[-1].physical_offset + due[-1].size
        found = store.lookups.by_physical_offset(due[HURT].physical_offset)
        assert found.is_self_checked


def test_recovery_puts_back_what_one_word_of_a_header_was(killed: Path) -> None:
    due = records(killed)
    hurt(killed, due[HURT])
    forget_the_watermark(killed)
    with open_store(killed) as store:
        plan = store.recovery.plan
        assert (plan.damaged_count, plan.damaged_block_count) == (0, 0)
        found = store.lookups.by_physical_offset(due[HURT].physical_offset)
        assert (found, found.is_self_checked) == (due[HURT], False)


def test_a_rotten_record_costs_itself_and_its_block_is_covered_anew(killed: Path) -> None:
    due = records(killed)
    hurt(killed, due[HURT], BODY_AT + 20)
    hurt(killed, due[HURT], BODY_AT + 28)
    forget_the_watermark(killed)
    with open_store(killed) as store:
        plan = store.recovery.plan
        assert any(isinstance(action, PlaceTombstone) for action in plan.actions)
        assert (plan.damaged_count, plan.damaged_block_count) == (1, 0)
        with pytest.raises(RecordTombstone):
            store.lookups.by_physical_offset(due[HURT].physical_offset)
        for found in (*due[:HURT], *due[HURT + 1 :]):
            assert store.lookups.by_physical_offset(found.physical_offset) == found
    with open_store(killed, in_place=False, services=False) as store:
        assert covered_end(store) == store.log.max_offset


def test_a_cut_below_what_was_covered_condemns_nothing_that_comes_after(killed: Path) -> None:
    """The last record rots and is cut; what is put in its place is another one."""
    due = records(killed)
    hurt(killed, due[-1], BODY_AT + 20)
    hurt(killed, due[-1], BODY_AT + 28)
    forget_the_watermark(killed)
    with open_store(killed) as store:
        assert any(isinstance(action, CutTail) for action in store.recovery.plan.actions)
        assert store.log.max_offset == due[-1].physical_offset
        placed = put_message(store, message(store, COUNT + 1), Durability.SYNC)
        assert store.lookups.by_physical_offset(placed.physical_offset).body
    with open_store(killed, in_place=False, services=False) as store:
        assert covered_end(store) == store.log.max_offset


def test_damage_between_two_openings_is_not_covered_up_by_what_is_put_next(closed: Path) -> None:
    due = records(closed)
    hurt(closed, due[-1])
    with open_store(closed) as store:
        put_some(store, 200, start=COUNT)
    with open_store(closed) as store:  # not as closed: the recovery restores the byte
        assert store.lookups.by_physical_offset(due[-1].physical_offset) == due[-1]
        assert store.lookups.by_physical_offset(due[-2].physical_offset) == due[-2]


def touched_by_a_broker(root: Path) -> None:
    """Write the lock, as a broker does at each start."""
    later = (root / "lock").stat().st_mtime + 60
    os.utime(root / "lock", (later, later))


def opened_by_an_older_version(root: Path) -> None:
    """One that counts the epoch on, and knows no block checksums."""
    path = StorePaths(root).format
    content = json.loads(sealed_json.unseal(path.read_bytes()))
    content["epoch"] += 1
    path.write_bytes(sealed_json.seal(json.dumps(content)))


@pytest.mark.parametrize("opened", [touched_by_a_broker, opened_by_an_older_version])
def test_checksums_are_made_again_after_another_program_may_have_written(
    closed: Path, opened: Callable[[Path], None]
) -> None:
    due = records(closed)
    hurt(closed, due[HURT])
    opened(closed)
    with open_store(closed, in_place=False, services=False) as store:
        assert store.recovery.plan.damaged_block_count == 0
        assert covered_end(store) == 0
        catch_up(store)
        assert covered_end(store) == store.log.max_offset
        assert store.lookups.by_physical_offset(due[HURT].physical_offset)


def test_checksums_of_a_store_that_lost_its_log_are_gone_before_another_one_begins(
    closed: Path,
) -> None:
    shutil.rmtree(closed / "commitlog")
    files, clock = production_seams().files, production_seams().clock
    lost = accept_loss.plan(closed, CONFIG, files, clock).loss
    accept_loss.accept(closed, CONFIG, files, clock, lost.confirmation)
    with open_store(closed) as store:
        assert all(base >= lost.watermark for base in store._parts.directory.blocks.bases())
        placed = put_message(store, message(store, 1), Durability.SYNC)
        assert store.lookups.by_physical_offset(placed.physical_offset).body


# verify -----------------------------------------------------------------------------------


def verified(root: Path) -> list[tuple[Kind, str]]:
    found = Verification(root, CONFIG, production_seams()).findings()
    return [(finding.kind, finding.what) for finding in found]


def test_verify_names_what_changed_and_the_records_there(closed: Path) -> None:
    due = records(closed)
    hurt(closed, due[HURT])
    ((kind, what),) = verified(closed)
    assert kind is Kind.BLOCK_CHANGED
    assert "1 bytes are not those that were written" in what
    assert f"refuses the records at {due[HURT].physical_offset}" in what


def test_verify_names_some_of_many_records(closed: Path) -> None:
    due = records(closed)
    for number in (HURT, HURT + 50):
        hurt(closed, due[number])
    ((kind, what),) = verified(closed)
    assert kind is Kind.BLOCK_CHANGED
    assert " more" in what


def test_verify_names_a_rotten_record_once(closed: Path) -> None:
    hurt(closed, records(closed)[HURT], BODY_AT + 20)
    assert [kind for kind, _ in verified(closed)] == [Kind.RECORD_BODY]


def test_verify_believes_no_checksums_after_a_broker(closed: Path) -> None:
    hurt(closed, records(closed)[HURT])
    touched_by_a_broker(closed)
    assert Kind.BLOCK_CHANGED not in {kind for kind, _ in verified(closed)}


def test_looking_changes_no_checksums(closed: Path) -> None:
    def content() -> dict[str, bytes]:
        folder = closed / "mqstore" / "blocks"
        return {name: (folder / name).read_bytes() for name in PosixFileSystem().list(folder)}

    before = content()
    hurt(closed, records(closed)[HURT])
    verified(closed)
    records(closed)
    assert content() == before
