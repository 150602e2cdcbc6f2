"""Data that was durable and is gone: the store is only read, and goes on once that is accepted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage import accept_loss
from mqstore.storage.errors import DataMissing, LossNotAccepted, StorageError
from mqstore.storage.lost_data import Loss
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.recovery.report import StartReason
from mqstore.storage.system.threads import production_seams
from tests.long_runs import few_first
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import (
    CONFIG,
    FILES,
    abandon,
    all_bodies,
    bodies,
    message,
    open_store,
    put_some,
    segments,
    used_segments,
)

COUNT = 900
SEGMENT = CONFIG.mapped_file_size_commit_log
CLOCK = production_seams().clock


def made(root: Path, *, killed: bool) -> Path:
    store = open_store(root)
    put_some(store, COUNT - 1)
    put_message(store, message(store, COUNT - 1, queue_id=(COUNT - 1) % 3), Durability.SYNC)
    if killed:
        store._parts.running_manifest.step(0)
        abandon(store)
    else:
        store.close()
    return root


@pytest.fixture(scope="module", params=["closed", "killed"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(request.param) / "store"
    return made(root, killed=request.param == "killed")


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A copy with the original's times, as if no process had opened it since."""
    return Path(shutil.copytree(original, tmp_path / "store"))


def lose_the_last(root: Path) -> None:
    used_segments(root)[-1].unlink()


def lose_the_last_and_what_was_made_ahead(root: Path) -> None:
    last = used_segments(root)[-1]
    for path in segments(root):
        if path.name >= last.name:
            path.unlink()


def lose_two_at_the_end(root: Path) -> None:
    for path in used_segments(root)[-2:]:
        path.unlink()


def lose_a_middle_one(root: Path) -> None:
    segments(root)[1].unlink()


def lose_the_first(root: Path) -> None:
    segments(root)[0].unlink()


def lose_the_volume(root: Path) -> None:
    """The mount point of a log volume that is not mounted."""
    for path in segments(root):
        path.unlink()


