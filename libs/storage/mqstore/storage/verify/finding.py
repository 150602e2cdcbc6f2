"""The findings of ``verify``, and a real broker's action on each.

Outcomes were observed on 4.9.7 and 5.4.0 (docs/rocketmq-observed.md and the damage table that the
store's formats came with), or read from their recovery code where no run was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """One kind of finding; the JSON name is stable."""

    RECORD_BODY = "record-body"
    """The body does not match BODYCRC."""
    RECORD_BROKEN = "record-broken"
    """Magic or lengths are wrong: there is no whole record."""
    RECORD_ODD = "record-odd"
    """The lengths are right, but a field has a value that no writer stores."""
    BLOCK_CHANGED = "block-changed"
    """Bytes of the log do not match our block checksum."""
    LOG_GAP = "log-gap"
    DATA_MISSING = "data-missing"
    """Durable data, according to our own files, is absent: nothing may be written before its loss
    is accepted."""
    LOG_TAIL = "log-tail"
    """Bytes after the log's end."""
    SEGMENT_LENGTH = "segment-length"
    QUEUE_OFFSET_TAKEN = "queue-offset-taken"
    """A record whose queue offset belongs to another whole record."""

    ENTRY_MISSING = "entry-missing"
    ENTRY_WRONG = "entry-wrong"
    """An entry that names no record of its queue offset."""
    ENTRY_BEYOND = "entry-beyond-log"
    ENTRY_ORDER = "entry-order"
    ENTRY_TAGS = "entry-tags-code"
    ENTRY_UNIT = "entry-unit"
    """An entry whose ConsumeQueueExt unit disagrees with its record."""
    QUEUE_HOLE = "queue-hole"
    QUEUE_MISSING = "queue-missing"
    QUEUE_FILE = "queue-file"
    """A file that is missing in a run, or of a wrong length."""

    INDEX_FILE = "index-file"
    """A length or header that no index file has."""
    INDEX_HEADER = "index-header"
    """A header that disagrees with the file's own items."""
    INDEX_CHAIN = "index-chain"
    INDEX_ITEM = "index-item"
    """An item that names no record with such a key."""
    INDEX_BEYOND = "index-item-beyond-log"
    INDEX_MISSING = "key-missing"
    """Keys of messages that are in no index file."""

    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    CONFIG_BACKUP = "config-backup"
    OURS = "mqstore-file"
    STATE_REFUSED = "state-refused"
    """A state of a broker that mqstore cannot serve: no opening for writing."""
    STRAY_REFUSED = "stray-refused"
    """A stray file that prevents the start of a broker."""

    UNIT_MISSING = "unit-missing"
    """An entry without the ConsumeQueueExt unit that it names."""
    NOT_CLOSED = "not-closed"
    STRAY = "stray"
    STATE_NAMED = "state-named"
    """A state of a broker or another program that mqstore does without."""
    NOT_CHECKED = "not-checked"
    QUARANTINED = "quarantined"
    TOMBSTONE = "tombstone"
    FILLER = "queue-filler"
    LOSS_ACCEPTED = "loss-accepted"
    EXPIRED = "expired-entries"
    """Entries of records below the log's first segment."""

    @property
    def is_of_a_record(self) -> bool:
        """Whether the finding is about one record of the log."""
        return self in (Kind.RECORD_BODY, Kind.RECORD_BROKEN, Kind.RECORD_ODD)


class Level(StrEnum):
    """How serious a finding is."""

    FINDING = "finding"
    """An invariant is violated."""
    NOTE = "note"
    """Information; the store is correct."""


