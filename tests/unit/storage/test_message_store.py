from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.dispatch import dispatcher as dispatch
from mqstore.storage.errors import (
    DirectoryNotUsable,
    MessageTooLarge,
    StoreLocked,
    StoreNotWritable,
    StoreOfAnother,
    StoreUnsupported,
    TopicNameError,
    TopicUnknown,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability
from mqstore.storage.metadata import format_file, manifest
from mqstore.storage.metadata.state_page import read_state
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.options import RecoveredLog
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery.report import StartReason
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.checkpoint import Checkpoint
from tests.unit.storage.puts import put_batch, put_message
from tests.unit.storage.stores import (
    CONFIG,
    FILES,
    abandon,
    all_bodies,
    bodies,
    message,
    open_store,
    put_some,
)


@pytest.fixture
def closed(root: Path) -> Iterator[Path]:
    """A store with 1000 messages, cleanly closed."""
    with open_store(root) as store:
        put_some(store, 1000)
    yield root


def test_what_was_put_is_read_back_after_a_clean_close(closed: Path) -> None:
    with open_store(closed) as store:
        assert bodies(store) == all_bodies(1000)
        assert store.recovery.plan.start_reason is StartReason.CLEAN_CLOSE
        assert store.recovery.plan.scanned_bytes == 0
        assert store.dispatcher.catch_up.complete


def test_a_message_can_be_looked_up_when_its_put_returns(root: Path) -> None:
    with open_store(root) as store:
        placement = put_message(store, message(store, 7))
        assert store.lookups.by_message_id(placement.offset_message_id).body == b"body 7 " * 10
        assert store.lookups.by_unique_key("T", f"U{7:031d}").queue_offset == 0


def test_queue_offsets_go_on_after_reopening(closed: Path) -> None:
    with open_store(closed) as store:
        placement = put_message(store, message(store, 1, queue_id=0))
        assert placement.queue_offset == 334
        assert put_message(store, message(store, 1, topic="New")).queue_offset == 0


def test_a_batch_is_contiguous_in_its_queue(root: Path) -> None:
    with open_store(root) as store:
        placements = put_batch(store, [message(store, n) for n in range(50)], Durability.SYNC)
        assert [p.queue_offset for p in placements] == list(range(50))
        assert store.log.flushed_offset == placements[-1].end


def test_sync_durability_returns_with_the_message_on_disk(root: Path) -> None:
    with open_store(root) as store:
        placement = put_message(store, message(store, 1), Durability.SYNC)
        assert store.log.flushed_offset >= placement.end
        assert store.state.flushed_offset >= placement.end


def test_the_default_durability_follows_flush_disk_type(root: Path) -> None:
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC})
    with open_store(root, config) as store:
        placement = put_message(store, message(store, 1))
        assert store.log.flushed_offset >= placement.end


def test_a_refused_message_leaves_nothing_behind(root: Path) -> None:
    with open_store(root) as store:
        too_large = message(store, 1)
        too_large.body = bytes(CONFIG.mapped_file_size_commit_log)
        with pytest.raises(MessageTooLarge):
            put_message(store, too_large)
        assert store.log.max_offset == 0


def test_abort_is_there_while_the_store_is_open_and_goes_with_a_clean_close(root: Path) -> None:
    store = open_store(root)
    assert (root / "abort").read_bytes() == b""
    assert not (root / "abort.bak").exists()
    store.close()
    assert not (root / "abort").exists()
    state = read_state(FILES, StorePaths(root).state)
    assert state is not None
    assert state.health is Health.CLOSED


def test_a_5x_store_writes_its_process_id_into_abort(root: Path) -> None:
    with open_store(root, format=StoreFormat.V5_X, pid=4711):
        assert (root / "abort").read_bytes() == b"4711"
    assert (root / "abort.bak").read_bytes() == b""
    with open_store(root) as store:
        assert store.format is StoreFormat.V5_X


def test_a_second_opening_is_refused_and_says_who_holds_the_store(root: Path) -> None:
    with open_store(root, pid=4711), pytest.raises(StoreLocked, match="4711"):
        open_store(root)


