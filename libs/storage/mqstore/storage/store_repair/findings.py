"""The findings of one verification, sorted by remedy."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mqstore.storage.store_repair.remedies import REMEDIES, Remedy
from mqstore.storage.verify.finding import Finding, Kind

_OF_ONE_ENTRY: Final = frozenset(
    {Kind.ENTRY_WRONG, Kind.ENTRY_ORDER, Kind.ENTRY_TAGS, Kind.ENTRY_UNIT}
)
_BY_FILE: Final = frozenset(
    {Kind.CONFIG, Kind.CONFIG_BACKUP, Kind.OURS, Kind.STRAY_REFUSED, Kind.QUEUE_FILE}
)
Queue = tuple[str, int]
"""Topic and queue id."""


@dataclass(slots=True)
class Findings:
    """The facts that remedies need. Memory grows with the number of wrong entries, 8 bytes
    each."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    entries: defaultdict[Queue, array[int]] = field(
        default_factory=lambda: defaultdict(lambda: array("q"))
    )
    """By queue, the numbers of its wrong entries."""
    beyond: set[Queue] = field(default_factory=set)
    """Queues with entries beyond the log's end."""
    with_holes: set[Queue] = field(default_factory=set)
    files: defaultdict[Kind, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By kind, the files that findings name."""
    odd_records: array[int] = field(default_factory=lambda: array("q"))
    """Physical offsets of records with a value that no writer stores."""
    changed_blocks: array[int] = field(default_factory=lambda: array("q"))
    """Physical offsets in blocks that do not match their checksum."""

    @classmethod
    def collect(cls, findings: Iterable[Finding]) -> Findings:
        """Read all findings."""
        found = cls()
        for finding in findings:
            found.add(finding)
        return found

    def add(self, finding: Finding) -> None:
        """Add one finding."""
        kind = finding.kind
        self.kinds[kind] += 1
        if kind in _BY_FILE:
            self.files[kind].append(finding.file)
        if kind is Kind.RECORD_ODD and finding.physical_offset is not None:
            self.odd_records.append(finding.physical_offset)
        if kind is Kind.BLOCK_CHANGED and finding.physical_offset is not None:
            self.changed_blocks.append(finding.physical_offset)
        if finding.topic is None or finding.queue_id is None:
            return
        queue = finding.topic, finding.queue_id
        if kind in _OF_ONE_ENTRY and finding.index is not None:
            self.entries[queue].append(finding.index)
        elif kind is Kind.ENTRY_BEYOND:
            self.beyond.add(queue)
        elif kind is Kind.QUEUE_HOLE:
            self.with_holes.add(queue)

    def wants(self, remedy: Remedy) -> bool:
        """Whether a finding has this remedy."""
        return any(REMEDIES[kind] is remedy for kind in self.kinds)

    def to_repair(self, ignored: frozenset[Kind] = frozenset()) -> Counter[Kind]:
        """The kinds that need a repair, with their counts."""
        return Counter(
            {
                kind: count
                for kind, count in self.kinds.items()
                if REMEDIES[kind] is not Remedy.NOTHING and kind not in ignored
            }
        )
