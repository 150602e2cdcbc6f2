"""The one put of the kernel, beside its slow model."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import (
    DispatchEnd,
    EncodedBatch,
    FilePositions,
    IndexWindow,
    LogEnd,
    Placement,
    QueueWindow,
    Reason,
    StateWords,
    load_u32,
    load_u64,
)
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.layout import SysFlag
from tests.simulation.clock import SimulatedClock
from tests.unit.storage import kernel_model as model
from tests.unit.storage.record_examples import TIME, messages, ordinary, plain_messages

MAX_AT, DISPATCHED_AT, ARRIVALS_AT = 0, 8, 16


@dataclass
class Kernel:
    """The kernel's side of a model, on copies of its bytes."""

    case: model.PutModel
    clock: SimulatedClock = field(default_factory=lambda: SimulatedClock(TIME))
    page: memoryview = field(default_factory=lambda: memoryview(bytearray(24)))
    dispatch: DispatchEnd = field(default_factory=DispatchEnd)
    segment: FilePositions = field(default_factory=FilePositions)

    def __post_init__(self) -> None:
        case = self.case
        self.log = bytearray(case.log)
        self.next_offsets = dict(case.next_offsets)
        self.queue_files = {key: bytearray(q.data or b"") for key, q in case.queues.items()}
        self.windows = {key: self._window(key) for key in case.queues}
        self.index_file = bytearray((case.index and case.index.data) or b"")
        self.dispatch.position = case.max_offset
        self.dispatch.is_idle = True
        self.dispatch.follow(
            {(key[:-4].decode(), int.from_bytes(key[-4:])): w for key, w in self.windows.items()},
            self._index_window(),
            case.index_tags,
            case.skip_index_below,
        )
        self.segment.wrote_position = case.position
        self.segment.populate_at = 1 << 40
        self.end = LogEnd(self.next_offsets, case.body_max, self.clock)
        self.end.position, self.end.room_end = case.position, case.room_end
        self.end.max_offset, self.end.last_store_timestamp_ms = case.max_offset, case.newest_ms
        self.end.attach(self.segment, memoryview(self.log))
        self.end.publish_to(
            StateWords(self.page, MAX_AT, DISPATCHED_AT, ARRIVALS_AT), self.dispatch
        )

    def _window(self, key: bytes) -> QueueWindow:
        queue, window = self.case.queues[key], QueueWindow()
        if queue.data is not None:
            window.attach(memoryview(self.queue_files[key]), queue.first_index, queue.entries)
        window.next_index = queue.next_index
        return window

    def _index_window(self) -> IndexWindow | None:
        index = self.case.index
        if index is None:
            return None
        window = IndexWindow()
        if index.data is not None:
            window.attach(memoryview(self.index_file), index.slots, index.index_num)
        return window

    @property
    def published(self) -> tuple[int, int, int]:
        """Max, dispatched, and how many arrivals."""
        words = [load_u64(self.page, at) for at in (MAX_AT, DISPATCHED_AT)]
        return words[0], words[1], load_u32(self.page, ARRIVALS_AT)

    def agree(self) -> None:
        """Every byte and position is the model's."""
        case = self.case
        assert self.log == case.log
        assert self.next_offsets == case.next_offsets
        assert {k: w.next_index for k, w in self.windows.items()} == {
            k: q.next_index for k, q in case.queues.items()
        }
        assert self.queue_files == {k: q.data or b"" for k, q in case.queues.items()}
        assert self.index_file == ((case.index and case.index.data) or b"")
        assert (self.end.position, self.end.max_offset) == (case.position, case.max_offset)
        assert self.end.last_store_timestamp_ms == case.newest_ms
        assert self.dispatch.position == case.max_offset
        assert self.segment.wrote_position == case.position


