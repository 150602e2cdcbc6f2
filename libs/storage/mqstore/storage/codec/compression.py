"""Inflates bodies that a producer compressed, up to a size limit.

SYSFLAG says whether and how a body is compressed: ZLIB (as RocketMQ before 5.0 does without a
type), LZ4 in its frame format, or ZSTD. Facts: MessageSysFlag, UtilAll and the Compressors of
rocketmq-common 4.9.7 and 5.4.0, LZ4FrameInputStream, ZstdInputStream and InflaterInputStream. The
store itself inflates no body.
"""

from __future__ import annotations

import struct
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
_LZ4_PART: Final = 1 << 18
"""Bytes taken from the LZ4 library at once: it allocates them in each call, as for each frame."""
_ZSTD_HEAD_MAX: Final = 18
"""Bytes of the longest frame header, with its magic number (RFC 8878, 3.1.1)."""
_ZSTD_BLOCK_HEAD: Final = 3
_ZSTD_RLE: Final = 1
"""The type of a block that is one byte, repeated."""
_ZSTD_DESCRIPTOR: Final = 4
"""Position of the byte of a frame header that says whether a checksum ends the frame."""
_ZSTD_HAS_CHECKSUM: Final = 4
_ZSTD_CHECKSUM_SIZE: Final = 4
_SKIPPABLE_MAGIC: Final = 0x184D2A50
"""The first of 16 magic numbers of a frame without data (RFC 8878, 3.1.2)."""
_SKIPPABLE_MASK: Final = 0xFFFFFFF0
_SKIPPABLE_HEAD: Final = struct.Struct("<II")
"""Magic number, and bytes of the rest."""


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

    As RocketMQ does, all frames of LZ4 and ZSTD are inflated, one after the other, and other bytes
    behind a frame are an error; what follows the one stream of ZLIB is ignored. Linear in the bytes
    of the body and of the result. Raises BodyNotInflatable where the body is truncated, damaged,
    or longer than ``limit``.
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
    context, data = lz4.frame.create_decompression_context(), memoryview(body)
    parts, size, position, is_whole = list[bytes](), 0, 0, False
    while size < limit and not (is_whole and position == len(data)):
        part, taken, is_whole = lz4.frame.decompress_chunk(
            context, data[position:], max_length=min(_LZ4_PART, limit - size)
        )
        if not part and not taken:  # the frame needs more bytes than there are
            return b"".join(parts), False
        parts.append(part)
        size += len(part)
        position += taken
    return b"".join(parts), is_whole


def _zstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    found = inflater.stream_reader(body, read_across_frames=True).read(limit)
    return found, len(found) < limit and _is_whole_zstd(body)


def _is_whole_zstd(body: bytes) -> bool:
    """Whether the body ends where a frame does: the library accepts a missing end."""
    position = _end_of_zstd_frame(body, 0)
    while position < len(body):
        position = _end_of_zstd_frame(body, position)
    return position == len(body)


def _end_of_zstd_frame(body: bytes, start: int) -> int:
    """Return the position after a frame, beyond the body's end where the frame is cut short."""
    if len(body) - start < _SKIPPABLE_HEAD.size:
        return len(body) + 1
    magic, size = _SKIPPABLE_HEAD.unpack_from(body, start)
    if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
        return start + _SKIPPABLE_HEAD.size + int(size)
    head = zstandard.frame_header_size(body[start : start + _ZSTD_HEAD_MAX])
    position, is_last = start + head, False
    while not is_last:
        block = body[position : position + _ZSTD_BLOCK_HEAD]
        if len(block) < _ZSTD_BLOCK_HEAD:
            return len(body) + 1
        word = int.from_bytes(block, "little")
        is_last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
        position += _ZSTD_BLOCK_HEAD + (1 if kind == _ZSTD_RLE else size)
    has_checksum = body[start + _ZSTD_DESCRIPTOR] & _ZSTD_HAS_CHECKSUM
    return position + (_ZSTD_CHECKSUM_SIZE if has_checksum else 0)


_INFLATERS: Final[dict[Compression, Callable[[bytes, int], tuple[bytes, bool]]]] = {
    Compression.ZLIB: _zlib,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
