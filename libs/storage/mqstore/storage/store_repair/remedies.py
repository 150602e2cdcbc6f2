"""The remedy of each kind of finding: the one place that lists them all."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from mqstore.storage.verify.finding import Kind


class Remedy(StrEnum):
    """The kind of work that removes the cause of a finding."""

    OPEN = "open"
    """Open the store as its writer does, and close it cleanly: recovery cuts the tail."""
    REPLACE_RECORDS = "replace-records"
    """Restore the bytes that a block checksum proves, else place a tombstone of the record's size.
    Checksums that still disagree are made again from the bytes that are there."""
    FILL_GAP = "fill-gap"
    """Make the missing segments again, each with one blank record: a broker walks over them."""
    ACCEPT_LOSS = "accept-loss"
    """Accept that durable data is gone, as ``mqstore store accept-loss`` does."""
    REFIT_SEGMENT = "refit-segment"
    """Give a segment the length of the others."""
    MOVE_MESSAGES = "move-messages"
    """Store the message again at its queue's end, and replace the record by a tombstone."""
    REMAKE_ENTRIES = "remake-entries"
    """Blank the queue's wrong entries, and make what is missing again from the log."""
    REMAKE_INDEX = "remake-index"
    """Set the index files aside, and make the index again from the log."""
    REMAKE_CHECKPOINT = "remake-checkpoint"
    """Set the checkpoint aside; closing the store writes a new one."""
    RESTORE_TABLE = "restore-table"
    """Restore a config file from its ``.bak``, or the ``.bak`` from the file."""
    REMAKE_METADATA = "remake-metadata"
    """Set the file of mqstore aside; the opening writes a new one or does without."""
    SET_ASIDE = "set-aside"
    """Move the stray file to quarantine."""
    NOTHING = "nothing"
    """A note about a store that is correct, or a state that a broker alone can convert."""


REMEDIES: Final[Mapping[Kind, Remedy]] = {
    Kind.RECORD_BODY: Remedy.REPLACE_RECORDS,
    Kind.RECORD_BROKEN: Remedy.REPLACE_RECORDS,
    Kind.RECORD_ODD: Remedy.REPLACE_RECORDS,
    Kind.BLOCK_CHANGED: Remedy.REPLACE_RECORDS,
    Kind.LOG_GAP: Remedy.FILL_GAP,
    Kind.DATA_MISSING: Remedy.ACCEPT_LOSS,
    Kind.LOG_TAIL: Remedy.OPEN,
    Kind.SEGMENT_LENGTH: Remedy.REFIT_SEGMENT,
    Kind.QUEUE_OFFSET_TAKEN: Remedy.MOVE_MESSAGES,
    Kind.ENTRY_MISSING: Remedy.REMAKE_ENTRIES,
    Kind.ENTRY_WRONG: Remedy.REMAKE_ENTRIES,
    Kind.ENTRY_BEYOND: Remedy.REMAKE_ENTRIES,
    Kind.ENTRY_ORDER: Remedy.REMAKE_ENTRIES,
    Kind.ENTRY_TAGS: Remedy.REMAKE_ENTRIES,
    Kind.ENTRY_UNIT: Remedy.REMAKE_ENTRIES,
    Kind.QUEUE_HOLE: Remedy.REMAKE_ENTRIES,
    Kind.QUEUE_MISSING: Remedy.REMAKE_ENTRIES,
    Kind.QUEUE_FILE: Remedy.REMAKE_ENTRIES,
    Kind.INDEX_FILE: Remedy.REMAKE_INDEX,
    Kind.INDEX_HEADER: Remedy.REMAKE_INDEX,
    Kind.INDEX_CHAIN: Remedy.REMAKE_INDEX,
    Kind.INDEX_ITEM: Remedy.REMAKE_INDEX,
    Kind.INDEX_BEYOND: Remedy.REMAKE_INDEX,
    Kind.INDEX_MISSING: Remedy.REMAKE_INDEX,
    Kind.CHECKPOINT: Remedy.REMAKE_CHECKPOINT,
    Kind.CONFIG: Remedy.RESTORE_TABLE,
    Kind.CONFIG_BACKUP: Remedy.RESTORE_TABLE,
    Kind.OURS: Remedy.REMAKE_METADATA,
    Kind.STRAY_REFUSED: Remedy.SET_ASIDE,
    Kind.NOT_CLOSED: Remedy.OPEN,
    Kind.UNIT_MISSING: Remedy.NOTHING,
    Kind.STRAY: Remedy.NOTHING,
    Kind.STATE_NAMED: Remedy.NOTHING,
    Kind.STATE_REFUSED: Remedy.NOTHING,
    Kind.NOT_CHECKED: Remedy.NOTHING,
    Kind.QUARANTINED: Remedy.NOTHING,
    Kind.TOMBSTONE: Remedy.NOTHING,
    Kind.FILLER: Remedy.NOTHING,
    Kind.LOSS_ACCEPTED: Remedy.NOTHING,
    Kind.EXPIRED: Remedy.NOTHING,
}
"""Every kind, so that no finding is without a remedy."""
