"""Backups beside a writer and at rest: what they have, and what they do not copy again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqstore.storage.backup import BackupError, creation
from mqstore.storage.errors import StoreNotOpen
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata.store_lock import SIGN
from mqstore.storage.paths import segment_name
from mqstore.storage.recovery.report import StartReason
from tests.unit.storage.backup.backups import (
    WatchedObjects,
    back_up,
    flaws,
    messages,
    put_back,
    repository,
    seams_with,
)
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, message, open_store, put_some
from tests.unit.untouched import entries_of

SIZE = CONFIG.mapped_file_size_commit_log


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root) as opened:
        opened.create_topic("T", queues=3)
        yield opened


def names(place: Path) -> set[str]:
    return set(repository(place).objects.sizes("log"))


def test_all_acknowledged_before_it_is_in_a_backup_while_puts_go_on(
    root: Path, place: Path, tmp_path: Path, store: MessageStore
) -> None:
    put_some(store, 600)
    before = messages(store)
    stop = threading.Event()

    def put_on() -> None:
        number = 600
        while not stop.is_set():
            put_message(store, message(store, number, queue_id=number % 3), Durability.ASYNC)
            number += 1

    thread = threading.Thread(target=put_on)
    thread.start()
    try:
        created = back_up(root, place)
    finally:
        stop.set()
        thread.join()

    assert flaws(place) == []
    restored = put_back(place, tmp_path / "restored")
    assert restored.end == created.backup.end
    with open_store(tmp_path / "restored") as copy:
        found = messages(copy)
        assert before.items() <= found.items() <= messages(store).items()
        assert copy.topic("T").write_queues == 3
        assert copy.recovery.plan.start_reason is StartReason.CLEAN_CLOSE


def test_a_part_that_an_earlier_backup_has_is_not_copied_again(
    root: Path, place: Path, store: MessageStore
) -> None:
    put_some(store, 1000)
    first = back_up(root, place)
    of_first = names(place)
    put_some(store, 300, start=1000)

    dry = back_up(root, place, dry_run=True)
    assert names(place) == of_first
    second = back_up(root, place)

    assert (dry.new_parts, dry.reused_bytes) == (second.new_parts, second.reused_bytes)
    sealed = first.backup.end // SIZE * SIZE
    assert second.reused_bytes == sealed
    new = names(place) - of_first
    assert len(new) == second.new_parts
    assert sum(repository(place).objects.sizes("log")[name] for name in new) == (
        second.backup.end - sealed
    )
    third = back_up(root, place)
    assert third.new_parts <= 1  # less than a block at the end


def test_a_growing_segment_is_copied_in_whole_blocks_once(root: Path, place: Path) -> None:
    with open_store(root, CONFIG.model_copy(update={"mapped_file_size_commit_log": 1 << 20})) as it:
        put_some(it, 1500)
        back_up(root, place)
        put_some(it, 600, start=1500)
        second = back_up(root, place)
        blocks = second.reused_bytes
        assert blocks % (64 << 10) == 0
        assert 0 < second.backup.end - blocks < (200 << 10)
        assert len(second.backup.segments[0].parts) == 3
    assert flaws(place) == []


def test_a_segment_of_many_parts_is_copied_anew(
    root: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "PARTS_MAX", 2)
    with open_store(root, CONFIG.model_copy(update={"mapped_file_size_commit_log": 4 << 20})) as it:
        counts = []
        for start in range(0, 3000, 600):
            put_some(it, 600, start=start)
            counts.append(len(back_up(root, place).backup.segments[0].parts))
    assert counts == [2, 3, 2, 3, 2]
    assert flaws(place) == []


def test_segments_that_retention_deletes_are_left_out(
    root: Path, place: Path, tmp_path: Path, store: MessageStore
) -> None:
    """Also one that goes while the backup runs: the log begins behind it."""
    put_some(store, 1500)
    back_up(root, place)
    store.expire(1)

    def expire(kind: str, name: str) -> None:
        if name.startswith("log/") and store.log.min_offset < 3 * SIZE:
            store.expire(2)

    put_some(store, 1000, start=1500)
    (tmp_path / "other").mkdir()
    created = back_up(root, tmp_path / "other", WatchedObjects(tmp_path / "other", expire))

    assert created.backup.begin == store.log.min_offset == 3 * SIZE
    assert back_up(root, place).backup.begin == 3 * SIZE
    put_back(tmp_path / "other", tmp_path / "restored")
    with open_store(tmp_path / "restored") as copy:
        assert messages(copy) == messages(store)


def test_a_repaired_segment_is_copied_again(root: Path, place: Path, tmp_path: Path) -> None:
    """A tombstone drops the checksum of its block, so the bytes are compared."""
    with open_store(root) as store:
        put_some(store, 700)
    back_up(root, place)
    path = root / "commitlog" / segment_name(0)
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))

    damaged = back_up(root, place)
    assert damaged.reused_bytes >= SIZE  # the whole bytes of the first backup stay
    with open_store(root) as store:
        assert store.repair_damage().plan.actions
    repaired = back_up(root, place)

    first, second = (each.segments[0].parts for each in list(repository(place).whole())[-2:])
    assert [part.name for part in first] != [part.name for part in second]
    assert repaired.backup.damaged_blocks == 0
    put_back(place, tmp_path / "restored")
    restored = tmp_path / "restored" / "commitlog" / segment_name(0)
    assert restored.read_bytes() == path.read_bytes()


def test_a_block_that_does_not_match_its_checksum_is_counted(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 700)
    with (root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff\xff\xff")
    assert back_up(root, place).backup.damaged_blocks == 1


def test_bytes_that_a_repair_put_back_replace_the_damaged_ones(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 700)
    path = root / "commitlog" / segment_name(0)
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    for _ in range(2):
        assert back_up(root, place).backup.damaged_blocks == 1
    path.write_bytes(whole)

    assert back_up(root, place).backup.damaged_blocks == 0

    newest = repository(place).get(None).segments[0].parts[0]
    assert (place / newest.name).read_bytes() == whole


def test_without_block_checksums_the_bytes_are_compared(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 700)
    first = back_up(root, place)
    for path in (root / "mqstore" / "blocks").iterdir():
        path.unlink()
    assert back_up(root, place).reused_bytes == first.backup.end // SIZE * SIZE


def test_a_backup_changes_nothing_in_the_store(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 300)
    before = entries_of(root)
    back_up(root, place)
    assert entries_of(root) == before


def test_hidden_files_of_other_programs_are_left_out(
    root: Path, place: Path, tmp_path: Path
) -> None:
    with open_store(root) as store:
        store.create_topic("T", queues=3)
        put_some(store, 20)
    (root / "config" / ".hidden").write_text("x")
    back_up(root, place)
    assert flaws(place) == []
    put_back(place, tmp_path / "restored")
    assert not (tmp_path / "restored" / "config" / ".hidden").exists()


def test_a_backup_beside_a_writer_that_syncs_late_requests_a_sync(root: Path, place: Path) -> None:
    """Messages that come after it are neither in the backup nor missing."""
    config = CONFIG.model_copy(
        update={"flush_interval_commit_log": 10**6, "flush_commit_log_thorough_interval": 10**6}
    )
    requests = 0
    with open_store(root, config) as store:
        put_some(store, 20)
        before = store.log.max_offset

        def sync() -> None:
            nonlocal requests
            requests += 1
            store.log.flush.flush_all()
            put_some(store, 20, start=20)

        found = creation.Creation(root, repository(place), seams_with(), request_sync=sync)
        created = found.run()
        assert created.backup.end >= before
        assert store.log.max_offset > store.log.flushed_offset
    assert requests == 1
    assert created.unsynced_bytes == 0


def test_what_a_killed_writer_did_not_sync_is_named(root: Path, place: Path) -> None:
    store = open_store(root, CONFIG.model_copy(update={"flush_interval_commit_log": 10**6}))
    put_some(store, 20)
    store.log.flush.flush_all()
    synced = store.log.max_offset
    put_some(store, 20, start=20)
    store._parts.directory.lock.release()  # nothing else of a killed process is seen

    created = back_up(root, place)

    assert created.backup.end == synced
    assert created.unsynced_bytes == store.log.max_offset - synced
    abandon(store)


def test_a_store_that_a_broker_has_had_since_is_refused(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 20)
    (root / "lock").write_bytes(b"lock" + SIGN[4:])
    with pytest.raises(BackupError, match="broker"):
        back_up(root, place)
    assert not place.exists()


def test_a_place_has_the_backups_of_one_store(root: Path, place: Path, tmp_path: Path) -> None:
    for path in (root, tmp_path / "other"):
        with open_store(path) as store:
            put_some(store, 20)
    back_up(root, place)
    with pytest.raises(BackupError, match="a place of its own"):
        back_up(tmp_path / "other", place)


def test_a_directory_without_a_store_is_refused(tmp_path: Path, place: Path) -> None:
    with pytest.raises(StoreNotOpen):
        back_up(tmp_path / "nothing", place)


def test_a_recovery_meanwhile_begins_the_backup_anew(
    root: Path, place: Path, store: MessageStore
) -> None:
    put_some(store, 1000)
    left = 3

    def repair(kind: str, name: str) -> None:
        nonlocal left
        if name.startswith("log/") and left:
            left -= 1
            store.state.advance_epoch()

    created = back_up(root, place, WatchedObjects(place, repair))
    assert created.backup.end == store.log.max_offset
    assert flaws(place) == []


def test_an_empty_store_is_backed_up(root: Path, place: Path, tmp_path: Path) -> None:
    with open_store(root) as store:
        store.create_topic("T", queues=2)
    back_up(root, place)
    put_back(place, tmp_path / "restored")
    with open_store(tmp_path / "restored") as copy:
        assert copy.topic("T").write_queues == 2
        put_some(copy, 4, queues=2)


def test_the_rate_of_reads_is_kept(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 700)
    scheduler = RecordedWaits()
    seams = seams_with(scheduler=scheduler)
    created = creation.Creation(root, repository(place), seams, bytes_per_s=100_000).run()
    due_s = created.backup.end / 100_000
    assert scheduler.longest_s <= due_s
    assert scheduler.longest_s > due_s / 2  # the waits are not slept, so the last is for all bytes


class RecordedWaits:
    """A scheduler whose waits end at once."""

    longest_s = 0.0

    def signal(self) -> RecordedWaits:
        return self

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        self.longest_s = max(self.longest_s, timeout_s)
        return predicate()
