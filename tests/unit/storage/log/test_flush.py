"""Flushing and group commit, on real files with a gate before each fdatasync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.errors import FlushTimeout, StoreFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.log import flush
from mqstore.storage.log.flush import FlushService
from mqstore.storage.log.requests import OffsetRequest
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from tests.unit.storage.gated_files import WAIT_S, Marks, gated_seams

SEGMENT = 16 * PAGE_SIZE
ASYNC = StoreConfig()
SYNC = StoreConfig(flush_disk_type=FlushDiskType.SYNC)


class Log:
    """A run of mapped files that is written to without records, and its flush service."""

    def __init__(self, root: Path, config: StoreConfig = ASYNC) -> None:
        seams, self.gate = gated_seams()
        self.marks = Marks()
        self.newest_ms = 0
        self.checkpoints: list[int] = []
        self.failures: list[StoreFailed] = []
        self.files = MappedFileQueue(root / "log", SEGMENT, seams, staging=root / "staging")
        self.files.add(0)
        self.flush = FlushService(
            self.files,
            config,
            seams,
            self.marks,
            last_store_timestamp=lambda: self.newest_ms,
            on_flushed=self.checkpoints.append,
            on_failure=self.failures.append,
        )

    def write(self, size: int) -> int:
        """As an append does; returns the log's end."""
        while size > 0:
            file = self.files.last
            assert file is not None
            if file.is_full:
                file = self.files.add(file.end_offset)
            count = min(size, file.size - file.wrote_position)
            file.view[file.wrote_position : file.wrote_position + count] = b"x" * count
            file.wrote_position += count
            size -= count
        return self.files.max_offset


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    made: list[Log] = []

    def build(config: StoreConfig = ASYNC) -> Log:
        made.append(Log(tmp_path, config))
        return made[-1]

    yield build
    for log in made:
        log.gate.error = None
        log.gate.open()
        if log.flush.failure is None:
            log.flush.stop()
        log.files.close()


@pytest.fixture
def log(make: Callable[..., Log]) -> Log:
    return make()


def in_thread(
    pool: ThreadPoolExecutor, log: Log, offset: int
) -> tuple[OffsetRequest, Future[None]]:
    request = log.flush.request(offset)
    return request, pool.submit(log.flush.wait, request, WAIT_S)


# group commit


def test_what_is_on_disk_already_is_done_at_once(log: Log) -> None:
    assert log.flush.request(0).done


def test_a_waiter_syncs_by_itself_and_the_watermark_follows(log: Log) -> None:
    end = log.write(10)
    request = log.flush.request(end)
    assert not request.done
    log.flush.wait(request)
    assert (request.done, request.failed) == (True, False)
    assert (log.flush.flushed_offset, log.marks.flushed) == (end, [end])


def test_one_sync_serves_all_waiters(log: Log) -> None:
    log.gate.close()
    with ThreadPoolExecutor(4) as pool:
        leading = pool.submit(log.flush.wait, log.flush.request(log.write(10)), WAIT_S)
        assert log.gate.arrived.acquire(timeout=WAIT_S)
        waiting = [log.flush.request(log.write(10)) for _ in range(3)]
        futures = [pool.submit(log.flush.wait, request, WAIT_S) for request in waiting]
        log.gate.open()
        for future in [leading, *futures]:
            future.result(WAIT_S)
    assert len(log.gate.synced) == 2
    assert log.flush.flushed_offset == 40


def test_a_sync_waits_for_those_whom_the_last_one_released(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "GATHER_S", WAIT_S)
    for request in [log.flush.request(log.write(10)) for _ in range(2)]:
        log.flush.wait(request)
    with ThreadPoolExecutor(1) as pool:
        early, leading = in_thread(pool, log, log.write(10))
        late = log.flush.request(log.write(10))
        log.flush.wait(late)
        leading.result(WAIT_S)
    assert (early.done, late.done, len(log.gate.synced)) == (True, True, 2)


