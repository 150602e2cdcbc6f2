"""The walk over a segment's records goes on behind damage at a boundary that is known."""

from __future__ import annotations

import pytest

from mqstore.storage.codec.record import Blank, encode_into, size_of
from mqstore.storage.log.defects import NO_QUEUES, Queues
from mqstore.storage.recovery.walk import Damage, Run, walk
from tests.unit.storage.recovery.log_builder import SEGMENT, LogBuilder, message

BODY_AT = 88


class Named:
    """Queues whose entries name these physical offsets."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets

    def next_physical(self, after: int) -> int | None:
        return min((each for each in self.offsets if each > after), default=None)


def walked(log: LogBuilder, queues: Queues = NO_QUEUES) -> list[tuple[int, int] | Blank]:
    """The starts of whole records, each with the next, damaged stretches, and blank records."""
    view, found = memoryview(log.segments[0]), list[tuple[int, int] | Blank]()
    for each in walk(view, 0, min(log.end, SEGMENT), 0, verify_body=True, queues=queues):
        if isinstance(each, Run):
            found += zip(each.starts, [*each.starts[1:], each.stop], strict=True)
        else:
            found.append((each.position, each.stop) if isinstance(each, Damage) else each)
    return found


def test_whole_records_end_at_the_blank_one() -> None:
    log = LogBuilder().fill(40)

    *records, blank = walked(log)

    whole = [(offset, offset + size) for offset, size in log.records if offset < SEGMENT]
    assert records == whole
    assert isinstance(blank, Blank)
    assert blank.offset + blank.size == SEGMENT


def test_a_damaged_body_costs_its_own_record_only() -> None:
    log = LogBuilder().fill(3)
    log.flip(log.records[1][0] + BODY_AT)

    assert walked(log) == [(offset, offset + size) for offset, size in log.records]


@pytest.mark.parametrize("behind", [b"", bytes.fromhex("00000010cbd43194")])
def test_a_record_forged_in_a_damaged_body_is_none(behind: bytes) -> None:
    """``behind`` it: nothing, or a blank record that leads to no segment's end."""
    log = LogBuilder()
    log.put(message())
    inner = message(body=b"forged")
    forged = bytearray(size_of(inner, 1))
    at = log.end + BODY_AT
    encode_into(
        forged,
        0,
        inner,
        version=1,
        queue_offset=1,
        physical_offset=at,
        store_timestamp_ms=1_700_000_000_000,
    )
    damaged = log.put(message(body=bytes(forged) + behind))
    log.put(message())
    log.poke(damaged, bytes(4))  # its size

    found = walked(log, Named(*(offset for offset, _ in log.records)))

    assert found == [(offset, offset + size) for offset, size in log.records]


def test_without_queues_the_next_record_is_searched() -> None:
    log = LogBuilder().fill(3)
    log.poke(log.records[1][0], bytes(8))

    assert walked(log) == [(offset, offset + size) for offset, size in log.records]
