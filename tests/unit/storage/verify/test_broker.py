"""Predictions about a real broker; tests/compat/test_damage.py compares them with one."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.record import Message, encode_into, size_of
from mqstore.storage.layout import StoreFormat
from mqstore.storage.recovery.view import CheckpointTimes
from mqstore.storage.verify.broker import Broker, foresee, record_size
from mqstore.storage.verify.finding import CUTS, Kind
from tests.unit.storage.record_examples import messages
from tests.unit.storage.recovery.log_builder import SEGMENT, START_MS, LogBuilder, view_of

BODY_AT = 88
V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X
FAR = 1 << 62


def encoded(message: Message, version: int) -> bytearray:
    record = bytearray(size_of(message, version))
    encode_into(
        record, 0, message, version=version, queue_offset=0, physical_offset=0, store_timestamp_ms=1
    )
    return record


def foreseen(log: LogBuilder, root: Path, *, queues_end: int = FAR, **view: object) -> Broker:
    form = view.pop("store_format", V4)
    looked_at = view_of(log.write(root), **view)  # type: ignore[arg-type] # passed through
    return foresee(replace(looked_at, store_format=form), queues_end)  # type: ignore[arg-type] # popped from the same


@given(message=messages(), version=st.sampled_from([1, 2]), before=st.integers(0, 9))
def test_every_record_that_can_be_written_is_taken_for_one(
    message: Message, version: int, before: int
) -> None:
    data = memoryview(bytes(before) + encoded(message, version) + b"next")

    assert record_size(data, before, V5) == len(data) - before - 4
    assert record_size(data, before, V4) == (len(data) - before - 4 if version == 1 else 0)
    assert record_size(data[:-5], before, V5) == 0


@given(data=st.binary(max_size=300), position=st.integers(0, 300))
def test_nothing_is_read_outside_of_the_bytes(data: bytes, position: int) -> None:
    assert 0 <= record_size(memoryview(data), position, V5) <= max(0, len(data) - position)


def test_zeroed_properties_are_not_noticed_and_a_flipped_body_is(tmp_path: Path) -> None:
    log = LogBuilder().fill(30)
    offset, size = log.records[-1]
    log.poke(offset + size - 10, bytes(10))
    assert foreseen(log, tmp_path).end == log.end

    log.flip(offset + BODY_AT)
    assert foreseen(log, tmp_path).end == offset


def test_it_cuts_once_and_what_is_behind_is_lost(tmp_path: Path) -> None:
    log = LogBuilder().fill(30)
    first, second, before = (log.records[n][0] for n in (10, 20, 5))
    log.flip(first + BODY_AT)
    log.flip(second + BODY_AT)

    broker = foreseen(log, tmp_path)

    assert broker.predict(Kind.RECORD_BODY, first) == CUTS
    assert f"behind offset {first}" in broker.predict(Kind.RECORD_BODY, second)
    assert broker.predict(Kind.RECORD_BODY, before).startswith("not noticed")


@pytest.mark.parametrize("store_format, start", [(V4, 2), (V5, 4)])
def test_after_a_clean_close_it_reads_the_last_segments(
    tmp_path: Path, store_format: StoreFormat, start: int
) -> None:
    log = LogBuilder().fill(100, body=80)
    assert len(log.segments) == 5

    broker = foreseen(log, tmp_path, abort=False, store_format=store_format)

    assert (broker.start, broker.end) == (start * SEGMENT, log.end)


def test_5_x_goes_back_to_what_the_queues_reach_and_over_damage(tmp_path: Path) -> None:
    log = LogBuilder().fill(100, body=80)
    log.flip(3 * SEGMENT + BODY_AT)
    view = {"abort": False, "store_format": V5}

    assert foreseen(log, tmp_path, queues_end=4 * SEGMENT - 1, **view).start == 2 * SEGMENT
    assert foreseen(log, tmp_path, queues_end=-1, **view).start == 0


def test_5_x_goes_back_ten_segments_at_most(tmp_path: Path) -> None:
    log = LogBuilder().fill(300, body=80)
    beyond = len(log.segments) - 10
    assert beyond > 0

    for abort in (False, True):
        found = foreseen(log, tmp_path, queues_end=-1, abort=abort, store_format=V5)
        assert found.start == beyond * SEGMENT
        assert foreseen(log, tmp_path, queues_end=-1, store_format=V4).start == 0


def test_after_a_crash_it_starts_where_the_checkpoint_reaches(tmp_path: Path) -> None:
    log = LogBuilder().fill(100, body=80)
    in_third = next(n for n, (offset, _) in enumerate(log.records) if offset >= 2 * SEGMENT)
    covered = START_MS + in_third * log.step_ms + 3000

    for past, segment in ((0, 2), (-1, 1)):
        times = CheckpointTimes(covered + past, covered + past)
        assert foreseen(log, tmp_path, checkpoint=times).start == segment * SEGMENT


def test_4_9_allocates_as_many_bytes_as_a_size_says(tmp_path: Path) -> None:
    log = LogBuilder().fill(10)
    offset, _ = log.records[-1]
    log.poke(offset, struct.pack(">i", 2**31 - 1))

    assert "refuses to start" in foreseen(log, tmp_path).predict(Kind.LOG_TAIL, offset)
    assert "refuses" not in foreseen(log, tmp_path, store_format=V5).predict(Kind.LOG_TAIL, offset)


def test_records_behind_our_end_of_the_log_are_taken_by_it() -> None:
    broker = Broker(crashed=True, start=0, end=500)

    assert "up to offset 500" in broker.predict(Kind.LOG_TAIL, 400)
    assert broker.predict(Kind.LOG_TAIL, 500).startswith("the bytes stay")
    assert "lost" in broker.predict(Kind.LOG_TAIL, 600)
    assert broker.predict(Kind.ENTRY_BEYOND, 400).startswith("kept")
    assert broker.predict(Kind.ENTRY_BEYOND, 500) == "cut by recovery"
