"""Verifies a store without changing it; each invariant is checked in one place.

``Verification`` yields findings while it reads, in bounded memory: the index against itself, the
log with each record's queue and index entries, the queues, and the small files. A store that a
writer has open is read up to the offset that was dispatched at the start.

Used by ``mqstore store verify`` and ``dump``; ``info`` prints ``overview_of`` a store, and jobs
that read a store by its path use ``StoreAtRest``. Needs no lock and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mqstore.storage.config import StoreConfig
from mqstore.storage.inventory import ALL as STATES
from mqstore.storage.inventory import Subject
from mqstore.storage.progress import Progress, no_progress
from mqstore.storage.seams import Seams
from mqstore.storage.system.overlay_files import PrivateBase
from mqstore.storage.verify.broker import Broker, foresee
from mqstore.storage.verify.finding import Finding, Kind, Level
from mqstore.storage.verify.index_check import IndexCheck
from mqstore.storage.verify.log_check import LogCheck
from mqstore.storage.verify.log_walk import Stretch, walk_log
from mqstore.storage.verify.overview import Left, Overview, overview_of
from mqstore.storage.verify.queue_check import QueueCheck
from mqstore.storage.verify.small_files import SmallFilesCheck
from mqstore.storage.verify.store_at_rest import StoreAtRest

__all__ = [
    "STATES",
    "Broker",
    "Finding",
    "Kind",
    "Left",
    "Level",
    "Overview",
    "StoreAtRest",
    "Stretch",
    "Subject",
    "Summary",
    "Verification",
    "overview_of",
    "walk_log",
]


@dataclass(slots=True)
class Summary:
    """The amount that was read, and the number of findings."""

    segments: int = 0
    log_bytes: int = 0
    records: int = 0
    """Number of whole records."""
    queues: int = 0
    entries: int = 0
    index_files: int = 0
    index_items: int = 0
    findings: int = 0
    notes: int = 0
    broker_starts: bool = True
    """Whether a real broker would start on the store as it is."""
    broker_max_offset: int = 0
    """The end of that broker's log."""


class Verification:
    """One verification of one store. ``summary`` is complete once ``findings`` has ended."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        seams: Seams,
        progress: Progress = no_progress,
    ) -> None:
        """``root`` is absolute; sizes come from format.json, else from the files, else from
        ``config``.

        Raises DirectoryNotUsable, StoreUnsupported, StoreDamaged, OSError.
        """
        self.summary = Summary()
        base = cast(PrivateBase, seams.files)
        self.store = StoreAtRest.open(root, config, seams, base, progress)
        self.unqueued: Sequence[int] = ()
        """Physical offsets of whole records that are in no queue, once ``findings`` has ended."""
        self._progress = progress

    def findings(self) -> Iterator[Finding]:
        """Yield the findings while the store is read. Once only."""
        for finding in self._checks():
            if finding.level is Level.NOTE:
                self.summary.notes += 1
            else:
                self.summary.findings += 1
            if finding.stops_a_broker:
                self.summary.broker_starts = False
            yield finding

    def _checks(self) -> Iterator[Finding]:
        store, summary = self.store, self.summary
        queues, index = QueueCheck(store, self._progress), IndexCheck(store)
        store.broker = foresee(store.view, queues.max_physical_end())
        summary.broker_max_offset = store.broker.end
        log = LogCheck(store, queues, index, self._progress)
        yield from index.files()
        yield from log.findings()
        yield from queues.entries()
        self.unqueued = sorted(set(queues.unqueued))
        yield from SmallFilesCheck(store).findings(log.newest_ms)
        summary.segments = len(store.view.segments.usable)
        summary.log_bytes = store.end - store.min_offset
        summary.records = log.records
        summary.queues, summary.entries = queues.count, queues.entries_seen
        summary.index_files, summary.index_items = index.file_count, index.items