def roomy(body_max: int = 1000, **queues: int) -> model.PutModel:
    """Room for all, and queues of a topic each at these offsets."""
    return model.PutModel(
        log=bytearray(100_000),
        position=5,
        room_end=99_000,
        max_offset=7000,
        newest_ms=0,
        body_max=body_max,
        next_offsets={(topic, 0): number for topic, number in queues.items()},
        queues={
            topic.encode() + bytes(4): model.QueueModel(bytearray(20 * 50), 0, 50, number)
            for topic, number in queues.items()
        },
        index=model.IndexModel(bytearray(40 + 4 * 7 + 20 * 60), 7, 60),
        index_tags=True,
        skip_index_below=0,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[model.PutModel, list[Message]]:
    maker = st.one_of(plain_messages(), plain_messages(), plain_messages(), messages())
    puts = draw(st.lists(maker, min_size=1, max_size=8))
    for message in puts:
        message.sys_flag &= ~draw(st.sampled_from([0, int(SysFlag.TRANSACTION_PREPARED)]))
        if draw(st.integers(0, 9)) == 0:
            message.properties += draw(st.sampled_from([b"\x02DELAY\x013", b"\x02DELAY\x01"]))
    case = roomy(body_max=draw(st.sampled_from([1000, 100, 5])))
    for message in puts:
        if message.topic.isascii() and message.queue_id >= 0 and draw(st.integers(0, 9)):
            key = message.topic.encode() + message.queue_id.to_bytes(4)
            first, entries = draw(st.sampled_from([(0, 50), (0, 50), (2, 3), (0, 2)]))
            file = bytearray(20 * entries) if draw(st.integers(0, 9)) else None
            number = draw(st.sampled_from([first, first, 1]))
            case.queues[key] = model.QueueModel(file, first, entries, number)
            if draw(st.integers(0, 9)):
                case.next_offsets[message.topic, message.queue_id] = number
    case.room_end = draw(st.sampled_from([99_000, 99_000, 99_000, 600, 5]))
    case.newest_ms = draw(st.sampled_from([0, TIME - 5, TIME + 5]))
    case.index_tags = draw(st.booleans())
    case.skip_index_below = draw(st.sampled_from([0, 0, 0, 7300]))
    slots, items = draw(st.tuples(st.integers(1, 4), st.sampled_from([60, 60, 5, 1])))
    file = bytearray(40 + 4 * slots + 20 * items)
    case.index = draw(
        st.sampled_from(
            [None, model.IndexModel(file, slots, items), model.IndexModel(None, slots, items)]
        )
    )
    return case, puts


@given(cases())
def test_a_put_is_the_models_record_entry_and_items_or_nothing_at_all(
    drawn: tuple[model.PutModel, list[Message]],
) -> None:
    case, puts = drawn
    kernel, placed = Kernel(case), 0
    for number, message in enumerate(puts):
        expected = case.put(message, TIME + number)
        kernel.clock.step(1 if number else 0)
        got = kernel.end.put_message(message)
        if expected is None:
            assert isinstance(got, Reason)
        else:
            placed += 1
            offset, size, queue_offset, time = expected
            host = message.store_host
            assert got == Placement(offset, size, message.queue_id, queue_offset, time, host)
        kernel.agree()
    assert kernel.published == ((case.max_offset, case.max_offset, placed) if placed else (0, 0, 0))
    assert kernel.dispatch.records == placed


@given(cases())
def test_a_batch_is_the_models_records_or_nothing_at_all(
    drawn: tuple[model.PutModel, list[Message]],
) -> None:
    case, puts = drawn
    if case.index is not None and case.index.data is not None:
        case.index = model.IndexModel(bytearray(40 + 4 * 7 + 20 * 600), 7, 600)
    case.skip_index_below = 0
    kernel, whole = Kernel(case), deepcopy(case)
    expected = [whole.put(message, TIME) for message in puts]
    batch = kernel.end.encode(puts)
    got = kernel.end.put(batch) if isinstance(batch, EncodedBatch) else batch
    if isinstance(got, Reason):
        assert None in expected
    else:
        assert None not in expected
        kernel.case = whole
        assert [
            (each.physical_offset, each.size, each.queue_offset, each.store_timestamp_ms)
            for each in got
        ] == expected
        assert kernel.published == (whole.max_offset, whole.max_offset, 1)
    kernel.agree()


@given(st.lists(messages(), min_size=1, max_size=6), st.booleans())
def test_with_the_put_lock_all_that_fits_is_stored(puts: list[Message], is_pooled: bool) -> None:
    case = roomy(T=3)
    kernel = Kernel(case)
    kernel.end.attach(kernel.segment, memoryview(kernel.log), is_pooled)
    kernel.end.refused, kernel.end.holders = True, 1
    kernel.next_offsets.clear()
    versions = [2 if len(message.topic.encode()) > 127 else 1 for message in puts]
    batch = kernel.end.encode(puts, False, versions)
    assert isinstance(batch, EncodedBatch)
    if batch.counts:
        assert kernel.end.put(batch, True) is Reason.NEEDS_QUEUE
    kernel.next_offsets.update(dict.fromkeys(batch.counts, 9))
    numbers, expected = dict.fromkeys(batch.counts, 9), b""
    for message, version in zip(puts, versions, strict=True):
        queue, number = (message.topic, message.queue_id), 0
        if queue in numbers and message.sys_flag & 0xC in (0, 8):
            number, numbers[queue] = numbers[queue], numbers[queue] + 1
        expected += model.encode(message, version, number, 7000 + len(expected), TIME)
    placements = kernel.end.put(batch, True)
    assert isinstance(placements, list)
    assert len(expected) == batch.size == placements[-1].end - 7000
    assert kernel.log[5 : 5 + len(expected)] == expected
    assert not any(kernel.log[5 + len(expected) :])
    assert kernel.next_offsets == numbers
    assert kernel.end.max_offset == 7000 + len(expected)
    wrote, published = (5, 0) if is_pooled else (5 + len(expected), 7000 + len(expected))
    assert kernel.segment.wrote_position == wrote
    assert kernel.published[0] == published


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "unknown"}, Reason.NEEDS_QUEUE),
        ({"topic": "t" * 128}, Reason.NEEDS_CHECK),
        ({"topic": "\ud800"}, Reason.NEEDS_CHECK),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Reason.NEEDS_DISPATCH),
        ({"topic": None}, Reason.NEEDS_CHECK),
        ({"queue_id": -1}, Reason.NEEDS_CHECK),
        ({"queue_id": 2**31}, Reason.NEEDS_CHECK),
        ({"properties": b"no separator"}, Reason.NEEDS_CHECK),
        ({"properties": b"a\x01\0"}, Reason.NEEDS_CHECK),
        ({"properties": b"a\x01" + b"b" * 32766}, Reason.NEEDS_CHECK),
        ({"properties": b"DELAY\x011"}, Reason.NEEDS_DELAY),
        ({"properties": b"INNER_MULTI_DISPATCH\x01%LMQ%a"}, Reason.NEEDS_DISPATCH),
        ({"properties": None}, Reason.NEEDS_CHECK),
        ({"body": bytes(2000)}, Reason.NEEDS_CHECK),
        ({"body": "text"}, Reason.NEEDS_CHECK),
        ({"sys_flag": SysFlag.TRANSACTION_PREPARED}, Reason.NEEDS_DISPATCH),
        ({"sys_flag": SysFlag.TRANSACTION_ROLLBACK}, Reason.NEEDS_DISPATCH),
        ({"sys_flag": SysFlag.INNER_BATCH}, Reason.NEEDS_DISPATCH),
        ({"store_host": Host(b"1234", 65536)}, Reason.NEEDS_CHECK),
        ({"born_host": "127.0.0.1"}, Reason.NEEDS_CHECK),
    ],
)
def test_a_reason_names_what_is_missing(fields: dict[str, object], reason: Reason) -> None:
    odd = ordinary()
    for name, value in fields.items():
        setattr(odd, name, value)
    case = roomy(T=5, SCHEDULE_TOPIC_XXXX=5)
    kernel = Kernel(case)
    assert kernel.end.put_message(odd) is reason
    both = kernel.end.encode([ordinary(), odd])
    if reason is not Reason.NEEDS_DELAY:
        assert (kernel.end.put(both) if isinstance(both, EncodedBatch) else both) is reason
    kernel.agree()
    assert not isinstance(kernel.end.put_message(ordinary()), Reason)


