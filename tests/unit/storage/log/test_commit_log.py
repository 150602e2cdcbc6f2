"""The commit log's write path: placement, rolling, numbering, refusals."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Blank, Message, Record, scan
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    DiskFull,
    FilePending,
    MessageInvalid,
    MessageTooLarge,
    OffsetOutOfRange,
    PageCacheBusy,
    PropertiesTooLong,
    PutRefused,
    RecordExpired,
    SegmentCreationFailed,
    StoreFailed,
    StoreNotWritable,
    TopicTooLong,
)
from mqstore.storage.layout import StoreFormat, SysFlag
from mqstore.storage.log.commit_log import CommitLog, Placement
from mqstore.storage.log.queue_offsets import QueueOffsets
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from tests.simulation import SimulatedMachine
from tests.unit.storage.commit_logs import (
    COMMIT,
    CONFIG,
    FIXED,
    PREPARED,
    ROLLBACK,
    SEGMENT,
    V4,
    V4_HOST,
    V5,
    V6_HOST,
    Opened,
    message,
    of_size,
    open_log,
)
from tests.unit.storage.gated_files import WAIT_S, Marks, gated_seams


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    opened: list[Opened] = []

    def build(*args: object, **options: object) -> Opened:
        opened.append(open_log(tmp_path, *args, **options))  # type: ignore[arg-type]  # as above
        return opened[-1]

    yield build
    for each in opened:
        each.files.close()


@pytest.fixture
def opened(make: Callable[..., Opened]) -> Opened:
    return make()


# placing


def test_a_record_is_what_was_put(opened: Opened) -> None:
    put = message(
        b"hello",
        queue_id=3,
        properties=b"TAGS\x01a\x02KEYS\x01k",
        flag=-7,
        sys_flag=0x2,
        reconsume_times=2,
        prepared_transaction_offset=99,
        born_host=V6_HOST,
    )
    placement = opened.log.append(put)
    record = opened.log.record_at(placement.physical_offset)
    assert (record.topic, record.queue_id, record.body) == ("topic", 3, b"hello")
    assert (record.flag, record.reconsume_times) == (-7, 2)
    assert record.prepared_transaction_offset == 99
    assert record.raw_properties == put.properties
    assert (record.born_host, record.store_host) == (V6_HOST, V4_HOST)
    assert record.sys_flag == 0x2 | SysFlag.BORN_HOST_V6
    assert record.size == placement.size
    assert record.store_timestamp_ms == placement.store_timestamp_ms == opened.clock.now_ms()
    assert record.offset_message_id == placement.offset_message_id


@pytest.mark.parametrize("body", [None, b""])
def test_no_body_and_an_empty_one_are_stored_alike(opened: Opened, body: bytes | None) -> None:
    record = opened.log.record_at(opened.log.append(message(body)).physical_offset)
    assert (record.size, record.body, record.body_crc) == (FIXED, b"", 0)


def test_v6_flags_follow_the_hosts_not_the_caller(opened: Opened) -> None:
    placement = opened.log.append(message(sys_flag=0x30))
    record = opened.log.record_at(placement.physical_offset)
    assert (record.sys_flag, record.size) == (0, FIXED + 4)


def test_a_v6_store_host_makes_a_long_message_id(opened: Opened) -> None:
    placement = opened.log.append(message(store_host=V6_HOST))
    assert len(placement.offset_message_id) == 56


def test_each_queue_is_numbered_by_itself(opened: Opened) -> None:
    put = [("a", 0), ("a", 0), ("a", 1), ("b", 0), ("a", 0)]
    numbers = [opened.log.append(message(topic=t, queue_id=q)).queue_offset for t, q in put]
    assert numbers == [0, 1, 0, 0, 2]


def test_numbering_goes_on_where_the_rebuilt_queues_end(make: Callable[..., Opened]) -> None:
    offsets = QueueOffsets()
    offsets.load([("topic", 0, 427)])
    opened = make(offsets=offsets)
    assert opened.log.append(message()).queue_offset == 427


@pytest.mark.parametrize(("flag", "queued"), [(PREPARED, 0), (COMMIT, 1), (ROLLBACK, 0)])
def test_prepared_and_rollback_stay_out_of_the_queues(
    opened: Opened, flag: int, queued: int
) -> None:
    opened.log.append(message())
    placement = opened.log.append(message(sys_flag=flag))
    assert placement.queue_offset == queued
    assert opened.log.append(message()).queue_offset == 1 + queued


def test_store_time_never_goes_back(make: Callable[..., Opened]) -> None:
    opened = make(last_store_timestamp_ms=1_700_000_000_500)
    times = []
    for step_ms in (0, 400, -10_000, 10_050):
        opened.clock.step(step_ms)
        times.append(opened.log.append(message()).store_timestamp_ms - 1_700_000_000_000)
    assert times == [500, 500, 500, 500]
    opened.clock.step(100)
    assert opened.log.append(message()).store_timestamp_ms == 1_700_000_000_550
    assert opened.log.last_store_timestamp_ms == 1_700_000_000_550


def test_the_end_is_published_after_each_record(opened: Opened) -> None:
    ends = [opened.log.append(message()).end for _ in range(3)]
    assert opened.marks.max == ends
    assert opened.log.max_offset == ends[-1]


def test_5_x_stores_a_long_topic_as_v2(make: Callable[..., Opened]) -> None:
    opened = make(V5)
    placement = opened.log.append(message(topic="t" * 128))
    record = opened.log.record_at(placement.physical_offset)
    assert (record.version, record.topic, record.size) == (2, "t" * 128, 92 + 128 + 4)


# rolling


def test_a_record_may_leave_exactly_the_reserve(opened: Opened) -> None:
    opened.log.append(of_size(SEGMENT - 8))
    opened.log.append(message())
    assert opened.scanned()[1] == Blank(SEGMENT - 8, 8)
    assert opened.bytes()[0][-8:] == bytes.fromhex("00000008cbd43194")


def test_a_record_that_would_leave_less_goes_to_the_next_segment(opened: Opened) -> None:
    opened.log.append(of_size(200))
    placement = opened.log.append(of_size(SEGMENT - 200 - 7))
    assert placement.physical_offset == SEGMENT
    assert opened.scanned()[1] == Blank(200, SEGMENT - 200)
    first = opened.bytes()[0]
    assert first[200:208] == (SEGMENT - 200).to_bytes(4) + bytes.fromhex("cbd43194")
    assert first[208:] == bytes(SEGMENT - 208)
    assert [file.wrote_position for file in opened.files.files] == [SEGMENT, SEGMENT - 207]


def test_a_batch_that_does_not_fit_goes_to_the_next_segment_whole(opened: Opened) -> None:
    opened.log.append(of_size(SEGMENT - 1000))
    placements = opened.log.put(
        opened.log.encode([of_size(400), of_size(400), of_size(193)], as_batch=True)
    )
    assert [p.physical_offset for p in placements] == [SEGMENT, SEGMENT + 400, SEGMENT + 800]
    assert [p.queue_offset for p in placements] == [1, 2, 3]


@pytest.mark.parametrize("end", [0, 100, SEGMENT * 64 - 50])
def test_a_brokers_sparse_segment_gets_its_blocks_before_bytes(end: int) -> None:
    machine = SimulatedMachine(1)
    directory, size = Path("/store/commitlog"), SEGMENT * 64
    machine.disk.make_directories(directory)
    machine.disk.create(directory / f"{0:020d}", size, reserve=0)
    files = MappedFileQueue(directory, size, machine.seams, staging=Path("/store/staging"))
    files.load()
    files.files[0].set_end(end)
    config = StoreConfig(mapped_file_size_commit_log=size)
    log = CommitLog(files, config, V4, machine.seams, Marks())
    assert log.append(message()).physical_offset == (end if end < 1000 else size)
    assert log.put(log.encode([message(b"x" * 60_000)] * 3, as_batch=True))[-1].size > 60_000
    log.flush.flush_all()
    assert machine.disk.holes_written == []


def test_a_sparse_segment_on_a_full_disk_refuses_instead_of_dying() -> None:
    machine = SimulatedMachine(1)
    directory = Path("/store/commitlog")
    machine.disk.make_directories(directory)
    machine.disk.create(directory / f"{0:020d}", SEGMENT, reserve=0)
    files = MappedFileQueue(directory, SEGMENT, machine.seams, staging=Path("/store/staging"))
    files.load()
    files.files[0].set_end(0)
    log = CommitLog(files, CONFIG, V4, machine.seams, Marks())
    machine.disk.fail_next("reserve", errno.ENOSPC)
    with pytest.raises(SegmentCreationFailed, match="No space left"):
        log.append(message())
    assert log.append(message()).physical_offset == 0


def test_a_last_record_that_left_no_reserve_does_not_stop_the_log(opened: Opened) -> None:
    files = opened.files
    files.add(0).set_end(SEGMENT - 3)
    log = CommitLog(files, CONFIG, V4, gated_seams()[0], Marks())
    assert log.append(message()).physical_offset == SEGMENT


# batches and runs


def test_a_batch_is_contiguous_and_shares_its_time(opened: Opened) -> None:
    opened.log.append(message())
    bodies = [b"a", b"", b"ccc"]
    placements = opened.log.put(
        opened.log.encode([message(body) for body in bodies], as_batch=True)
    )
    assert [p.queue_offset for p in placements] == [1, 2, 3]
    assert len({p.store_timestamp_ms for p in placements}) == 1
    assert [r.body for r in opened.records()[1:]] == bodies
    assert all(a.end == b.physical_offset for a, b in itertools.pairwise(placements))
    assert opened.marks.max == [FIXED + 4, placements[-1].end]


def test_a_run_may_mix_topics_and_transaction_types(opened: Opened) -> None:
    run = [
        message(topic="a"),
        message(topic="b", queue_id=2),
        message(topic="a", sys_flag=ROLLBACK),
        message(topic="a", sys_flag=COMMIT),
    ]
    assert [p.queue_offset for p in opened.log.put(opened.log.encode(run))] == [0, 0, 0, 1]
    assert opened.log.offsets.as_dict() == {("a", 0): 2, ("b", 2): 1}


def test_a_batch_ignores_multi_dispatch_as_rocketmq_does(make: Callable[..., Opened]) -> None:
    config = CONFIG.model_copy(update={"enable_multi_dispatch": True, "enable_lmq": True})
    opened = make(V4, config)
    put = message(properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a")
    opened.log.put(opened.log.encode([put], as_batch=True))
    assert opened.records()[0].raw_properties == put.properties


# multi-dispatch


@pytest.mark.parametrize("store_format", [V4, V5])
def test_multi_dispatch_numbers_every_queue(
    make: Callable[..., Opened], store_format: StoreFormat
) -> None:
    config = CONFIG.model_copy(update={"enable_multi_dispatch": True, "enable_lmq": True})
    opened = make(store_format, config)
    put = message(properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b")
    opened.log.append(put)
    opened.log.append(message(properties=b"INNER_MULTI_DISPATCH\x01%LMQ%b"))
    opened.log.append(put.replace(sys_flag=PREPARED))
    opened.log.append(put)
    found = [properties.decode(r.raw_properties) for r in opened.records()]
    assert [f["INNER_MULTI_QUEUE_OFFSET"] for f in found] == ["0,0", "1", "1,2", "1,2"]
    assert opened.log.offsets.next("topic", 0) == 3


def test_a_queue_that_a_message_dispatches_to_itself_counts_once(
    make: Callable[..., Opened],
) -> None:
    opened = make(V4, CONFIG.model_copy(update={"enable_multi_dispatch": True}))
    put = message(properties=b"INNER_MULTI_DISPATCH\x01topic,other")
    assert [opened.log.append(put).queue_offset for _ in range(3)] == [0, 1, 2]
    assert opened.log.offsets.next("other", 0) == 3


def test_offsets_that_make_properties_too_long_are_refused(make: Callable[..., Opened]) -> None:
    config = StoreConfig(enable_multi_dispatch=True, mapped_file_size_commit_log=1 << 17)
    opened = make(V4, config)
    filler = b"x" * (32767 - 40)
    put = message(properties=b"INNER_MULTI_DISPATCH\x01other\x02k\x01" + filler)
    with pytest.raises(PropertiesTooLong):
        opened.log.append(put)
    assert opened.scanned() == []
    assert opened.log.offsets.as_dict() == {}


# reading


def test_select_gives_written_bytes_only(opened: Opened) -> None:
    placement = opened.log.append(message())
    view = opened.log.select(0, placement.size)
    assert view is not None
    assert view.readonly
    assert opened.log.select(0, placement.size + 1) is None
    assert opened.log.select(SEGMENT, 1) is None
    assert opened.log.view_from(SEGMENT) is None


def test_reading_beyond_the_bounds_is_named(opened: Opened) -> None:
    opened.log.append(of_size(SEGMENT - 8))
    end = opened.log.append(message()).end
    with pytest.raises(OffsetOutOfRange):
        opened.log.record_at(end)
    assert opened.log.remove_first(1) == 1
    with pytest.raises(RecordExpired):
        opened.log.record_at(0)
    assert opened.log.min_offset == SEGMENT


def test_the_minimum_is_published_before_segments_go_and_the_last_stays(opened: Opened) -> None:
    for _ in range(3):
        opened.log.append(of_size(SEGMENT - 8))
    with opened.files.files[0].hold():
        assert opened.log.remove_first(1) == 0
    assert opened.log.remove_first(99) == 2
    assert opened.log.remove_first(99) == 0
    assert opened.marks.min == [SEGMENT, 2 * SEGMENT]
    assert len(opened.files.files) == 1


# refusing

REFUSED: Sequence[tuple[Message, type[PutRefused]]] = [
    (of_size(SEGMENT - 7), MessageTooLarge),
    (message(b"x" * 65537), MessageTooLarge),
    (message(properties=b"k\x01" + b"v" * 32766), PropertiesTooLong),
    (message(topic="t" * 128), TopicTooLong),
    (message(topic="é" * 64), TopicTooLong),
    (message(topic=""), MessageInvalid),
    (message(queue_id=-1), MessageInvalid),
    (message(queue_id=2**31), MessageInvalid),
    (message(flag=2**31), MessageInvalid),
    (message(born_timestamp_ms=2**63), MessageInvalid),
]


@pytest.mark.parametrize(("put", "error"), REFUSED)
@pytest.mark.parametrize("batch", [False, True])
def test_a_refusal_writes_nothing(
    opened: Opened, put: Message, error: type[PutRefused], batch: bool
) -> None:
    opened.log.append(message())
    before = opened.bytes(), opened.log.max_offset, opened.log.offsets.as_dict()
    with pytest.raises(error):
        opened.log.put(opened.log.encode([put], as_batch=True)) if batch else opened.log.append(put)
    assert (opened.bytes(), opened.log.max_offset, opened.log.offsets.as_dict()) == before
    assert opened.log.append(message()).queue_offset == 1


def test_a_batch_that_fits_no_segment_is_refused_whole(opened: Opened) -> None:
    with pytest.raises(MessageTooLarge, match="fit no segment"):
        opened.log.put(opened.log.encode([of_size(SEGMENT // 2)] * 2, as_batch=True))
    assert opened.files.files == ()


def test_a_pause_says_why_with_its_numbers_and_ends(opened: Opened) -> None:
    opened.log.pause_puts(DiskFull("disk is 91 % full; free some space", {"usedPercent": 91}))
    with pytest.raises(DiskFull, match="91 %") as refused:
        opened.log.append(message())
    assert (refused.value.reason, refused.value.numbers) == ("disk-full", {"usedPercent": 91})
    opened.log.resume_puts()
    opened.log.append(message())


def test_what_is_refused_for_good_is_not_taken_again_when_the_disk_has_room(opened: Opened) -> None:
    opened.log.refuse_puts("closing", "the store is closing")
    opened.log.pause_puts(DiskFull("full", {}))
    opened.log.resume_puts()
    with pytest.raises(StoreNotWritable) as refused:
        opened.log.append(message())
    assert refused.value.reason == "closing"


def test_after_a_failed_sync_nothing_is_put_any_more(opened: Opened) -> None:
    opened.gate.error = OSError(5, "Input/output error")
    placement = opened.log.append(message())
    with pytest.raises(StoreFailed):
        opened.log.flush.wait(opened.log.flush.request(placement.end))
    opened.log.resume_puts()
    with pytest.raises(StoreFailed):
        opened.log.append(message())
    assert len(opened.failures) == 1


class HeldUpSegments:
    """Makes segments only after ``may_go_on`` is set."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.may_go_on = threading.Event()
        self.error: Exception | None = None
        self.queue: MappedFileQueue | None = None

    def request(self, queue: MappedFileQueue, offset: int, next_offset: int | None) -> None:
        assert next_offset == offset + queue.file_size
        self.queue = queue

    def has(self, offset: int) -> bool:
        return False

    def retry(self, queue: MappedFileQueue, offset: int) -> bool:
        return self.may_go_on.is_set()

    def is_settled(self, offset: int) -> bool:
        return self.may_go_on.is_set()

    def wait(self, offset: int, timeout_s: float) -> None:
        self.requested.set()
        assert self.may_go_on.wait(WAIT_S)

    def take(self, offset: int, timeout_s: float) -> MappedFile:
        self.requested.set()
        assert self.may_go_on.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        assert self.queue is not None
        return self.queue.create(offset)

    def populate(self, queue: MappedFileQueue) -> None: ...

    def unlock(self, file: MappedFile) -> None: ...