def test_a_record_written_during_a_sync_is_not_counted_by_it(log: Log) -> None:
    log.gate.close()
    with ThreadPoolExecutor(1) as pool:
        first = log.flush.request(log.write(10))
        leading = pool.submit(log.flush.wait, first, WAIT_S)
        assert log.gate.arrived.acquire(timeout=WAIT_S)
        late = log.flush.request(log.write(10))
        log.gate.open()
        leading.result(WAIT_S)
    assert (first.done, late.done, log.flush.flushed_offset) == (True, False, 10)


def test_callbacks_are_served_by_the_background_service(log: Log) -> None:
    log.flush.start()
    done = threading.Event()
    seen: list[OffsetRequest] = []
    request = log.flush.request(log.write(10))
    request.add_done_callback(seen.append)
    request.add_done_callback(lambda _: done.set())
    assert done.wait(WAIT_S)
    assert seen == [request]
    request.result()


def test_a_callback_on_a_done_request_comes_at_once(log: Log) -> None:
    seen: list[OffsetRequest] = []
    request = log.flush.request(0)
    request.add_done_callback(seen.append)
    assert seen == [request]


def test_a_callback_that_raises_stops_no_other_callback(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: OffsetRequest) -> None:
        raise RuntimeError("broken")

    seen: list[OffsetRequest] = []
    request = log.flush.request(log.write(10))
    request.add_done_callback(broken)
    request.add_done_callback(seen.append)
    log.flush.wait(request)
    assert seen == [request]
    assert "callback failed" in caplog.text


def test_an_offset_beyond_the_log_is_refused(log: Log) -> None:
    with pytest.raises(ValueError, match="beyond the log's end"):
        log.flush.request(1)


def test_a_request_that_is_not_done_has_no_result(log: Log) -> None:
    with pytest.raises(RuntimeError, match="wait"):
        log.flush.request(log.write(1)).result()


# when the disk is slow, or fails


def test_a_wait_that_timed_out_can_be_repeated(log: Log) -> None:
    log.gate.close()
    with ThreadPoolExecutor(1) as pool:
        leading = pool.submit(log.flush.wait, log.flush.request(log.write(10)), WAIT_S)
        assert log.gate.arrived.acquire(timeout=WAIT_S)
        request = log.flush.request(log.write(10))
        with pytest.raises(FlushTimeout, match="offset 20"):
            log.flush.wait(request, timeout_s=0.01)
        log.gate.open()
        leading.result(WAIT_S)
    log.flush.wait(request, WAIT_S)
    assert request.done


def test_a_failed_sync_fails_every_waiter_now_and_later(log: Log) -> None:
    log.gate.close()
    with ThreadPoolExecutor(3) as pool:
        requests = [log.flush.request(log.write(10)) for _ in range(3)]
        futures = [pool.submit(log.flush.wait, request, WAIT_S) for request in requests]
        assert log.gate.arrived.acquire(timeout=WAIT_S)
        log.gate.error = OSError(5, "Input/output error")
        log.gate.open()
        for future in futures:
            assert isinstance(future.exception(WAIT_S), StoreFailed)
    log.gate.error = None  # the kernel would report success now; it must not count
    later = log.flush.request(log.write(10))
    assert later.failed
    with pytest.raises(StoreFailed):
        log.flush.wait(later)
    with pytest.raises(StoreFailed):
        log.flush.flush_all()
    assert (log.marks.flushed, log.flush.flushed_offset, log.gate.synced) == ([], 0, [])
    assert len(log.failures) == 1


def test_a_failed_sync_in_the_background_ends_the_service(log: Log) -> None:
    log.gate.error = OSError(5, "Input/output error")
    log.flush.start()
    done = threading.Event()
    request = log.flush.request(log.write(10))
    request.add_done_callback(lambda _: done.set())
    assert done.wait(WAIT_S)
    assert request.failed
    assert log.flush.failure is request.error
    assert log.failures == [request.error]


