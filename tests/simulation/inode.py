"""One file of the simulated disk: what every process sees, what is durable, and what may be.

Unchanged bytes are shared between a file and its copies on other disks: only a file that
is mapped has memory of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

PAGE: Final = 4096
SECTOR: Final = 512
NEVER: Final = -1
"""Before the first moment."""

Version = tuple[int, bytes]
"""A page's content, and the moment when it was seen first."""


class Loss(StrEnum):
    """Effect of a power cut on data that was not synced."""

    DROP = "drop"
    """All of it is lost."""
    PREFIX = "prefix"
    """Earlier changes survive, content and names in one order: a disk that does not reorder."""
    TORN_512 = "torn512"
    """Each sector survives or not, on its own, in any version that was in memory."""
    TORN_4096 = "torn4096"
    """Each page, likewise."""

    @property
    def unit(self) -> int:
        return SECTOR if self is Loss.TORN_512 else PAGE


class Inode:
    """See the module."""

    __slots__ = (
        *("dirty", "durable", "lost", "maps", "memory", "modified_ms", "reserved", "seen"),
        "truncated",
    )

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.seen = content
        """At the last look."""
        self.durable = b""
        self.modified_ms = modified_ms
        self.memory: bytearray | None = None
        """Memory that maps the file; made when first needed."""
        self.maps = 0
        """Writable mappings that were not unmapped."""
        self.dirty: dict[int, list[Version]] = {}
        """By page, each content seen since the page was last written back."""
        self.lost: set[int] = set()
        """Pages that a failed sync left clean in memory and not on the disk."""
        self.reserved = 0
        """Pages that have disk blocks, as bits."""
        self.truncated = False
        """Whether it was cut to nothing since it was last written back."""

    def date_back(self) -> None:
        """Date pages that are dirty at the start of the next process before its first operation."""
        for page, versions in self.dirty.items():
            self.dirty[page] = [(NEVER, content) for _, content in versions]

    @property
    def size(self) -> int:
        return len(self.seen)

    @property
    def blocks(self) -> int:
        return self.reserved.bit_count()

    def map(self) -> memoryview:
        if self.memory is None:
            self.memory = bytearray(self.seen)
        return memoryview(self.memory)

    @property
    def is_mapped(self) -> bool:
        """Whether any process still has a map of it, or a slice of one."""
        if self.memory is None:
            return False
        try:
            self.memory.append(0)
        except BufferError:
            return True
        self.memory.pop()
        return False

    def look(self, moment: int, now_ms: int) -> list[int]:
        """Find the pages that changed since the last look; answers those in holes."""
        if self.memory is None or self.memory == self.seen:
            return []
        content = bytes(self.memory)
        changed = [p for p in pages(len(content)) if page_of(content, p) != page_of(self.seen, p)]
        for page in changed:
            self.dirty.setdefault(page, []).append((moment, page_of(content, page)))
        self.seen = content
        self.modified_ms = now_ms
        return [page for page in changed if not self.reserved >> page & 1]

    def touch(self, page: int, moment: int) -> None:
        """A page was stored again, maybe with what it held."""
        self.dirty.setdefault(page, []).append((moment, page_of(self.seen, page)))

    def replace(self, data: bytes, moment: int, now_ms: int) -> None:
        """Give it other content, as writing through a descriptor does: blocks come along."""
        self.truncated = True
        self._store(data, 0, moment, now_ms)

    def append(self, data: bytes, moment: int, now_ms: int) -> None:
        """Write behind its end, through a descriptor."""
        self._store(self.seen + data, self.size, moment, now_ms)

    def _store(self, content: bytes, start: int, moment: int, now_ms: int) -> None:
        self._set(content)
        self.modified_ms = now_ms
        self.reserve(start, len(content) - start)
        for page in pages(len(content))[start // PAGE :]:
            self.touch(page, moment)

    def resize(self, size: int) -> None:
        """Those who have it mapped keep what they mapped."""
        self._set(self.seen[:size].ljust(size, b"\0"))

    def _set(self, content: bytes) -> None:
        self.seen = content
        if self.memory is None:
            return
        if len(self.memory) == len(content):
            self.memory[:] = content
        else:
            self.memory = None

    def reserve(self, offset: int, length: int) -> None:
        self.reserved |= page_bits(offset, length)

    def new_blocks(self, offset: int, length: int) -> int:
        return (page_bits(offset, length) & ~self.reserved).bit_count()

    def write_back(self) -> None:
        """All dirty pages become durable."""
        self.lost.difference_update(self.dirty)
        if self.lost:
            self._write(self.dirty)
        else:
            self.durable = self.seen
        self.dirty = {}
        self.truncated = False

    def write_back_half(self, moment: int) -> None:
        """Make every other dirty page durable; the moment selects which."""
        written = sorted(self.dirty)[moment % 2 :: 2]
        self._write(written)
        self.lost.difference_update(written)
        for page in written:
            del self.dirty[page]

    def _write(self, numbers: Iterable[int]) -> None:
        durable = bytearray(self.durable[: self.size].ljust(self.size, b"\0"))
        for page in numbers:
            durable[page * PAGE : (page + 1) * PAGE] = page_of(self.seen, page)
        self.durable = bytes(durable)

    def forget_dirty(self) -> None:
        """All pages count as clean, as they do after a sync that failed."""
        self.lost.update(self.dirty)
        self.dirty = {}

    # what is left of it

    def clone(self) -> Inode:
        """The file as the next process finds it: page cache and all."""
        copied = Inode(self.seen, self.modified_ms)
        copied.durable = self.durable
        copied.dirty = {page: list(versions) for page, versions in self.dirty.items()}
        copied.lost = set(self.lost)
        copied.reserved = self.reserved
        copied.truncated = self.truncated
        return copied

    def survive(self, rng: random.Random, loss: Loss, moment: int) -> Inode:
        """The file as a power cut leaves it; ``moment`` is the last one of a prefix."""
        content = self.durable
        if loss is not Loss.DROP and (self.dirty or len(content) != self.size):
            content = self._surviving(rng, loss, moment)
        copied = Inode(content, self.modified_ms)
        copied.durable = content
        copied.reserved = self.reserved & page_bits(0, len(content))
        return copied

    def _surviving(self, rng: random.Random, loss: Loss, moment: int) -> bytes:
        size = self.size
        if loss is not Loss.PREFIX and len(self.durable) != size:
            size = rng.choice([len(self.durable), size] + [0] * self.truncated)
        content = bytearray(self.durable.ljust(max(self.size, len(self.durable)), b"\0"))
        for page, versions in sorted(self.dirty.items()):
            before = (NEVER, bytes(content[page * PAGE : (page + 1) * PAGE]))
            candidates = [before, *versions]
            if loss is Loss.PREFIX:
                candidates = [version for version in candidates if version[0] <= moment][-1:]
            for start in range(0, PAGE, loss.unit):
                part = rng.choice(candidates)[1][start : start + loss.unit]
                content[page * PAGE + start : page * PAGE + start + len(part)] = part
        return bytes(content[:size].ljust(size, b"\0"))


def pages(size: int) -> range:
    return range(-(-size // PAGE))


def page_of(content: bytes, page: int) -> bytes:
    return content[page * PAGE : (page + 1) * PAGE]


def page_bits(offset: int, length: int) -> int:
    """The pages that a range touches."""
    if length <= 0:
        return 0
    first, end = offset // PAGE, -(-(offset + length) // PAGE)
    return ((1 << end - first) - 1) << first
