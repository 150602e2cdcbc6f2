"""Reading what is mostly zeros: nothing that is there is missed, holes are not read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import RecordSearch
from mqstore.storage.codec.record import encode_into, size_of
from mqstore.storage.system.overlay_files import OverlayFileSystem
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.sparse import (
    CHUNK,
    data_chunks,
    find_whole,
    last_nonzero,
    read_everything,
)
from tests.page_cache import evict
from tests.unit.storage.recovery.log_builder import message

FILES = PosixFileSystem()
GIB = 1 << 30


def sparse_file(path: Path, size: int, at: int, data: bytes) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(at)
        file.write(data)
    return path


def test_holes_of_a_file_are_passed_over(tmp_path: Path) -> None:
    path = sparse_file(tmp_path / "sparse", GIB, 700 << 20, b"here")
    chunks = list(data_chunks(0, GIB, partial(FILES.next_data, path)))
    assert sum(stop - start for start, stop in chunks) <= 2 * CHUNK
    assert any(start <= 700 << 20 < stop for start, stop in chunks)
    mapped = FILES.map(path, writable=False)
    assert last_nonzero(mapped.view, 0, partial(FILES.next_data, path)) == (700 << 20) + 4
    assert FILES.next_data(path, GIB - 1) is None


def test_blocks_that_were_only_reserved_need_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "reserved"
    FILES.create(path, 8 << 20)
    assert FILES.next_data(path, 0) in (None, 0)  # some file systems do not know
    mapped = FILES.map(path, writable=True)
    mapped.view[5 << 20] = 1  # not synced: in memory only
    found = FILES.next_data(path, 0)
    assert found is not None
    assert found <= 5 << 20


def test_what_the_kernel_reads_ahead_into_a_hole_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "reserved"
    FILES.create(path, 64 << 20)
    with path.open("r+b") as file:
        file.write(b"data")
    evict(path)
    chunks = list(data_chunks(0, 64 << 20, partial(FILES.next_data, path)))
    calls: list[int] = []

    def next_data(position: int) -> int | None:
        calls.append(position)
        return FILES.next_data(path, position)

    assert last_nonzero(FILES.map(path, writable=False).view, 0, next_data) == 4
    assert len(calls) <= len(chunks) + 2


def test_an_overlay_knows_the_holes_of_what_it_did_not_change(tmp_path: Path) -> None:
    path = sparse_file(tmp_path / "sparse", 64 << 20, 32 << 20, b"here")
    overlay = OverlayFileSystem(FILES)
    assert overlay.next_data(path, 0) == FILES.next_data(path, 0)
    overlay.map(path, writable=False)
    assert overlay.next_data(path, 0) == FILES.next_data(path, 0)
    overlay.map(path, writable=True).view[100] = 1
    assert overlay.next_data(path, 0) == 0
    assert overlay.next_data(path, 64 << 20) is None
    overlay.write(tmp_path / "new", b"data")
    assert overlay.next_data(tmp_path / "new", 2) == 2


@given(st.integers(CHUNK - 300, CHUNK + 20), st.booleans())
def test_a_record_over_the_edge_of_a_chunk_is_found(at: int, holes_known: bool) -> None:
    one = message(body=b"b" * 80)
    size = size_of(one, 1)
    data = bytearray(2 * CHUNK)
    encode_into(data, at, one, version=1, queue_offset=0, physical_offset=at, store_timestamp_ms=1)
    page = at - at % 4096

    def next_data(position: int) -> int | None:
        return max(position, page) if position < at + size else None

    view, known = memoryview(data), next_data if holes_known else read_everything
    search = RecordSearch(view, 0, True)
    assert find_whole(search, view, 0, known) == at
    assert find_whole(search, view, at + 1, known) == -1
