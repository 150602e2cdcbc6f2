from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import walk_units
from mqstore.storage.codec import ext_unit
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.layout import EXT_ADDRESS_MAX, EXT_ADDRESS_MIN
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.queues.consume_queue_ext import ConsumeQueueExt
from mqstore.storage.system.threads import production_seams

FILE_SIZE = 1024
UNITS = st.builds(
    ExtUnit,
    st.integers(-(2**31), 2**63 - 1),
    st.integers(0, 2**50),
    st.binary(max_size=60),
)


def open_ext(root: Path) -> ConsumeQueueExt:
    files = MappedFileQueue(
        root / "units", FILE_SIZE, production_seams(), staging=root / "staging", derived=True
    )
    ext = ConsumeQueueExt(files)
    assert ext.load() == []
    return ext


def put_all(ext: ConsumeQueueExt, units: list[ExtUnit]) -> list[int]:
    addresses = [ext.put(unit) for unit in units]
    assert None not in addresses
    return [address for address in addresses if address is not None]


def numbered(count: int) -> list[ExtUnit]:
    return [ExtUnit(n, n, bytes(14)) for n in range(count)]


@given(st.lists(UNITS, max_size=80), st.lists(UNITS, max_size=20))
def test_units_are_found_at_their_addresses_also_after_a_reopening(
    tmp_path_factory: pytest.TempPathFactory, first: list[ExtUnit], second: list[ExtUnit]
) -> None:
    root = tmp_path_factory.mktemp("ext")
    ext = open_ext(root)
    addresses = put_all(ext, first)
    ext.flush()
    ext.files.close()

    again = open_ext(root)
    again.trim()
    addresses += put_all(again, second)

    assert addresses == sorted(set(addresses))
    assert all(address <= EXT_ADDRESS_MAX for address in addresses)
    assert [again.unit(address) for address in addresses] == first + second
    again.flush()
    again.files.close()


def test_a_file_ends_with_a_mark_where_the_next_unit_does_not_fit(tmp_path: Path) -> None:
    """As 4.9.7 wrote them: of 1,024 bytes 21 units of 47 leave 37, of which 4 are kept."""
    ext = open_ext(tmp_path)
    addresses = put_all(ext, [ExtUnit(n, n, bytes(27)) for n in range(22)])
    assert addresses[0] == EXT_ADDRESS_MIN
    assert addresses[21] == EXT_ADDRESS_MIN + FILE_SIZE
    first = ext.files.files[0].view
    assert bytes(first[21 * 47 : 21 * 47 + 3]) == b"\xff\xff\x00"


def test_a_unit_that_no_file_holds_gets_no_address(tmp_path: Path) -> None:
    ext = open_ext(tmp_path)
    assert ext.put(ExtUnit(1, 1, bytes(FILE_SIZE))) is None
    assert ext.put(ExtUnit(1, 1, bytes(FILE_SIZE - 24))) == EXT_ADDRESS_MIN
    assert ext.files.max_offset == FILE_SIZE - 4


def test_no_unit_is_read_where_none_stands(tmp_path: Path) -> None:
    ext = open_ext(tmp_path)
    assert ext.unit(EXT_ADDRESS_MIN) is None
    put_all(ext, numbered(1))
    assert ext.unit(EXT_ADDRESS_MIN + 1) is None
    assert ext.unit(EXT_ADDRESS_MIN + 34) is None
    assert ext.unit(EXT_ADDRESS_MIN + FILE_SIZE) is None


def test_after_a_crash_units_end_before_the_first_that_is_not_whole(tmp_path: Path) -> None:
    ext = open_ext(tmp_path)
    addresses = put_all(ext, numbered(70))
    lost = addresses[40] - EXT_ADDRESS_MIN
    hurt = ext.files.find(lost)
    assert hurt is not None
    at = lost - hurt.base_offset
    hurt.view[at : at + 2] = bytes(2)

    ext.trim()

    assert [ext.unit(each) is not None for each in addresses] == [n < 40 for n in range(70)]
    assert ext.files.last is hurt
    assert not any(hurt.view[at:])
    (following,) = put_all(ext, [ExtUnit(7, 7, b"")])
    assert following == addresses[40]


def test_files_go_that_end_below_an_address_but_never_the_last(tmp_path: Path) -> None:
    ext = open_ext(tmp_path)
    addresses = put_all(ext, numbered(70))
    assert len(ext.files.files) == 3
    assert ext.delete_before(addresses[28]) == 0
    assert ext.delete_before(EXT_ADDRESS_MIN + FILE_SIZE) == 1
    assert ext.unit(addresses[0]) is None
    assert ext.delete_before(EXT_ADDRESS_MIN + 9 * FILE_SIZE) == 1
    assert ext.unit(addresses[-1]) == numbered(70)[-1]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ExtUnit(1, 2, b"\x05"), True),
        (ExtUnit(1, 2, b"\x0d"), True),
        (ExtUnit(1, 2, b""), True),
        (ExtUnit(1, 2, b"\x01"), False),
        (ExtUnit(1, 3, b"\x05"), False),
        (ExtUnit(2, 2, b"\x05"), False),
    ],
)
def test_what_another_unit_says_may_be_true_of_a_message_too(
    tmp_path: Path, found: ExtUnit, said: bool
) -> None:
    """One that lacks a bit is not; one with more costs a look into the log."""
    ext = open_ext(tmp_path)
    (address,) = put_all(ext, [found])
    assert ext.matches(address, ExtUnit(1, 2, b"\x05")) is said
    assert not ext.matches(address + 1, ExtUnit(1, 2, b""))


@given(st.binary(max_size=200), st.data())
def test_a_walk_ends_where_no_whole_unit_stands(data: bytes, drawn: st.DataObject) -> None:
    data += b"".join(ext_unit.encode(each) for each in drawn.draw(st.lists(UNITS, max_size=4)))
    view, start = memoryview(data), drawn.draw(st.integers(0, len(data)))
    at = start
    while (unit := ext_unit.decode(view, at)) is not None:
        at += unit.size
    assert walk_units(view, start) == at
