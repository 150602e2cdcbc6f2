"""Writes a directory as a tar archive in which holes of files take no bytes.

The form is that of GNU tar for the PAX format ("1.0"): a map of the data precedes the data. GNU tar
and Python unpack it with the holes. Index files of a store have many.
"""

from __future__ import annotations

import errno
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

_BLOCK: Final = tarfile.BLOCKSIZE
_PAGE: Final = 4096
"""Bytes that a file takes on a disk at least, and in whole."""
_CHUNK: Final = 1 << 20

Ranges = list[tuple[int, int]]
"""Begin and end of each part of a file that is no hole."""


def size_on_disk(directory: Path) -> int:
    """Bytes that a copy takes whose files keep their holes. Raises OSError."""
    return sum(
        sum(_whole_pages(stop - start) for start, stop in _ranges_of(path))
        for path in directory.rglob("*")
        if path.is_file()
    )


def pack(archive: IO[bytes], directory: Path) -> Iterator[int]:
    """Write what is below a directory; yields the bytes on disk of each file. Raises OSError."""
    with tarfile.open(fileobj=archive, mode="w|", format=tarfile.PAX_FORMAT) as members:
        for path in sorted(directory.rglob("*")):
            member = members.gettarinfo(path, str(path.relative_to(directory)))
            member.uid = member.gid = 0  # the user who unpacks the files owns them
            member.uname = member.gname = ""
            if not member.isreg():
                members.addfile(member)
                yield 0
                continue
            ranges = _ranges_of(path)
            with path.open("rb") as file:
                _add(members, member, file, ranges)
            yield sum(_whole_pages(stop - start) for start, stop in ranges)


def _add(
    members: tarfile.TarFile, member: tarfile.TarInfo, file: IO[bytes], ranges: Ranges
) -> None:
    if ranges == [(0, member.size)] or not member.size:
        members.addfile(member, file)
        return
    places = [*ranges, (member.size, member.size)]  # the last one shows where the file ends
    numbers = [len(places), *(n for start, stop in places for n in (start, stop - start))]
    head = "".join(f"{number}\n" for number in numbers).encode()
    head += bytes(-len(head) % _BLOCK)
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": member.name,
        "GNU.sparse.realsize": str(member.size),
    }
    member.size = len(head) + sum(stop - start for start, stop in ranges)
    members.addfile(member, _Parts(head, file, ranges))


class _Parts(io.RawIOBase):
    """The map of a sparse file, then its data."""

    def __init__(self, head: bytes, file: IO[bytes], ranges: Ranges) -> None:
        self._pieces = _pieces(head, file, ranges)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """The next bytes: exactly ``size``, unless the file became shorter."""
        found = [self._rest]
        missing = size - len(self._rest)
        while missing > 0 and (piece := next(self._pieces, b"")):
            found.append(piece)
            missing -= len(piece)
        whole = b"".join(found)
        self._rest = whole[size:]
        return whole[:size]


def _pieces(head: bytes, file: IO[bytes], ranges: Ranges) -> Iterator[bytes]:
    yield head
    for start, stop in ranges:
        file.seek(start)
        for at in range(start, stop, _CHUNK):
            yield file.read(min(_CHUNK, stop - at))


def _ranges_of(path: Path) -> Ranges:
    """The parts of a file with data; all of it where the file system does not show its holes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        return list(_ranges(descriptor, size))
    finally:
        os.close(descriptor)


def _ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    stop = 0
    while stop < size:
        try:
            start = os.lseek(descriptor, stop, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: only a hole follows
                yield stop, size
            return
        stop = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, stop


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