def lose_the_directory(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def an_older_last_one(root: Path) -> None:
    """Restore an older snapshot of the log's volume."""
    last = used_segments(root)[-1]
    data = last.read_bytes()
    stat = last.stat()
    last.write_bytes(data[:9_000].ljust(SEGMENT, b"\0"))
    os.utime(last, ns=(stat.st_atime_ns, stat.st_mtime_ns))


LOSSES: list[Callable[[Path], None]] = [
    lose_the_last,
    lose_the_last_and_what_was_made_ahead,
    lose_two_at_the_end,
    lose_a_middle_one,
    lose_the_first,
    lose_the_volume,
    lose_the_directory,
    an_older_last_one,
]


def everything(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def refused(root: Path) -> Loss:
    with pytest.raises(DataMissing) as missing:
        open_store(root)
    return missing.value.loss


def looked_at(root: Path) -> MessageStore:
    return open_store(root, in_place=False, services=False)


def accepted(root: Path) -> Loss:
    loss = accept_loss.plan(root, CONFIG, FILES, CLOCK).loss
    accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation)
    return loss


@pytest.mark.parametrize("lose", LOSSES)
def test_durable_data_that_is_missing_keeps_the_store_from_being_written(
    root: Path, lose: Callable[[Path], None]
) -> None:
    lose(root)
    before = everything(root)
    first = refused(root)
    assert first.watermark > 0
    assert first.missing_bytes > 0
    assert first.messages == sum(lost.end - lost.first for lost in first.queues)
    assert {lost.topic for lost in first.queues} == {"T"}
    assert refused(root) == first
    assert everything(root) == before


@pytest.mark.parametrize("lose", LOSSES)
def test_what_is_left_can_be_read_and_what_is_lost_is_named(
    root: Path, lose: Callable[[Path], None]
) -> None:
    lose(root)
    with looked_at(root) as store:
        loss = store.recovery.plan.loss
        assert loss is not None
        assert str(loss.watermark) in (store.read_only_reason or "")
        lost = {
            (each.queue_id, offset)
            for each in loss.queues
            for offset in range(each.first, each.end)
        }
        assert lost
        queues = {queue.queue_id: queue for queue in store.queues.all()}
        for number in range(COUNT):
            queue_id, offset = number % 3, number // 3
            entry = queues[queue_id].entry(offset)
            assert entry is not None
            if (queue_id, offset) not in lost:
                assert store.log.record_at(entry.physical_offset).queue_offset == offset
            else:
                with pytest.raises(StorageError):
                    store.log.record_at(entry.physical_offset)


@pytest.mark.parametrize("lose", few_first(LOSSES, 4))
def test_an_accepted_loss_gives_no_queue_offset_and_no_message_id_out_again(
    root: Path, lose: Callable[[Path], None]
) -> None:
    with looked_at(root) as store:
        end = store.log.max_offset
    lose(root)
    loss = accepted(root)
    with open_store(root) as store:
        assert store.read_only_reason is None
        assert store.recovery.accepted_loss == loss
        assert_goes_on(store, end)
    with open_store(root) as store:
        assert store.recovery.plan.start_reason is StartReason.CLEAN_CLOSE
        assert_goes_on(store, end)
    shutil.rmtree(root / "consumequeue")
    with open_store(root) as store:  # the log itself says which offsets were given out
        assert_goes_on(store, end)


def assert_goes_on(store: MessageStore, end: int) -> None:
    for queue_id in range(3):
        placed = put_message(store, message(store, 7, queue_id=queue_id), Durability.SYNC)
        assert placed.queue_offset >= COUNT // 3
        assert placed.physical_offset >= end
        queue = store.queues.get("T", queue_id)
        assert queue is not None
        assert queue.max_index == placed.queue_offset + 1
        assert store.lookups.records("T", queue_id, placed.queue_offset, 1).records[0].body


@pytest.mark.parametrize("lose", few_first(LOSSES, 4))
def test_messages_that_are_left_stay_where_they_were(
    root: Path, lose: Callable[[Path], None]
) -> None:
    lose(root)
    loss = accepted(root)
    with open_store(root) as store:
        lost = {
            offset * 3 + each.queue_id
            for each in loss.queues
            for offset in range(each.first, each.end)
        }
        for number in set(range(COUNT)) - lost:
            queue = store.queues.get("T", number % 3)
            assert queue is not None
            entry = queue.entry(number // 3)
            assert entry is not None
            assert store.log.record_at(entry.physical_offset).body == b"body %d " % number * 10


@pytest.mark.parametrize("lose", LOSSES)
def test_segments_that_are_put_back_make_the_store_whole_again(
    root: Path, lose: Callable[[Path], None], tmp_path: Path
) -> None:
    kept = shutil.copytree(root / "commitlog", tmp_path / "kept")
    lose(root)
    refused(root)
    accepted(root)
    shutil.rmtree(root / "commitlog", ignore_errors=True)
    shutil.copytree(kept, root / "commitlog")
    with open_store(root) as store:
        assert store.recovery.accepted_loss is None
        assert bodies(store) == all_bodies(COUNT)
        assert not (root / "mqstore" / "accepted-loss.json").exists()


def test_another_loss_than_the_one_that_was_looked_at_is_not_accepted(root: Path) -> None:
    lose_a_middle_one(root)
    seen = accept_loss.plan(root, CONFIG, FILES, CLOCK).loss
    lose_the_last(root)
    before = everything(root)
    with pytest.raises(LossNotAccepted, match="look at it again"):
        accept_loss.accept(root, CONFIG, FILES, CLOCK, seen.confirmation)
    assert everything(root) == before


def test_more_that_goes_after_an_acceptance_is_not_accepted(root: Path) -> None:
    lose_a_middle_one(root)
    accepted(root)
    lose_the_last(root)
    assert refused(root).segment_count == 2


def test_a_middle_segment_that_is_still_being_copied_back_is_missing(root: Path) -> None:
    middle = segments(root)[1]
    data = middle.read_bytes()
    middle.write_bytes(data[:30_000])
    assert refused(root).missing_bytes == SEGMENT - 30_000
    with pytest.raises(LossNotAccepted, match="30000 bytes"):
        accept_loss.plan(root, CONFIG, FILES, CLOCK)
    middle.write_bytes(data)
    with open_store(root) as store:
        assert bodies(store) == all_bodies(COUNT)


def test_where_nothing_is_missing_nothing_can_be_accepted(root: Path) -> None:
    with pytest.raises(LossNotAccepted, match="nothing is missing"):
        accept_loss.plan(root, CONFIG, FILES, CLOCK)


def test_a_hole_whose_loss_was_accepted_is_not_missed_again(root: Path) -> None:
    lose_a_middle_one(root)
    accepted(root)
    for killed in (True, False, True):
        store = open_store(root)
        put_some(store, 10, start=COUNT)
        if killed:
            abandon(store)
        else:
            store.close()
    lose_the_first(root)
    assert refused(root).segment_count == 1


def test_what_a_broker_cut_is_reported_and_keeps_nothing_from_being_written(root: Path) -> None:
    lose_the_last(root)
    with (root / "lock").open("r+b") as lock:
        lock.write(b"lock")
    with open_store(root) as store:
        assert any("a broker has had the store since" in odd for odd in store.recovery.odd)
        assert put_message(store, message(store, 1)).queue_offset < COUNT // 3


def test_a_broker_leaves_traces_where_an_earlier_release_put_no_sign(root: Path) -> None:
    lose_the_last(root)
    (root / "lock").write_bytes(b"lock")
    (root / "abort").write_bytes(b"")
    with open_store(root) as store:
        assert any("a broker has had the store since" in odd for odd in store.recovery.odd)


@pytest.mark.parametrize("touched", ["lock", "copy", "no lock"])
def test_a_changed_lock_alone_is_no_broker(root: Path, touched: str, tmp_path: Path) -> None:
    lose_the_last(root)
    if touched == "lock":
        (root / "lock").write_bytes(b"lock")
        os.utime(root / "checkpoint", (1_700_000_000, 1_700_000_000))
        if (root / "abort").exists():
            os.utime(root / "abort", (1_700_000_000, 1_700_000_000))
    elif touched == "copy":
        root = Path(shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copy))
        os.utime(root / "mqstore" / "format.json")
    else:
        (root / "lock").unlink()
    assert refused(root).watermark > 0


def test_segments_that_retention_took_are_not_missed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    put_some(store, COUNT)
    assert store.expire(2) == 2
    abandon(store)
    store = open_store(tmp_path / "store")
    assert store.expire(1) == 1
    store.close()
    with open_store(tmp_path / "store") as store:
        assert store.log.min_offset == 3 * SEGMENT


def test_a_state_page_that_is_lost_too_leaves_the_clean_close_to_say_what_was_there(
    tmp_path: Path,
) -> None:
    root = made(tmp_path / "store", killed=False)
    (root / "mqstore" / "state").unlink()
    lose_the_last(root)
    assert refused(root).segment_count == 1