def test_puts_are_refused_while_one_waits_too_long_for_a_segment(
    make: Callable[..., Opened],
) -> None:
    segments = HeldUpSegments()
    opened = make(allocation=segments)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(opened.log.append, message())
        assert segments.requested.wait(WAIT_S)
        opened.clock.advance(1.001)
        with pytest.raises(PageCacheBusy, match="1001 ms"):
            opened.log.append(message())
        segments.may_go_on.set()
        assert slow.result(WAIT_S).physical_offset == 0
    opened.log.append(message())


def test_a_log_whose_puts_do_not_wait_goes_on_below_the_segment_that_is_not_made(
    make: Callable[..., Opened],
) -> None:
    segments = HeldUpSegments()
    segments.may_go_on.set()
    opened = make(allocation=segments, waits=False)
    opened.log.append(message())
    segments.may_go_on.clear()
    large = of_size(SEGMENT - 8)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(FilePending) as caught:
            opened.log.append(large)
        waiting = pool.submit(caught.value.make)
        assert segments.requested.wait(WAIT_S)
        small = opened.log.append(message())
        opened.clock.advance(1.001)
        with pytest.raises(PageCacheBusy, match="1001 ms"):
            opened.log.append(large)
        assert opened.log.append(message()).physical_offset == small.end
        segments.may_go_on.set()
        waiting.result(WAIT_S)
    assert opened.log.next_segment.waiting_ms == 0
    assert opened.log.append(large).physical_offset == SEGMENT


