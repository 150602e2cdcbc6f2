"""Segments by byte range: what is on disk, checksums that fit, memory that is left alone."""

from __future__ import annotations

import ctypes
import gc
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage._kernel import crc32c
from mqstore.storage.errors import SegmentExpired, SegmentUnknown, StoreNotOpen
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.lookup.segment_bytes import SegmentBytes
from mqstore.storage.message_store import Durability
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.page_cache import evict
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, message, open_store

SEGMENT = 4 * BLOCK_SIZE
LARGE = CONFIG.model_copy(update={"mapped_file_size_commit_log": SEGMENT})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some segments, closed cleanly."""
    found = tmp_path_factory.mktemp("segments")
    with open_store(found, LARGE) as store:
        store.create_topic("T", queues=1)
        for number in range(600):
            one = message(store, number)
            put_message(store, one.replace(body=bytes([number % 256]) * 2_000), Durability.ASYNC)
    return found


@pytest.fixture
def segments(root: Path) -> Iterator[SegmentBytes]:
    with StoreReader.open(root, production_seams()) as reader:
        yield reader.segments


def _resident(path: Path) -> int:
    """How many pages of a file are in memory."""
    with path.open("rb") as file:
        mapped = mmap.mmap(
            file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE
        )
    pages = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE))()
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), pages) == 0
    return sum(page & 1 for page in pages)


def test_all_segments_are_the_log_as_it_stands(root: Path, segments: SegmentBytes) -> None:
    parts = segments.all()
    assert [part.name for part in parts] == [segment_name(n * SEGMENT) for n in range(len(parts))]
    assert [part.is_full for part in parts] == [True] * (len(parts) - 1) + [False]
    for part in parts:
        data = (StorePaths(root).commit_log / part.name).read_bytes()
        assert segments.read(part, 0, part.size) == data[: part.size]
        assert segments.read(part, 5, 70_000) == data[5:70_000]
        assert not data[part.size :].strip(b"\0")


def test_checksums_are_of_each_whole_block_in_the_range(segments: SegmentBytes) -> None:
    part = segments.all()[0]
    data = segments.read(part, 0, part.size)
    crcs = [crc32c(data[at : at + BLOCK_SIZE]) for at in range(0, SEGMENT, BLOCK_SIZE)]
    assert segments.checksums(part, 0, SEGMENT) == crcs
    assert segments.checksums(part, 1, SEGMENT - 1) == crcs[1:-1]
    assert segments.checksums(part, 0, BLOCK_SIZE - 1) == []
    newest = segments.all()[-1]
    assert len(segments.checksums(newest, 0, newest.size)) == newest.size // BLOCK_SIZE


def test_reading_old_segments_leaves_memory_as_it_was(root: Path) -> None:
    gc.collect()  # what maps them still
    with StoreReader.open(root, production_seams()) as reader:
        parts = reader.segments.all()
        paths = [StorePaths(root).commit_log / part.name for part in parts]
        for path in paths:
            evict(path)
        if any(map(_resident, paths)):
            pytest.skip("this file system keeps its pages in memory")
        for part in parts:
            reader.segments.read(part, 0, part.size)
        assert [_resident(path) > 0 for path in paths] == [False] * (len(paths) - 1) + [True]


@pytest.mark.parametrize("name", ["", "x", "..", segment_name(1), segment_name(SEGMENT * 1000)])
def test_name_of_no_segment_is_unknown(segments: SegmentBytes, name: str) -> None:
    with pytest.raises(SegmentUnknown):
        segments.part(name)


def test_nothing_above_the_durable_watermark_is_given_out(tmp_path: Path) -> None:
    with (
        open_store(tmp_path, LARGE) as store,
        StoreReader.open(tmp_path, production_seams()) as reader,
    ):
        store.create_topic("T", queues=1)
        synced = put_message(store, message(store, 0), Durability.SYNC)
        put_message(store, message(store, 1), Durability.ASYNC)
        (part,) = reader.segments.all()
        assert synced.end <= part.size <= reader.state.flushed_offset


def test_segment_that_expired_says_so_also_while_it_is_read(tmp_path: Path) -> None:
    with (
        open_store(tmp_path) as store,
        StoreReader.open(tmp_path, production_seams()) as reader,
    ):
        store.create_topic("T", queues=1)
        for number in range(900):
            put_message(store, message(store, number), Durability.ASYNC)
        put_message(store, message(store, 900), Durability.SYNC)
        part = reader.segments.part(segment_name(0))
        store.expire(1)
        with pytest.raises(SegmentExpired):
            reader.segments.read(part, 0, 100)
        with pytest.raises(SegmentExpired):
            reader.segments.part(segment_name(0))


def test_bytes_of_another_epoch_are_not_given_out(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("T", queues=1)
        put_message(store, message(store, 0), Durability.SYNC)
    with StoreReader.open(tmp_path, production_seams()) as reader:
        (part,) = reader.segments.all()
        with open_store(tmp_path), pytest.raises(StoreNotOpen):
            reader.segments.read(part, 0, 10)