def test_closing_twice_is_closing_once(root: Path) -> None:
    store = open_store(root)
    store.close()
    store.close()
    with pytest.raises(StoreNotWritable):
        store.append(message(store, 1))


def test_a_put_that_is_overtaken_by_close_is_stored_and_touches_nothing_afterwards(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(root)
    dispatch, appended, go = store._parts.appends.dispatch, threading.Event(), threading.Event()

    def dispatch_late(end: int) -> None:
        appended.set()
        assert go.wait(60)
        dispatch(end)

    monkeypatch.setattr(store._parts.appends, "dispatch", dispatch_late)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(put_message, store, message(store, 0, queue_id=0), Durability.SYNC)
        assert appended.wait(60)
        store.close()
        with open_store(root) as after:
            put_message(after, message(after, 1, queue_id=0))
            dispatched = after.state.dispatched_offset
            go.set()
            assert put.result(60).queue_offset == 0
            assert after.state.dispatched_offset == dispatched
            assert bodies(after) == all_bodies(2)


def test_another_store_is_refused_with_both_ids(closed: Path) -> None:
    wanted = "0" * 31 + "1"
    with open_store(closed) as store:
        found = store.store_id
    with pytest.raises(StoreOfAnother, match=f"{found}.*{wanted}"):
        open_store(closed, store_id=wanted)
    with pytest.raises(StoreOfAnother, match="shard"):
        open_store(closed, shard="7")


def test_a_refused_directory_is_not_left_locked(closed: Path) -> None:
    with pytest.raises(StoreOfAnother):
        open_store(closed, shard="7")
    open_store(closed).close()


def test_a_missing_or_unusable_directory_is_one_clear_error(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DirectoryNotUsable):
        open_store(root, create=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryNotUsable):
        open_store(tmp_path / "file")


def test_several_log_directories_are_refused_by_name(root: Path) -> None:
    with pytest.raises(StoreUnsupported, match="/a,/b"):
        open_store(root, store_path_commit_log="/a,/b")


@pytest.fixture
def without_index(root: Path) -> Path:
    """A store of 1000 messages whose queues are known to be whole, and whose index is gone."""
    store = open_store(root)
    put_some(store, 1000)
    store._stop_services()
    store._parts.running_manifest.step(0.0)
    store._parts.directory.lock.release()
    for file in (root / "index").iterdir():
        file.unlink()
    return root


def test_a_close_goes_on_with_an_index_that_is_being_made_again(without_index: Path) -> None:
    with open_store(without_index, services=False) as store:
        assert store.dispatcher.catch_up.behind
    with open_store(without_index, services=False) as store:
        assert store.recovery.plan.start_reason is StartReason.CLEAN_CLOSE
        assert all(store.index.query("T", f"k{number}", 1).offsets for number in range(1000))


def test_a_store_whose_index_is_not_whole_is_not_closed_cleanly(
    without_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(dispatch, "INDEX_PATIENCE_S", 0)
        open_store(without_index, services=False).close()
    paths = StorePaths(without_index)
    assert paths.abort.exists()
    left = Checkpoint.open(paths.checkpoint, StoreFormat.V4_9, production_seams(), writable=False)
    assert (left.logics_ms, left.index_ms) == (0, 0), "a broker dispatches all of it again"
    left.close()
    with open_store(without_index) as store:
        store.wait_for_index()
        assert bodies(store) == all_bodies(1000)
    assert not paths.abort.exists()


def test_the_log_may_lie_in_another_directory(root: Path, tmp_path: Path) -> None:
    log_directory = tmp_path / "disk2" / "log"
    with open_store(root, store_path_commit_log=str(log_directory)) as store:
        put_some(store, 300)
    assert not (root / "commitlog").exists()
    assert len(list(log_directory.iterdir())) > 1
    with open_store(root) as store:
        assert bodies(store) == all_bodies(300)


def test_existing_files_keep_their_sizes_whatever_is_configured(closed: Path) -> None:
    shutil.rmtree(closed / "mqstore")
    with open_store(closed, StoreConfig(max_hash_slot_num=100, max_index_num=400)) as store:
        assert store.config.mapped_file_size_commit_log == CONFIG.mapped_file_size_commit_log
        assert store.config.queue_file_size == CONFIG.queue_file_size
        assert bodies(store) == all_bodies(1000)
    with open_store(closed, StoreConfig()) as store:
        assert store.config.max_index_num == 400


def test_index_sizes_of_a_brokers_store_are_found_from_its_files(closed: Path) -> None:
    shutil.rmtree(closed / "mqstore")
    with open_store(closed, StoreConfig()) as store:
        assert store.config.max_hash_slot_num == CONFIG.max_hash_slot_num
        assert store.config.max_index_num == CONFIG.max_index_num


@pytest.mark.parametrize("trace", ["abort.bak", "rocksdbstore", "compaction"])
def test_a_store_with_traces_of_5x_is_of_format_5x(root: Path, trace: str) -> None:
    (root / "commitlog").mkdir(parents=True)
    (root / trace).mkdir()
    with open_store(root) as store:
        assert store.format is StoreFormat.V5_X


def test_a_store_with_a_v2_record_is_of_format_5x(root: Path) -> None:
    with open_store(root, format=StoreFormat.V5_X) as store:
        put_some(store, 5)
        put_message(store, message(store, 5, topic="t" * 128))
    shutil.rmtree(root / "mqstore")
    (root / "abort.bak").unlink()
    with open_store(root) as store:
        assert store.format is StoreFormat.V5_X


def test_every_opening_is_a_new_epoch_and_hosts_are_remembered(root: Path) -> None:
    open_store(root, store_host="10.0.0.1:10911").close()
    with open_store(root, store_host="10.0.0.2:10911") as store:
        assert store.epoch == 2
    found = format_file.load(FILES, StorePaths(root))
    assert found is not None
    assert found.store_hosts == ("10.0.0.2:10911", "10.0.0.1:10911")
    conf = (root / "mqstore" / "broker.conf").read_text()
    assert f"storePathRootDir={root}\n" in conf
    assert "mappedFileSizeCommitLog=65536\n" in conf
    assert "listenPort=10911\n" in conf


def test_topics_are_created_listed_and_kept(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("Orders", queues=8)
        with pytest.raises(TopicNameError):
            store.create_topic("../etc")
        with pytest.raises(TopicUnknown):
            store.topic("Unknown")
        put_some(store, 5)
    with open_store(root) as store:
        assert store.topic("Orders").write_queues == 8
        assert [topic.name for topic in store.topics()] == ["Orders", "T"]
        assert store.topic("T").write_queues == 3


def test_status_and_segments_describe_the_open_store(closed: Path) -> None:
    with open_store(closed) as store:
        status = store.status()
        assert (status.health, status.read_only_reason) == ("ready", None)
        assert status.dispatched_offset == status.max_offset == store.log.max_offset
        segments = store.segments()
        assert [s.offset for s in segments] == [n * 65536 for n in range(status.segments)]
        assert segments[-1].used == status.max_offset - segments[-1].offset


def test_an_overlay_shows_the_recovered_store_and_writes_nothing(root: Path) -> None:
    store = open_store(root)
    put_some(store, 500)
    abandon(store)
    before = _fingerprint(root)
    with open_store(root, in_place=False, services=False, create=False) as looked:
        assert bodies(looked) == all_bodies(500)
        with pytest.raises(StoreNotWritable):
            put_message(looked, message(looked, 1))
    assert _fingerprint(root) == before


def test_an_overlay_needs_no_lock(root: Path) -> None:
    with open_store(root) as store:
        put_some(store, 100)
        with open_store(root, in_place=False, services=False, create=False) as looked:
            assert bodies(looked) == all_bodies(100)


def test_an_overlay_does_not_open_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(DirectoryNotUsable):
        open_store(tmp_path, in_place=False, services=False, create=False)
    assert list(tmp_path.iterdir()) == []


def test_recovery_reports_its_progress(root: Path) -> None:
    store = open_store(root)
    put_some(store, 300)
    abandon(store)
    seen: list[str] = []
    open_store(root, on_progress=lambda progress: seen.append(progress.stage)).close()
    assert "log" in seen
    assert "queues" in seen


def test_the_recovered_log_is_reported_before_its_queues_are_completed(root: Path) -> None:
    store = open_store(root)
    put_some(store, 300)
    end = store.log.max_offset
    abandon(store)
    shutil.rmtree(root / "consumequeue")
    seen: list[tuple[RecoveredLog, int]] = []

    def note(found: RecoveredLog) -> None:
        seen.append((found, len(list(root.glob("consumequeue/*/*/*")))))

    with open_store(root, on_log=note) as opened:
        assert bodies(opened) == all_bodies(300)
    ((found, queue_files),) = seen
    assert (found.min_offset, found.dispatched, found.max_offset, queue_files) == (0, 0, end, 0)
    assert [path for path, _, _ in found.segments] == sorted((root / "commitlog").iterdir())


def test_an_opening_that_was_cut_short_behind_its_lock_is_not_taken_for_a_brokers(
    closed: Path,
) -> None:
    FILES.lock(closed / "lock").release()
    with open_store(closed) as store:
        assert store.recovery.plan.start_reason is StartReason.CLEAN_CLOSE


def test_the_lock_keeps_the_time_at_which_a_broker_wrote_it(closed: Path) -> None:
    (closed / "lock").write_bytes(b"lock")
    before = (closed / "lock").stat().st_mtime_ns // 1_000_000
    with open_store(closed) as store:
        assert store.recovery.plan.start_reason is not StartReason.CLEAN_CLOSE
    with open_store(closed) as store:
        assert store.recovery.plan.start_reason is StartReason.CLEAN_CLOSE
    assert (closed / "lock").stat().st_mtime_ns // 1_000_000 == before


def test_the_recovery_report_is_kept_beside_the_store(closed: Path) -> None:
    with open_store(closed) as store:
        kept = (closed / "mqstore" / "recovery.json").read_text()
        assert type(store.recovery).model_validate_json(kept) == store.recovery


def test_a_failed_service_ends_the_store_and_leaves_abort(root: Path) -> None:
    failures: list[BaseException] = []
    store = open_store(root, on_failure=failures.append)
    put_some(store, 3)
    store._parts.failure.report(OSError("the disk is gone"))
    with pytest.raises(StoreNotWritable, match="failed"):
        store.append(message(store, 3))
    store.close()
    assert [str(failure) for failure in failures] == ["the disk is gone"]
    assert (root / "abort").exists()
    assert manifest.load(FILES, StorePaths(root).manifest) is None


def _fingerprint(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}


def test_a_segment_that_was_read_and_expired_gives_its_disk_space_back(root: Path) -> None:
    with open_store(root) as store:
        put_some(store, 1000)
        store.lookups.by_physical_offset(0)
        first = store.log.files.files[0].path
        assert str(first) in Path("/proc/self/maps").read_text()
        assert store.expire(1) == 1
        assert str(first) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("index_num", [400, 4_000])
def test_pages_by_key_go_on_where_the_last_one_ended_over_index_files(
    tmp_path: Path, index_num: int
) -> None:
    """Short chains are read by the kernel in one call, long ones in pieces."""
    config = CONFIG.model_copy(update={"max_index_num": index_num})
    with open_store(tmp_path, config) as store:
        store.create_topic("T")
        keys = properties.encode({"KEYS": "k"}, trailing_separator=True)
        for number in range(900):
            body = b"%d" % number
            sent = Message("T", 0, body, keys, store.host, store.host, 1_700_000_000_000)
            put_message(store, sent, Durability.ASYNC)
        found, page = [], store.lookups.by_key("T", "k", limit=37)
        while page.cursor is not None:
            found += page.records
            page = store.lookups.by_key("T", "k", limit=37, cursor=page.cursor)
        found += page.records
    assert [int(each.body) for each in found] == list(range(899, -1, -1))
