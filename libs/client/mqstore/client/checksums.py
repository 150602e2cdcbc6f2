"""Checksums of message bodies and of parts of files."""

from __future__ import annotations


def crc32c(content: bytes) -> int:
    """Return the CRC-32C of ``content``.

    The library is imported at the first use: it imports its own command and the metadata of
    packages, which takes 15 ms, and most commands compute no checksum.
    """
    from crc32c import crc32c as compute

    return compute(content)
