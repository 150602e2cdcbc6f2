from __future__ import annotations

import contextlib
import random
import struct
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.compression import Compression, compression_of, inflate
from mqstore.storage.errors import BodyNotInflatable

DEFLATERS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.ZLIB: zlib.compress,
    Compression.LZ4: lz4.frame.compress,
    Compression.ZSTD: lambda data: zstandard.ZstdCompressor().compress(data),
}
kinds = st.sampled_from(list(Compression))


@given(kinds, st.binary(max_size=2000))
def test_inflated_is_what_was_compressed(kind: Compression, data: bytes) -> None:
    assert inflate(DEFLATERS[kind](data), kind, limit=len(data)) == data


@given(kinds, st.binary(min_size=1, max_size=2000), st.data())
def test_cut_short_is_refused(kind: Compression, data: bytes, draw: st.DataObject) -> None:
    whole = DEFLATERS[kind](data)
    cut = whole[: draw.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(BodyNotInflatable):
        inflate(cut, kind, limit=len(data) + 100)


@given(kinds, st.binary(max_size=300))
def test_any_bytes_are_inflated_within_the_limit_or_refused(kind: Compression, data: bytes) -> None:
    with contextlib.suppress(BodyNotInflatable):
        assert len(inflate(data, kind, limit=1000)) <= 1000


@pytest.mark.parametrize("kind", list(Compression))
def test_one_byte_beyond_the_limit_is_refused(kind: Compression) -> None:
    bomb = DEFLATERS[kind](bytes(50 << 20))
    with pytest.raises(BodyNotInflatable, match="longer than 1048576 bytes"):
        inflate(bomb, kind, limit=1 << 20)
    data = DEFLATERS[kind](bytes(1001))
    assert len(inflate(data, kind, limit=1001)) == 1001
    with pytest.raises(BodyNotInflatable):
        inflate(data, kind, limit=1000)


SKIPPABLE = struct.pack("<II", 0x184D2A53, 4) + b"left"
"""A frame without data, as LZ4 and Zstandard have them."""
framed = pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD])


@framed
@given(parts=st.lists(st.binary(max_size=2000), min_size=1, max_size=5), skips=st.booleans())
def test_every_frame_is_inflated(kind: Compression, parts: list[bytes], skips: bool) -> None:
    body = (SKIPPABLE if skips else b"").join(map(DEFLATERS[kind], parts))
    body += SKIPPABLE if skips else b""
    whole = b"".join(parts)
    assert inflate(body, kind, limit=len(whole)) == whole
    if whole:
        with pytest.raises(BodyNotInflatable, match="longer than"):
            inflate(body, kind, limit=len(whole) - 1)


@framed
@given(first=st.binary(max_size=200), second=st.binary(max_size=2000), draw=st.data())
def test_a_later_frame_that_is_cut_short_is_refused(
    kind: Compression, first: bytes, second: bytes, draw: st.DataObject
) -> None:
    head, tail = DEFLATERS[kind](first), draw.draw(st.sampled_from([second, SKIPPABLE]))
    tail = tail if tail is SKIPPABLE else DEFLATERS[kind](tail)
    cut = head + tail[: draw.draw(st.integers(1, len(tail) - 1))]
    with pytest.raises(BodyNotInflatable):
        inflate(cut, kind, limit=5000)


@framed
@pytest.mark.parametrize("more", [b"m", b"more", b"more and more", bytes(8)])
def test_other_bytes_behind_a_frame_are_refused(kind: Compression, more: bytes) -> None:
    with pytest.raises(BodyNotInflatable):
        inflate(DEFLATERS[kind](b"hello") + more, kind, limit=100)


@framed
def test_frames_of_all_kinds_follow_each_other(kind: Compression) -> None:
    if kind is Compression.LZ4:
        frames = [
            lz4.frame.compress(b"a" * 70_000, block_size=4, content_checksum=True),
            lz4.frame.compress(b"b", store_size=False, block_checksum=True),
            lz4.frame.compress(bytes(range(256)) * 2000, block_linked=False),
        ]
    else:
        streamed = zstandard.ZstdCompressor(write_checksum=True).compressobj()
        frames = [
            streamed.compress(b"a" * 70_000) + streamed.flush(),  # no size, blocks of one byte
            zstandard.ZstdCompressor(write_checksum=False).compress(b"b"),
            zstandard.ZstdCompressor().compress(random.Random(5).randbytes(512_000)),
        ]
    parts = [inflate(frame, kind, limit=1 << 20) for frame in frames]
    assert list(map(len, parts)) == [70_000, 1, 512_000]
    assert inflate(b"".join(frames), kind, limit=1 << 20) == b"".join(parts)


@framed
def test_many_frames_without_data_are_read_once(kind: Compression) -> None:
    body = DEFLATERS[kind](b"") * 100_000 + DEFLATERS[kind](b"hello")
    assert inflate(body, kind, limit=100) == b"hello"


def test_zlib_is_one_stream_as_in_rocketmq() -> None:
    for more in (b"more", zlib.compress(b" world")):
        assert inflate(zlib.compress(b"hello") + more, Compression.ZLIB, limit=100) == b"hello"


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0x000, None),
        (0x300, None),
        (0x001, Compression.ZLIB),
        (0x301, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x231, Compression.ZSTD),
    ],
)
def test_sys_flag_says_how(sys_flag: int, kind: Compression | None) -> None:
    assert compression_of(sys_flag) is kind


def test_compression_type_of_no_name_is_refused() -> None:
    with pytest.raises(BodyNotInflatable, match="compression type 7"):
        compression_of(0x701)