@pytest.mark.parametrize(
    "fields", [{"topic": "U"}, {"queue_id": 1}, {"sys_flag": 4}, {"sys_flag": 8}]
)
def test_a_batch_is_of_one_queue_without_transaction_types(fields: dict[str, object]) -> None:
    kernel = Kernel(roomy(T=5))
    puts = [ordinary(), ordinary().replace(**fields)]
    assert kernel.end.encode(puts, True) is Reason.NEEDS_CHECK
    assert isinstance(kernel.end.encode(puts), EncodedBatch)
    assert kernel.end.encode([], True) is Reason.NEEDS_CHECK


def test_a_batch_has_one_limit_for_all_of_its_messages() -> None:
    kernel = Kernel(roomy(body_max=300, T=5))
    puts = [ordinary(body=bytes(100), properties=b"")] * 2
    assert isinstance(kernel.end.encode(puts, True), EncodedBatch)
    assert kernel.end.encode([*puts, puts[0]], True) is Reason.NEEDS_CHECK


def test_a_body_that_is_copied_without_the_gil_needs_the_lock() -> None:
    kernel = Kernel(roomy(body_max=1 << 20, T=0))
    assert kernel.end.put_message(ordinary(body=bytes(65536))) is Reason.NEEDS_LOCK
    assert not isinstance(kernel.end.put_message(ordinary(body=bytes(65535))), Reason)


