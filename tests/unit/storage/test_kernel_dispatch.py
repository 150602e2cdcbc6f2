"""Bulk dispatch: the kernel's loop and its slow model write the same queues and indexes."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage import _kernel
from mqstore.storage._kernel import IndexWindow, QueueWindow, Stop
from tests.unit.storage import kernel_model as model
from tests.unit.storage.record_examples import (
    TIME,
    damaged,
    log_of,
    messages,
    ordinary,
    plain_messages,
)


def dispatch(
    log: memoryview,
    position: int,
    end: int,
    *,
    base: int = 0,
    queues: dict[bytes, QueueWindow] | None = None,
    index: IndexWindow | None = None,
    max_records: int = 10**9,
    touched: set[bytes] | None = None,
) -> tuple[Stop, int, int, int]:
    return _kernel.dispatch_run(
        log,
        position,
        end,
        base,
        queues,
        index,
        index_tags=False,
        skip_index_below=0,
        max_records=max_records,
        touched=touched,
    )


def key(topic: str, queue_id: int) -> bytes:
    return topic.encode() + queue_id.to_bytes(4)


def window(entries: int = 50, first_index: int = 0) -> tuple[QueueWindow, bytearray]:
    file = bytearray(20 * entries)
    made = QueueWindow()
    made.attach(memoryview(file), first_index, entries)
    made.next_index = first_index
    return made, file


@st.composite
def dispatch_cases(draw: st.DrawFn) -> tuple[model.DispatchModel, int]:
    """A log (now and then damaged), queues and an index in some state, and a record limit."""
    base = draw(st.sampled_from([0, 0, 5000]))
    offsets: dict[bytes, int] = {}
    entries = []
    maker = st.one_of(plain_messages(), plain_messages(), plain_messages(), messages())
    for message in draw(st.lists(maker, max_size=8)):
        where = message.topic.encode() + message.queue_id.to_bytes(4, signed=True)
        entries.append((message, offsets.get(where, 0) + draw(st.sampled_from([0] * 9 + [1]))))
        offsets[where] = offsets.get(where, 0) + (message.sys_flag & 0xC in (0, 8))
    data = log_of(*entries, base=base)
    if draw(st.integers(0, 4)) == 0:
        data = draw(damaged(st.just(data)))
    queues = None
    if draw(st.integers(0, 5)):
        known = [where for where in offsets if draw(st.integers(0, 9))]
        queues = {where: draw_queue(draw) for where in known}
    index = None
    if draw(st.integers(0, 3)):
        slots, index_num = draw(st.tuples(st.integers(1, 4), st.integers(1, 30)))
        file = bytearray(40 + 4 * slots + 20 * index_num)
        index = model.IndexModel(file if draw(st.integers(0, 5)) else None, slots, index_num)
    skip = draw(st.sampled_from([0, 0, base + 300]))
    case = model.DispatchModel(data, base, queues, index, draw(st.booleans()), skip)
    return case, draw(st.one_of(st.just(10**9), st.integers(0, 5)))


def draw_queue(draw: st.DrawFn) -> model.QueueModel:
    entries = draw(st.sampled_from([30, 30, 30, 1, 3]))
    first = draw(st.sampled_from([0, 0, 0, 2]))
    file = bytearray(20 * entries) if draw(st.integers(0, 9)) else None
    return model.QueueModel(file, first, entries, draw(st.sampled_from([0, 0, 0, 0, 1, first])))


def windows_of(
    case: model.DispatchModel,
) -> tuple[
    dict[bytes, QueueWindow] | None,
    dict[bytes, bytearray],
    IndexWindow | None,
    bytearray | None,
]:
    """The kernel's side of a model case, on copies of its bytes."""
    files: dict[bytes, bytearray] = {}
    queues: dict[bytes, QueueWindow] | None = None if case.queues is None else {}
    for where, queue in (case.queues or {}).items():
        assert queues is not None
        queues[where] = QueueWindow()
        if queue.data is not None:
            files[where] = bytearray(queue.data)
            queues[where].attach(memoryview(files[where]), queue.first_index, queue.entries)
        queues[where].next_index = queue.next_index
    if case.index is None:
        return queues, files, None, None
    index = IndexWindow()
    if case.index.data is None:
        return queues, files, index, None
    index_file = bytearray(case.index.data)
    index.attach(memoryview(index_file), case.index.slots, case.index.index_num)
    return queues, files, index, index_file


