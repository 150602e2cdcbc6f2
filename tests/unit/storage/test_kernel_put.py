"""A whole put in one call of the kernel, beside its slow model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import (
    DispatchEnd,
    FilePositions,
    IndexWindow,
    LogEnd,
    Placement,
    QueueWindow,
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
        got = kernel.end.put(message)
        if expected is None:
            assert got is None
        else:
            placed += 1
            offset, size, queue_offset, time = expected
            host = message.store_host
            assert got == Placement(offset, size, message.queue_id, queue_offset, time, host)
        kernel.agree()
    assert kernel.published == ((case.max_offset, case.max_offset, placed) if placed else (0, 0, 0))
    assert kernel.dispatch.records == placed


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "unknown"},
        {"topic": "t" * 128},
        {"topic": "\ud800"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": None},
        {"queue_id": -1},
        {"queue_id": 2**31},
        {"properties": b"no separator"},
        {"properties": b"a\x01\0"},
        {"properties": b"a\x01" + b"b" * 32766},
        {"properties": b"DELAY\x011"},
        {"properties": b"INNER_MULTI_DISPATCH\x01%LMQ%a"},
        {"properties": None},
        {"body": bytes(2000)},
        {"body": "text"},
        {"sys_flag": SysFlag.TRANSACTION_PREPARED},
        {"sys_flag": SysFlag.TRANSACTION_ROLLBACK},
        {"sys_flag": SysFlag.INNER_BATCH},
        {"store_host": Host(b"1234", 65536)},
        {"born_host": "127.0.0.1"},
    ],
)
def test_what_is_not_plain_is_left_to_python(fields: dict[str, object]) -> None:
    odd = ordinary()
    for name, value in fields.items():
        setattr(odd, name, value)
    case = roomy(T=5, SCHEDULE_TOPIC_XXXX=5)
    case.next_offsets["t" * 128, 0] = 5
    kernel = Kernel(case)
    assert kernel.end.put(odd) is None
    kernel.agree()
    assert kernel.end.put(ordinary()) is not None


def test_a_body_that_is_copied_without_the_gil_is_left_to_python() -> None:
    kernel = Kernel(roomy(body_max=1 << 20, T=0))
    assert kernel.end.put(ordinary(body=bytes(65536))) is None
    assert kernel.end.put(ordinary(body=bytes(65535))) is not None


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
    "change",
    [
        *(refuse, hold, dispatch, fall_behind, detach, overstate_room, misplace),
        *(set_back, set_forward),
    ],
)
def test_a_put_is_left_to_python_while_it_may_not_be_whole(
    change: Callable[[Kernel], None],
) -> None:
    kernel = Kernel(roomy(T=0))
    change(kernel)
    assert kernel.end.put(ordinary()) is None
    assert kernel.published == (0, 0, 0)
    assert not any(kernel.log)
    assert kernel.next_offsets == {("T", 0): 0}


def test_a_log_end_without_a_place_to_publish_puts_nothing() -> None:
    end = LogEnd({("T", 0): 0}, 1000, SimulatedClock(TIME))
    end.attach(FilePositions(), memoryview(bytearray(1000)))
    end.room_end = 1000
    assert end.put(ordinary()) is None


def test_on_populate_is_called_after_the_put_is_published() -> None:
    kernel = Kernel(roomy(T=0))
    calls: list[tuple[int, int, int]] = []
    kernel.end.on_populate = lambda: calls.append(kernel.published)
    kernel.segment.populate_at = 200
    ends = [placed.end for _ in range(3) if (placed := kernel.end.put(ordinary()))]
    assert calls == [(end, end, 2 + number) for number, end in enumerate(ends[1:])]


def test_the_log_is_let_go_when_it_is_detached() -> None:
    kernel = Kernel(roomy(T=0))
    with pytest.raises(BufferError):
        kernel.log.append(0)
    kernel.end.attach(None, None)
    kernel.log.append(0)