def refuse(kernel: Kernel) -> None:
    kernel.end.refused = True


def hold(kernel: Kernel) -> None:
    kernel.end.holders += 1


def dispatch(kernel: Kernel) -> None:
    kernel.dispatch.is_idle = False


def fall_behind(kernel: Kernel) -> None:
    kernel.dispatch.position -= 1


def detach(kernel: Kernel) -> None:
    kernel.end.attach(None, None)


def overstate_room(kernel: Kernel) -> None:
    kernel.end.room_end = len(kernel.log) + 1


def misplace(kernel: Kernel) -> None:
    kernel.end.position = -1


def set_back(kernel: Kernel) -> None:
    kernel.end.clock_low_ms = kernel.clock.now_ms() + 1


def set_forward(kernel: Kernel) -> None:
    kernel.end.clock_high_ms = kernel.clock.now_ms() - 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *((change, Reason.NEEDS_LOCK) for change in (refuse, hold)),
        *((change, Reason.NEEDS_DISPATCH) for change in (dispatch, fall_behind)),
        *((change, Reason.NEEDS_ROOM) for change in (detach, overstate_room, misplace)),
        *((change, Reason.NEEDS_CLOCK) for change in (set_back, set_forward)),
    ],
)
def test_nothing_is_put_while_it_may_not_be_whole(
    change: Callable[[Kernel], None], reason: Reason
) -> None:
    kernel = Kernel(roomy(T=0))
    change(kernel)
    assert kernel.end.put_message(ordinary()) is reason
    assert kernel.published == (0, 0, 0)
    assert not any(kernel.log)
    assert kernel.next_offsets == {("T", 0): 0}


def test_a_log_end_without_a_place_to_publish_puts_nothing() -> None:
    end = LogEnd({("T", 0): 0}, 1000, SimulatedClock(TIME))
    end.attach(FilePositions(), memoryview(bytearray(1000)))
    end.room_end = 1000
    assert end.put_message(ordinary()) is Reason.NEEDS_DISPATCH


def test_on_populate_is_called_after_the_put_is_published() -> None:
    kernel = Kernel(roomy(T=0))
    calls: list[tuple[int, int, int]] = []
    kernel.end.on_populate = lambda: calls.append(kernel.published)
    kernel.segment.populate_at = 200
    ends = []
    for _ in range(3):
        placed = kernel.end.put_message(ordinary())
        assert isinstance(placed, Placement)
        ends.append(placed.end)
    assert calls == [(end, end, 2 + number) for number, end in enumerate(ends[1:])]


def test_the_log_is_let_go_when_it_is_detached() -> None:
    kernel = Kernel(roomy(T=0))
    with pytest.raises(BufferError):
        kernel.log.append(0)
    kernel.end.attach(None, None)
    kernel.log.append(0)