_NOTES: Final = frozenset(
    {
        *(Kind.NOT_CLOSED, Kind.STRAY, Kind.STATE_NAMED, Kind.NOT_CHECKED, Kind.UNIT_MISSING),
        *(Kind.QUARANTINED, Kind.TOMBSTONE, Kind.FILLER, Kind.EXPIRED, Kind.LOSS_ACCEPTED),
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``file`` is relative to the store where it lies inside; ``offset`` is the byte in it;
    ``physical_offset`` that in the log; ``index`` a queue entry's or index item's number.
    """

    kind: Kind
    file: str
    what: str
    broker: str
    """The action of a real broker."""
    offset: int | None = None
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    index: int | None = None

    @property
    def level(self) -> Level:
        """How serious the finding is."""
        return Level.NOTE if self.kind in _NOTES else Level.FINDING

    @property
    def stops_a_broker(self) -> bool:
        """Whether a broker does not start."""
        return REFUSES in self.broker


SERVES: Final = "serves it where it wrote it, else ignores it"
_ALWAYS: Final[dict[Kind, str]] = {
    Kind.RECORD_BODY: "not noticed at its next start; a read returns the damaged body",
    Kind.RECORD_BROKEN: "not noticed at its next start; a read of the record fails",
    Kind.RECORD_ODD: "not checked by it: the record is kept and dispatched as it stands",
    Kind.LOG_GAP: "opens; messages behind the gap are read as before, those inside are skipped",
    Kind.DATA_MISSING: "not noticed: it opens with what is there and gives queue offsets out again",
    Kind.LOSS_ACCEPTED: "none: it does not look at this file",
    Kind.LOG_TAIL: "the bytes stay behind its write position until they are overwritten",
    Kind.SEGMENT_LENGTH: "refuses to start",
    Kind.BLOCK_CHANGED: "not noticed unless a body changed: it has checksums of bodies only",
    Kind.QUEUE_OFFSET_TAKEN: "not noticed: the record is in no queue",
    Kind.ENTRY_WRONG: "not noticed: a pull skips the entry or returns what it names",
    Kind.ENTRY_ORDER: "not noticed: look-ups by time and expiry may miss entries",
    Kind.ENTRY_TAGS: "not noticed: a subscription by tag may miss the message or get it wrongly",
    Kind.ENTRY_UNIT: (
        "not noticed: a subscription by tag or expression may miss the message or get it wrongly"
    ),
    Kind.UNIT_MISSING: "logged: a filtered pull looks at the message itself",
    Kind.QUEUE_HOLE: (
        "kept as an entry: a pull skips it and those behind it in its file whose records lie in "
        "segment 0; as a queue's last entry it stops later puts from getting entries"
    ),
    Kind.QUEUE_FILE: "reads of its entries fail",
    Kind.INDEX_FILE: "not noticed: a short file is extended with zeros, queries miss what is wrong",
    Kind.INDEX_HEADER: "not noticed: queries by time may leave the file out",
    Kind.INDEX_CHAIN: "not noticed: queries miss the older part of the chain",
    Kind.INDEX_ITEM: "not noticed: a query reads the record and the client drops it",
    Kind.INDEX_BEYOND: "a query that meets it logs an error and leaves it out",
    Kind.CONFIG: "falls back to the .bak; without one it begins with an empty table",
    Kind.CONFIG_BACKUP: "no effect while the file itself can be read",
    Kind.OURS: "none: it does not look at these files",
    Kind.STRAY_REFUSED: "refuses to start",
    Kind.NOT_CLOSED: "recovers as after a crash",
    Kind.STRAY: "ignores it",
    Kind.STATE_REFUSED: SERVES,
    Kind.STATE_NAMED: SERVES,
    Kind.NOT_CHECKED: "not known",
    Kind.QUARANTINED: "none: it does not look there",
    Kind.FILLER: "delivers the message that is repeated once more",
    Kind.EXPIRED: "skips them: its minimum offset is that of the log",
    Kind.TOMBSTONE: "reads it as a message of zeros, or as a rolled back one",
}
_CLEAN: Final[dict[Kind, str]] = {
    Kind.ENTRY_MISSING: (
        "not rebuilt after a clean close: dispatch resumes at the largest offset found in any "
        "queue, and later records may take these places"
    ),
    Kind.QUEUE_MISSING: "not rebuilt after a clean close unless all queues are gone",
    Kind.ENTRY_BEYOND: "cut at its next start",
    Kind.INDEX_MISSING: "never indexed again after a clean close",
    Kind.CHECKPOINT: "no effect after a clean close; a crash later is recovered from a wrong place",
}
_CRASHED: Final[dict[Kind, str]] = {
    Kind.ENTRY_MISSING: "made again as far as recovery's start segment reaches back, else lost",
    Kind.QUEUE_MISSING: "made again as far as recovery's start segment reaches back, else lost",
    Kind.ENTRY_BEYOND: "cut by recovery",
    Kind.INDEX_MISSING: "indexed again as far as recovery's start segment reaches back, else lost",
    Kind.CHECKPOINT: "recovery starts at another segment, and drops or keeps the wrong index files",
}
CUTS: Final = "cuts the log here at its next start: this record and all behind it are lost"
REFUSES: Final = "refuses to start"
REMOVES: Final = "removes it and starts"


def effect(kind: Kind, *, crashed: bool) -> str:
    """A broker's action on a kind of finding, independent of its place; ``crashed``:

    ``abort`` exists.
    """
    if kind in _ALWAYS:
        return _ALWAYS[kind]
    return (_CRASHED if crashed else _CLEAN)[kind]