# in the background


def test_few_dirty_pages_wait_for_the_thorough_flush(log: Log) -> None:
    log.flush.step(100.0)
    log.newest_ms = 777
    log.write(3 * PAGE_SIZE)
    assert log.flush.step(100.5) == 101.0
    assert log.gate.synced == []
    log.flush.step(110.0)
    assert (log.flush.flushed_offset, log.checkpoints) == (3 * PAGE_SIZE, [777])


def test_enough_dirty_pages_are_flushed_but_move_no_checkpoint(log: Log) -> None:
    log.flush.step(100.0)
    log.newest_ms = 777
    log.write(4 * PAGE_SIZE)
    log.flush.step(100.5)
    assert (log.flush.flushed_offset, log.checkpoints) == (4 * PAGE_SIZE, [])


def test_sync_flush_leaves_nothing_dirty(make: Callable[..., Log]) -> None:
    log = make(SYNC)
    log.flush.step(100.0)
    log.newest_ms = 777
    end = log.write(1)
    log.flush.step(100.1)
    assert (log.flush.flushed_offset, log.checkpoints) == (end, [777])


def test_a_group_commit_moves_the_checkpoint(log: Log) -> None:
    log.newest_ms = 777
    log.flush.wait(log.flush.request(log.write(1)))
    assert log.checkpoints == [777]


def test_stop_leaves_nothing_dirty(log: Log) -> None:
    log.flush.start()
    end = log.write(5)
    log.flush.stop()
    assert log.flush.flushed_offset == end


def test_the_old_segments_tail_is_synced_before_the_new_one_counts(log: Log) -> None:
    log.write(SEGMENT - 10)
    log.flush.flush_all()
    log.gate.synced.clear()
    end = log.write(30)
    log.flush.wait(log.flush.request(end))
    assert log.gate.synced == [f"{0:020d}", f"{SEGMENT:020d}"]
    assert log.marks.flushed[-1] == end


def test_a_failure_at_the_new_segment_keeps_what_the_old_one_reached(log: Log) -> None:
    log.write(SEGMENT - 10)
    log.flush.flush_all()
    log.write(30)

    def fail_second(name: str) -> None:
        log.gate.synced.append(name)
        if name != f"{0:020d}":
            raise OSError(5, "Input/output error")

    log.gate.pass_through = fail_second  # type: ignore[method-assign]  # the disk of this test
    with pytest.raises(StoreFailed):
        log.flush.flush_all()
    assert log.flush.flushed_offset <= SEGMENT
    assert log.marks.flushed == [SEGMENT - 10]


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "step", "wait"]), st.integers(1, 3 * PAGE_SIZE)),
    max_size=25,
)


@given(STEPS, st.sampled_from([ASYNC, SYNC]))
def test_the_watermark_never_passes_what_was_synced(
    steps: list[tuple[str, int]], config: StoreConfig
) -> None:
    with TemporaryDirectory() as root:
        log = Log(Path(root), config)
        synced: dict[str, int] = {}

        def note(name: str) -> None:
            (file,) = [f for f in log.files.files if f.path.name == name]
            synced[name] = file.wrote_position

        log.gate.pass_through = note  # type: ignore[method-assign]  # the disk of this test
        now = 0.0
        for step, size in steps:
            if step == "write":
                log.write(size)
            elif step == "step":
                now = log.flush.step(now + size / 1000)
            else:
                log.flush.wait(log.flush.request(log.files.max_offset))
                assert log.flush.flushed_offset == log.files.max_offset
            on_disk = 0
            for file in log.files.files:
                on_disk = file.base_offset + synced.get(file.path.name, 0)
                if on_disk < file.end_offset:
                    break
            assert log.flush.flushed_offset <= on_disk
            assert log.marks.flushed == sorted(set(log.marks.flushed))
        log.files.close()
