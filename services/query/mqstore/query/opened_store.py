"""The store that was opened at a path, and all that is remembered of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mqstore.query.known_topics import KnownTopics
from mqstore.storage import StoreReader
from mqstore.storage.admin import ConsumerFilters, ConsumerOffsets, DelayOffsets, FollowedTable
from mqstore.storage.directory import StorePaths
from mqstore.storage.host import Seams


class OpenedStore:
    """A store that takes the place of this one is opened as another ``OpenedStore``: nothing that
    is remembered here is answered of it."""

    def __init__(self, reader: StoreReader, seams: Seams) -> None:
        paths = StorePaths(reader.root)
        self.reader = reader
        self.id = reader.format.store_id
        self.topics = KnownTopics(paths, seams)
        self.offsets = FollowedTable(ConsumerOffsets, paths, seams)
        self.filters = FollowedTable(ConsumerFilters, paths, seams)
        self.delays = FollowedTable(DelayOffsets, paths, seams)
        self.in_memory_until: dict[tuple[str, int], float] = {}
        """Queues, and until when their ends are surely in memory: they were read a moment ago."""

    @classmethod
    def open(cls, root: Path, seams: Seams, on_damage: Callable[[int], object]) -> OpenedStore:
        """Open a store for reading. Errors as ``StoreReader.open``."""
        return cls(StoreReader.open(root, seams, on_damage), seams)

    @property
    def why_replaced(self) -> str | None:
        """None while its files are still those at its path."""
        try:
            return self.reader.why_replaced
        except OSError as error:
            return f"its files cannot be looked at ({error})"
