"""Bodies that a producer compressed, inflated within a bound.

SYSFLAG says that a body is compressed, and how: ZLIB (as RocketMQ before 5.0 does without a type),
LZ4 in its frame format, or ZSTD. Facts: MessageSysFlag, UtilAll and the Compressors of
rocketmq-common 4.9.7 and 5.4.0. The store itself never inflates anything.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import lz4.frame
import zstandard

from mqstore.storage.errors import BodyNotInflatable
from mqstore.storage.layout import SysFlag

_ZSTD_WINDOW_MAX: Final = 1 << 27
"""Bytes that a frame may make its reader keep; what zstd itself allows by default."""


class Compression(StrEnum):
    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


_BY_TYPE: Final = {
    0x000: Compression.ZLIB,
    0x100: Compression.LZ4,
    0x200: Compression.ZSTD,
    0x300: Compression.ZLIB,
}


def compression_of(sys_flag: int) -> Compression | None:
    """How a body is compressed; None where it is not. BodyNotInflatable for a type of no name."""
    if not sys_flag & SysFlag.COMPRESSED:
        return None
    kind = sys_flag & SysFlag.COMPRESSION_TYPE_MASK
    found = _BY_TYPE.get(kind)
    if found is None:
        raise BodyNotInflatable(f"its compression type {kind >> 8} is none that RocketMQ has")
    return found


def inflate(body: bytes, compression: Compression, *, limit: int) -> bytes:
    """The body as it was before it was compressed; at most ``limit`` bytes are ever made of it.

    What follows the end of the compressed data is left out, as RocketMQ does. Raises
    BodyNotInflatable where the body is cut short, damaged, or would be longer.
    """
    try:
        found, is_whole = _INFLATERS[compression](body, limit + 1)
    except (zlib.error, RuntimeError, zstandard.ZstdError) as error:
        raise BodyNotInflatable(f"it is no {compression} data: {error}") from error
    if len(found) > limit:
        raise BodyNotInflatable(f"inflated it is longer than {limit} bytes; take it as it is")
    if not is_whole:
        raise BodyNotInflatable(f"its {compression} data is cut short")
    return found


def _zlib(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    return inflater.decompress(body, limit), inflater.eof


def _lz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = lz4.frame.LZ4FrameDecompressor()
    return inflater.decompress(body, limit), inflater.eof


def _zstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).stream_reader(body)
    found = reader.read(limit)
    if len(found) == limit:
        return found, False
    # Its reader takes a missing end for the end; that nothing is too long is known by now.
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflater.decompress(body)
    return found, inflater.eof


_INFLATERS: Final[dict[Compression, Callable[[bytes, int], tuple[bytes, bool]]]] = {
    Compression.ZLIB: _zlib,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
