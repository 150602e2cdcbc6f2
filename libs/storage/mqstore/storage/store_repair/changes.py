"""The changes of a repair, planned or done, one for each message that is lost or moved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mqstore.storage.lost_data import ByteRange

LISTED_MAX: Final = 1_000
"""Maximum number of listed changes of one action; further ones are counted."""


class Action(StrEnum):
    """The kind of a change; the JSON name is stable."""

    RESTORE_BYTES = "restore-bytes"
    """A record gets back the bytes that were written."""
    PLACE_TOMBSTONE = "place-tombstone"
    """The message is lost; a valid record of its size replaces it."""
    CLOSE_SEGMENT = "close-segment"
    """A blank record replaces unreadable bytes up to the segment's end."""
    CUT_TAIL = "cut-tail"
    """Bytes behind the log's end become zeros."""
    REMOVE_SEGMENT = "remove-segment"
    """A segment behind the log's end is removed."""
    CUT_MESSAGE = "cut-message"
    """A whole record in bytes that are cut."""
    MOVE_MESSAGE = "move-message"
    """The message is stored again at its queue's end; a tombstone replaces its record."""
    LOSE_MESSAGES = "lose-messages"
    """The messages of a range of queue offsets are gone with their segments."""
    FILL_GAP = "fill-gap"
    REFIT_SEGMENT = "refit-segment"
    FORGET_CHECKSUMS = "forget-checksums"
    """Block checksums that the bytes disagree with are made again."""
    BLANK_ENTRIES = "blank-entries"
    """Wrong entries of a queue are blanked, to be made again from the log."""
    REMAKE_QUEUES = "remake-queues"
    """Missing entries are made again from the log; where it has no record, the entry before is
    repeated."""
    REFIT_QUEUE_FILE = "refit-queue-file"
    REMAKE_INDEX = "remake-index"
    RESTORE_TABLE = "restore-table"
    RESET_TABLE = "reset-table"
    """A config file that neither itself nor its ``.bak`` can give back is set aside."""
    SET_ASIDE = "set-aside"
    """A file is moved, or copied, to quarantine."""
    REMAKE_FILE = "remake-file"
    """A file of mqstore is made again by the opening, which may do without its content."""
    DESCRIBE_ENTRY = "describe-entry"
    """An entry of the quarantine gets a new description of its bytes."""
    CLOSE = "close"
    """The store is opened, recovered and closed cleanly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change. Offsets are in bytes; ``file`` is relative to the store where it lies inside."""

    action: Action
    what: str
    file: str | None = None
    physical_offset: int | None = None
    length: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    unique_key: str | None = None
    keys: str | None = None
    lost: int = 0
    """Number of messages that are lost."""


@dataclass(slots=True)
class ChangeList:
    """The changes in their order, the first ``LISTED_MAX`` of each action, and their counts."""

    listed: list[Change] = field(default_factory=list)
    counts: Counter[Action] = field(default_factory=Counter)
    lost: int = 0
    """Number of messages that are lost."""
    counted: list[ByteRange] = field(default_factory=list)
    """Ranges of the log whose messages are counted as lost already."""

    def is_counted(self, offset: int) -> bool:
        """Whether the loss of the message at a physical offset is counted already."""
        return any(each.start <= offset < each.stop for each in self.counted)

    def add(self, change: Change) -> None:
        """Add a change."""
        self.counts[change.action] += 1
        self.lost += change.lost
        if self.counts[change.action] <= LISTED_MAX:
            self.listed.append(change)

    @property
    def moved(self) -> int:
        """Number of messages that are moved."""
        return self.counts[Action.MOVE_MESSAGE]

    @property
    def unlisted(self) -> dict[Action, int]:
        """By action, the number of changes that are not listed."""
        return {
            action: count - LISTED_MAX
            for action, count in self.counts.items()
            if count > LISTED_MAX
        }
