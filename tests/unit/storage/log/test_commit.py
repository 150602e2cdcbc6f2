"""With a TransientStorePool: what is put is in a buffer until the commit has it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqstore.storage.codec.record import Blank
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import OffsetOutOfRange, SegmentCreationFailed, StoreFailed
from mqstore.storage.log.commit import CommitService
from mqstore.storage.log.requests import OffsetRequest
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.mapped.transient_store_pool import TransientStorePool
from mqstore.storage.mapped.warm_up import MemoryLocks
from mqstore.storage.system.posix_files import PosixFileSystem, PosixMapping
from tests.unit.storage.commit_logs import CONFIG, SEGMENT, Opened, message, of_size, open_log
from tests.unit.storage.gated_files import WAIT_S

POOLED = CONFIG.model_copy(
    update={"transient_store_pool_enable": True, "transient_store_pool_size": 3}
)
FAST_FAIL = POOLED.model_copy(update={"fast_fail_if_no_buffer_in_store_pool": True})


class Pooled:
    """A log with a pool, on real files."""

    def __init__(self, root: Path, config: StoreConfig = POOLED) -> None:
        self.pool = TransientStorePool(
            PosixFileSystem(), SEGMENT, config.transient_store_pool_size, MemoryLocks()
        )
        self.opened: Opened = open_log(root, config=config, pool=self.pool)
        self.log = self.opened.log
        commits = self.log.commits
        assert commits is not None
        self.commits: CommitService = commits

    @property
    def files(self) -> MappedFileQueue:
        return self.opened.files

    def fill(self, segments: int) -> None:
        """Put records of which a segment holds one, and a small one besides."""
        for _ in range(segments):
            self.log.append(of_size(SEGMENT - 200))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Pooled]]:
    made: list[Pooled] = []

    def build(config: StoreConfig = POOLED) -> Pooled:
        made.append(Pooled(tmp_path, config))
        return made[-1]

    yield build
    for each in made:
        each.log.close()


@pytest.fixture
def pooled(make: Callable[..., Pooled]) -> Pooled:
    return make()


def test_what_is_put_cannot_be_read_until_it_is_committed(pooled: Pooled) -> None:
    placement = pooled.log.append(message(b"hello"))
    assert pooled.log.max_offset == 0
    assert pooled.opened.marks.max == []
    assert pooled.opened.bytes() == [bytes(SEGMENT)]
    assert pooled.log.select(0, placement.size) is None
    with pytest.raises(OffsetOutOfRange):
        pooled.log.record_at(0)
    pooled.commits.wait(placement.end)
    assert pooled.log.record_at(0).body == b"hello"
    assert pooled.log.max_offset == placement.end == pooled.files.max_offset
    assert pooled.opened.marks.max == [placement.end]


def test_the_file_itself_has_what_was_committed(pooled: Pooled) -> None:
    first = pooled.log.append(message(b"first"))
    pooled.commits.wait(first.end)
    pooled.log.append(message(b"second"))
    path = pooled.files.files[0].path
    assert b"first" in path.read_bytes()
    assert b"second" not in path.read_bytes()


def test_one_commit_serves_all_waiters(pooled: Pooled, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    pwrite = os.pwrite

    def counted(descriptor: int, data: memoryview, offset: int) -> int:
        lengths.append(len(data))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", counted)
    ends = [pooled.log.append(message(b"%d" % number)).end for number in range(20)]
    with ThreadPoolExecutor(4) as threads:
        for waited in [threads.submit(pooled.commits.wait, end) for end in reversed(ends)]:
            waited.result(WAIT_S)
    assert lengths == [ends[-1]]
    assert len(pooled.opened.records()) == 20


def test_a_write_that_the_kernel_cuts_short_is_continued(
    pooled: Pooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def short(descriptor: int, data: memoryview, offset: int) -> int:
        return pwrite(descriptor, data[:7], offset)

    monkeypatch.setattr(os, "pwrite", short)
    pooled.commits.wait(pooled.log.append(message(b"whole")).end)
    assert pooled.log.record_at(0).body == b"whole"


def test_segments_ahead_of_the_commit_join_the_log_in_their_turn(pooled: Pooled) -> None:
    pooled.fill(3)
    assert [file.base_offset for file in pooled.files.files] == [0]
    assert (pooled.log.max_offset, pooled.pool.available) == (0, 0)
    pooled.commits.commit()
    assert [file.base_offset for file in pooled.files.files] == [0, SEGMENT, 2 * SEGMENT]
    assert [file.is_full for file in pooled.files.files] == [True, True, False]
    assert pooled.pool.available == 2
    assert pooled.opened.marks.max == [SEGMENT, 2 * SEGMENT, 3 * SEGMENT - 200]


def test_a_flush_never_counts_what_is_not_committed(pooled: Pooled) -> None:
    pooled.fill(2)
    pooled.log.flush.flush_all()
    assert pooled.log.flushed_offset == 0
    with pytest.raises(ValueError, match="beyond the log's end"):
        pooled.log.flush.request(SEGMENT)
    pooled.commits.commit()
    pooled.log.flush.flush_all()
    assert pooled.log.flushed_offset == 2 * SEGMENT - 200


def test_a_used_buffer_leaves_nothing_in_the_next_segment(make: Callable[..., Pooled]) -> None:
    pooled = make(POOLED.model_copy(update={"transient_store_pool_size": 1}))
    for size in (SEGMENT - 8, SEGMENT - 1000) * 3:
        pooled.log.append(of_size(size))
        pooled.commits.commit()
    pooled.log.append(of_size(SEGMENT - 8))
    pooled.commits.commit()
    blanks = [found for found in pooled.opened.scanned() if isinstance(found, Blank)]
    assert [blank.size for blank in blanks] == [8, 1000, 8, 1000, 8, 1000]
    for blank in blanks:
        file = pooled.files.find(blank.offset)
        assert file is not None
        rest = bytes(file.view[blank.offset - file.base_offset + 8 :])
        assert rest == bytes(blank.size - 8)


def test_without_a_buffer_the_put_commits_what_is_full_and_goes_on(
    make: Callable[..., Pooled],
) -> None:
    pooled = make(POOLED.model_copy(update={"transient_store_pool_size": 1}))
    pooled.fill(1)
    assert (pooled.pool.available, pooled.log.max_offset) == (0, 0)
    pooled.fill(3)
    assert pooled.log.max_offset == 3 * SEGMENT
    pooled.commits.commit()
    assert len(pooled.opened.records()) == 4


def test_without_a_buffer_the_put_is_refused_where_it_is_to_fail_fast(
    make: Callable[..., Pooled],
) -> None:
    pooled = make(FAST_FAIL)
    pooled.fill(3)
    with pytest.raises(SegmentCreationFailed, match="all 3 buffers wait") as refused:
        pooled.fill(1)
    assert refused.value.status == "CREATE_MAPEDFILE_FAILED"
    assert not pooled.files.path_of(3 * SEGMENT).exists()
    small = pooled.log.append(message(b""))
    pooled.commits.wait(small.end)
    pooled.fill(1)
    pooled.commits.commit()
    assert len(pooled.opened.records()) == 5


def test_a_pool_of_one_buffer_that_fails_fast_still_rolls(make: Callable[..., Pooled]) -> None:
    pooled = make(FAST_FAIL.model_copy(update={"transient_store_pool_size": 1}))
    pooled.fill(4)
    pooled.commits.commit()
    assert len(pooled.opened.records()) == 4


def test_the_checkpoint_has_the_time_of_committed_records_only(pooled: Pooled) -> None:
    first = pooled.log.append(message(b"first"))
    pooled.commits.wait(first.end)
    pooled.opened.clock.advance(1.0)
    second = pooled.log.append(message(b"second"))
    assert second.store_timestamp_ms > first.store_timestamp_ms
    assert pooled.commits.last_store_timestamp_ms == first.store_timestamp_ms
    pooled.commits.wait(second.end)
    assert pooled.commits.last_store_timestamp_ms == second.store_timestamp_ms


def refuse(self: PosixMapping, offset: int, data: memoryview) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_bytes_that_the_page_cache_refuses_end_the_store(
    pooled: Pooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pooled.log.append(message(b"kept"))
    pooled.commits.wait(kept.end)
    lost = pooled.log.append(message(b"lost"))
    waiting = pooled.commits.request(lost.end)
    done: list[OffsetRequest] = []
    waiting.add_done_callback(done.append)
    monkeypatch.setattr(PosixMapping, "write", refuse)
    with pytest.raises(StoreFailed, match="took no more of the log"):
        pooled.commits.wait(lost.end)
    monkeypatch.undo()
    assert done == [waiting]
    assert waiting.failed
    with pytest.raises(StoreFailed, match="took no more"):
        pooled.commits.wait(lost.end)
    with pytest.raises(StoreFailed, match="took no more"):
        pooled.log.append(message(b"later"))
    assert pooled.commits.request(lost.end).failed
    assert len(pooled.opened.failures) == 1
    assert pooled.log.max_offset == kept.end


def test_a_request_is_done_once_a_commit_reached_it(pooled: Pooled) -> None:
    first, second = (pooled.log.append(message(body)) for body in (b"first", b"second"))
    requests = [pooled.commits.request(end) for end in (first.end, second.end)]
    done: list[OffsetRequest] = []
    for request in requests:
        request.add_done_callback(done.append)
    assert done == []
    pooled.commits.step(0.0)
    assert done == requests
    assert not any(request.failed for request in requests)
    late = pooled.commits.request(second.end)
    late.add_done_callback(done.append)
    assert done == [*requests, late]


def test_a_request_beyond_what_was_written_is_a_mistake(pooled: Pooled) -> None:
    end = pooled.log.append(message(b"first")).end
    with pytest.raises(ValueError, match="beyond the log's end"):
        pooled.commits.request(end + 1)


def test_a_request_with_a_callback_is_served_in_the_background(pooled: Pooled) -> None:
    committed: list[int] = []
    pooled.commits.start(committed.append)
    end = pooled.log.append(message(b"first")).end
    done = threading.Event()
    pooled.commits.request(end).add_done_callback(lambda _: done.set())
    assert done.wait(WAIT_S)
    assert committed == [end]
    pooled.commits.stop()


def test_few_pages_are_left_until_the_thorough_interval(make: Callable[..., Pooled]) -> None:
    pooled = make(
        POOLED.model_copy(
            update={
                "commit_interval_commit_log": 100,
                "commit_commit_log_thorough_interval": 1000,
            }
        )
    )
    assert pooled.commits.step(0.0) == 0.1
    end = pooled.log.append(message(b"few")).end
    pooled.commits.step(0.999)
    assert pooled.log.max_offset == 0
    pooled.commits.step(1.0)
    assert pooled.log.max_offset == end


def test_enough_pages_are_committed_at_the_next_turn(make: Callable[..., Pooled]) -> None:
    pooled = make(POOLED.model_copy(update={"commit_commit_log_thorough_interval": 10_000}))
    pooled.commits.step(0.0)
    pooled.fill(2)
    pooled.commits.step(0.2)
    assert pooled.log.max_offset == SEGMENT


def test_stopping_commits_what_is_left(pooled: Pooled) -> None:
    pooled.fill(2)
    pooled.commits.stop()
    assert len(pooled.opened.records()) == 2


def test_a_failed_encoding_leaves_nothing(pooled: Pooled) -> None:
    with pytest.raises(Exception, match="cannot be stored"):
        pooled.log.append(message(b"", flag=1 << 40))
    pooled.commits.commit()
    assert pooled.log.max_offset == 0
