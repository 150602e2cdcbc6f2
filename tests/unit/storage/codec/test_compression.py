from __future__ import annotations

import contextlib
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


@pytest.mark.parametrize("kind", list(Compression))
def test_what_follows_the_end_is_left_out(kind: Compression) -> None:
    assert inflate(DEFLATERS[kind](b"hello") + b"more", kind, limit=100) == b"hello"


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
