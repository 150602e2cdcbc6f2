"""The log as bytes from an offset on: within a segment, up to the readable end."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.errors import RecordExpired
from mqstore.storage.lookup.log_stream import LogStream
from mqstore.storage.message_store import MessageStore
from tests.unit.storage.stores import CONFIG, open_store, put_some

SEGMENT = CONFIG.mapped_file_size_commit_log


def _all(stream: LogStream, size: int, *, taken: bool) -> bytes:
    """All bytes of the log, up to ``size`` at a time."""
    found: list[bytes] = []
    offset = stream.start
    while True:
        data = stream.take(offset, size) if taken else None
        if data is None:
            data = stream.read(offset, size)
        if not data:
            return b"".join(found)
        assert offset // SEGMENT == (offset + len(data) - 1) // SEGMENT
        found.append(data)
        offset += len(data)


def _files(store: MessageStore) -> bytes:
    data = b"".join(path.read_bytes() for path in sorted(store.paths.commit_log.iterdir()))
    return data[: store.log.max_offset - store.log.min_offset]


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("size", [100, 32 << 10, 1 << 20])
def test_the_stream_has_the_bytes_of_the_files(root: Path, size: int, taken: bool) -> None:
    with open_store(root) as store:
        put_some(store, 700)
        assert len(store.log.files.files) > 2
        assert _all(store.log_stream, size, taken=taken) == _files(store)
        assert store.log_stream.last_segment == store.log.files.files[-1].base_offset


def test_there_are_no_bytes_at_the_end(root: Path) -> None:
    with open_store(root) as store:
        stream = store.log_stream
        assert (stream.start, stream.end, stream.last_segment) == (0, 0, 0)
        for _ in range(2):
            assert stream.take(stream.end, 100) == stream.read(stream.end, 100) == b""
            put_some(store, 3)


def test_deleted_bytes_are_an_error(root: Path) -> None:
    with open_store(root) as store:
        put_some(store, 700)
        assert store.expire(1) == 1
        stream = store.log_stream
        for read in (stream.take, stream.read):
            with pytest.raises(RecordExpired):
                read(SEGMENT - 1, 1)
        assert stream.start == SEGMENT
        assert stream.read(SEGMENT, 1)


def test_bytes_in_buffers_are_not_part_of_it(root: Path) -> None:
    config = CONFIG.model_copy(
        update={"transient_store_pool_enable": True, "commit_interval_commit_log": 3_600_000}
    )
    with open_store(root, config) as store:
        put_some(store, 3)
        stream = store.log_stream
        assert stream.end == store.log.max_offset
        assert _all(stream, 100, taken=True) == _files(store)[: stream.end]