def test_refuse_puts_returns_when_no_put_is_under_way(make: Callable[..., Opened]) -> None:
    segments = HeldUpSegments()
    opened = make(allocation=segments)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(opened.log.append, message())
        assert segments.requested.wait(WAIT_S)
        refusing = pool.submit(opened.log.refuse_puts, "closing", "the store is closing")
        assert not refusing.done()
        segments.may_go_on.set()
        refusing.result(WAIT_S)
        slow.result(WAIT_S)
    end = opened.log.max_offset
    with pytest.raises(StoreNotWritable):
        opened.log.append(message())
    assert opened.log.max_offset == end


class PuttingSegments(HeldUpSegments):
    """Puts while a put waits for it, as a service of a simulated machine may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on.set()
        self.put: Callable[[], Placement] | None = None

    def take(self, offset: int, timeout_s: float) -> MappedFile:
        assert self.put is not None
        with pytest.raises(PageCacheBusy, match="of this thread"):
            self.put()
        return super().take(offset, timeout_s)


def test_a_put_inside_the_wait_of_another_is_refused(make: Callable[..., Opened]) -> None:
    segments = PuttingSegments()
    opened = make(allocation=segments)
    segments.put = lambda: opened.log.append(message())
    opened.log.append(message())
    assert opened.log.append(message()).queue_offset == 1


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SegmentCreationFailed("too slow")]
)
def test_a_segment_that_cannot_be_made_refuses_the_put_and_the_next_may_succeed(
    make: Callable[..., Opened], error: Exception
) -> None:
    segments = HeldUpSegments()
    segments.may_go_on.set()
    opened = make(allocation=segments)
    opened.log.append(of_size(SEGMENT - 8))
    before = opened.bytes()
    segments.error = error
    for _ in range(2):
        with pytest.raises(SegmentCreationFailed):
            opened.log.append(message())
    assert (opened.log.max_offset, opened.bytes()) == (SEGMENT - 8, before)
    segments.error = None
    assert opened.log.append(message()).physical_offset == SEGMENT
    assert opened.scanned()[1] == Blank(SEGMENT - 8, 8)


# many threads


def test_threads_never_see_half_a_record(make: Callable[..., Opened]) -> None:
    opened = make(V4, StoreConfig(mapped_file_size_commit_log=1 << 16))
    stop = threading.Event()

    def read() -> int:
        read = 0
        while not stop.is_set():
            for file in opened.files.files:
                end = file.wrote_position
                for found in scan(file.view, 0, end, file.base_offset):
                    assert isinstance(found, Record | Blank), found
                    read += 1
        return read

    def put(topic: str) -> list[Placement]:
        return [opened.log.append(message(b"x" * (n % 700), topic=topic)) for n in range(300)]

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(read)
        placed = [future.result(WAIT_S) for future in [pool.submit(put, t) for t in "abc"]]
        stop.set()
        reader.result(WAIT_S)
    for placements in placed:
        assert [p.queue_offset for p in placements] == list(range(300))
    times = [record.store_timestamp_ms for record in opened.records()]
    assert times == sorted(times)
    assert len(times) == 900
