"""Inflates bodies that a producer compressed, up to a size limit.

SYSFLAG says whether and how a body is compressed: ZLIB (as RocketMQ before 5.0 does without a
type), LZ4 in its frame format, or ZSTD. Facts: MessageSysFlag, UtilAll and the Compressors of
rocketmq-common 4.9.7 and 5.4.0. The store itself inflates no body.
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
"""Maximum window of a frame, in bytes: the limit that zstd itself has by default."""


class Compression(StrEnum):
    """How a producer compressed a body."""

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
    """The compression that SYSFLAG names, or None. Raises BodyNotInflatable for an unknown type."""
    if not sys_flag & SysFlag.COMPRESSED:
        return None
    kind = sys_flag & SysFlag.COMPRESSION_TYPE_MASK
    found = _BY_TYPE.get(kind)
    if found is None:
        raise BodyNotInflatable(f"its compression type {kind >> 8} is none that RocketMQ has")
    return found


def inflate(body: bytes, compression: Compression, *, limit: int) -> bytes:
    """Inflate a body to at most ``limit`` bytes.

    As in RocketMQ, bytes after the end of the compressed data are ignored. Raises BodyNotInflatable
    where the body is truncated, damaged, or longer than ``limit``.
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
    # The reader accepts a missing end; the size limit was checked before.
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflater.decompress(body)
    return found, inflater.eof


_INFLATERS: Final[dict[Compression, Callable[[bytes, int], tuple[bytes, bool]]]] = {
    Compression.ZLIB: _zlib,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