@given(dispatch_cases())
def test_dispatch_agrees_with_the_model(drawn: tuple[model.DispatchModel, int]) -> None:
    case, max_records = drawn
    queues, files, index, index_file = windows_of(case)
    touched: set[bytes] = set()
    result = _kernel.dispatch_run(
        memoryview(case.data),
        0,
        len(case.data),
        case.base,
        queues,
        index,
        index_tags=case.index_tags,
        skip_index_below=case.skip_index_below,
        max_records=max_records,
        touched=touched,
    )
    assert result == case.run(0, len(case.data), max_records)
    assert touched == case.touched
    for where, queue in (case.queues or {}).items():
        assert queues is not None
        assert queues[where].next_index == queue.next_index
        assert files.get(where) == queue.data
    if case.index is not None:
        assert index_file == case.index.data


def test_dispatch_of_a_long_log_over_many_queues_agrees_with_the_model() -> None:
    properties = b"UNIQ_KEY\x01%032d\x02KEYS\x01a b\x02TAGS\x01t"
    entries = [
        (ordinary(f"topic-{n % 40}", n % 3, properties=properties % n), n // 120)
        for n in range(1200)
    ]
    data = log_of(*entries)
    queues = {
        key(f"topic-{t}", q): model.QueueModel(bytearray(20 * 10), 0, 10, 0)
        for t in range(40)
        for q in range(3)
    }
    index = model.IndexModel(bytearray(40 + 4 * 100 + 20 * 5000), 100, 5000)
    case = model.DispatchModel(data, 0, queues, index, True, 0)
    windows, files, index_window, index_file = windows_of(case)
    touched: set[bytes] = set()
    result = _kernel.dispatch_run(
        memoryview(data),
        0,
        len(data),
        0,
        windows,
        index_window,
        index_tags=True,
        skip_index_below=0,
        max_records=10**9,
        touched=touched,
    )
    assert result == case.run(0, len(data), 10**9)
    assert result[0] is Stop.END
    assert touched == case.touched == set(queues)
    assert index_file == index.data
    assert files == {where: queue.data for where, queue in queues.items()}


def test_a_queue_entry_is_offset_size_and_sign_extended_hash() -> None:
    data = log_of((ordinary(properties="TAGS\x01標籤籤籤".encode()), 0))
    made, file = window()
    assert dispatch(memoryview(data), 0, len(data), queues={key("T", 0): made})[0] is Stop.END
    code = model.signed(model.java_hash("標籤籤籤"))
    assert struct.unpack_from(">qiq", file) == (0, len(data), code)


def test_an_entry_that_already_stands_is_neither_written_again_nor_reported() -> None:
    data = log_of((ordinary(), 0), (ordinary(), 1))
    made, file = window()
    queues = {key("T", 0): made}
    dispatch(memoryview(data), 0, len(data), queues=queues)
    before = bytes(file)
    touched: set[bytes] = set()
    again = dispatch(memoryview(data), 0, len(data), queues=queues, touched=touched)
    assert again[:3] == (Stop.END, len(data), 2)
    assert (bytes(file), made.next_index, touched) == (before, 2, set())


def test_an_entry_with_another_tags_code_is_left_to_the_caller_but_not_an_ext_address() -> None:
    data = log_of((ordinary(), 0))
    for code, expected in ((5, Stop.QUEUE), (-(2**63), Stop.END), (-(2**31), Stop.QUEUE)):
        made, file = window()
        struct.pack_into(">qiq", file, 0, 0, len(data), code)
        made.next_index = 1
        assert dispatch(memoryview(data), 0, len(data), queues={key("T", 0): made})[0] is expected


def test_a_record_that_lacks_index_room_for_all_its_keys_leaves_no_trace() -> None:
    data = log_of((ordinary(properties=b"KEYS\x01a b c"), 0))
    made, file = window()
    index, index_file = IndexWindow(), bytearray(40 + 4 + 20 * 3)
    index.attach(memoryview(index_file), 1, 3)
    result = dispatch(memoryview(data), 0, len(data), queues={key("T", 0): made}, index=index)
    assert result[:3] == (Stop.INDEX, 0, 0)
    assert not any(file)
    assert not any(index_file)
    assert made.next_index == 0


def test_a_full_index_stops_even_a_record_without_keys() -> None:
    """RocketMQ makes its next index file then, so the bytes of the file list depend on it."""
    data = log_of((ordinary(properties=b""), 0))
    index, index_file = IndexWindow(), bytearray(40 + 4 + 20 * 1)
    index.attach(memoryview(index_file), 1, 1)
    assert dispatch(memoryview(data), 0, len(data), index=index)[0] is Stop.INDEX


def test_a_detached_window_stops_the_run() -> None:
    data = log_of((ordinary(), 0))
    made, _ = window()
    made.attach(None, 0, 0)
    assert dispatch(memoryview(data), 0, len(data), queues={key("T", 0): made})[0] is Stop.QUEUE
    assert dispatch(memoryview(data), 0, len(data), index=IndexWindow())[0] is Stop.INDEX


def test_a_blank_record_stops_the_run_before_it() -> None:
    data = log_of((ordinary(), 0))
    blank = bytearray(8)
    _kernel.write_blank(blank, 0, 100)
    made, _ = window()
    log = memoryview(data + bytes(blank))
    result = dispatch(log, 0, len(log), queues={key("T", 0): made})
    assert result == (Stop.BLANK, len(data), 1, TIME)


@pytest.mark.parametrize(("first_index", "entries"), [(-1, 1), (0, 0), (0, -1), (0, 3), (0, 2**62)])
def test_a_queue_window_beyond_its_view_is_refused(first_index: int, entries: int) -> None:
    with pytest.raises(ValueError):
        QueueWindow().attach(memoryview(bytearray(59)), first_index, entries)


def test_windows_are_free_again_after_a_run_that_failed() -> None:
    data = log_of((ordinary(), 0), (ordinary("U"), 0))
    made, file = window()
    index = IndexWindow()
    index.attach(memoryview(bytearray(40 + 4 + 20 * 9)), 1, 9)
    queues = {key("T", 0): made, key("U", 0): object()}
    with pytest.raises(TypeError):
        dispatch(memoryview(data), 0, len(data), queues=queues, index=index)  # type: ignore[arg-type]  # the point
    made.attach(memoryview(file), 0, 50)
    index.attach(None, 0, 0)


def test_a_window_keeps_its_file_mapped(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    path.write_bytes(bytes(40))
    made = QueueWindow()
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 40)
    made.attach(memoryview(mapped), 0, 2)
    with pytest.raises(BufferError):
        mapped.close()
    made.attach(None, 0, 0)
    mapped.close()


def test_windows_cannot_be_attached_to_what_is_read_only() -> None:
    with pytest.raises((BufferError, ValueError)):
        QueueWindow().attach(memoryview(bytes(20)), 0, 1)
    with pytest.raises((BufferError, ValueError)):
        IndexWindow().attach(memoryview(bytes(64)), 1, 1)


@pytest.mark.parametrize(("position", "end"), [(-1, 5), (3, 2), (0, 11), (11, 11)])
def test_a_range_outside_the_log_is_refused(position: int, end: int) -> None:
    with pytest.raises(ValueError):
        dispatch(memoryview(bytes(10)), position, end)
