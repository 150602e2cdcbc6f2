from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.ext_unit import ExtUnit, decode, encode
from mqstore.storage.codec.properties import tags_code
from mqstore.storage.filter.bloom import BloomFilter, has
from mqstore.storage.layout import EXT_UNIT_SIZE_MAX, EXT_UNIT_SIZE_MIN

INT64 = st.integers(-(2**63), 2**63 - 1)
UNITS = st.builds(ExtUnit, INT64, INT64, st.binary(max_size=EXT_UNIT_SIZE_MAX - EXT_UNIT_SIZE_MIN))
OF_A_BROKER = bytes.fromhex(
    "002f0000000000000e3c000001a201bd9119001b000000008000000000010000000000000000000000008000000000"
)
"""A unit of 4.9.7: tag t0, a bitmap for up to 64 subscriptions, one of which matches."""


def test_a_unit_of_a_broker_is_read_and_written_the_same() -> None:
    found = decode(memoryview(OF_A_BROKER), 0)
    assert found is not None
    assert (found.tags_code, found.store_timestamp_ms) == (tags_code("t0"), 0x1A201BD9119)
    assert len(found.bitmap) == 27
    assert has(found.bitmap, BloomFilter.of(20, 64).positions("H#T"))
    assert encode(found) == OF_A_BROKER


@given(UNITS, st.integers(0, 40), st.binary(max_size=40))
def test_what_is_written_is_read_again(unit: ExtUnit, before: int, after: bytes) -> None:
    view = memoryview(b"?" * before + encode(unit) + after)
    assert decode(view, before) == unit
    assert decode(view[: before + unit.size - 1], before) is None


@given(st.binary(max_size=60), st.integers(-3, 70))
def test_whatever_stands_there_is_a_whole_unit_or_none(data: bytes, position: int) -> None:
    found = decode(memoryview(data), position)
    if found is not None:
        assert data[position : position + found.size] == encode(found)
