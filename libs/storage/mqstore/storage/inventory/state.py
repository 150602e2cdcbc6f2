"""``State``: one row of the table of what brokers leave in a store, and how it is made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

V5: Final = "5.x"


class Verdict(StrEnum):
    """How a state is taken over; the JSON name is stable."""

    READ = "read"
    """Served, continued, and handed back as the broker left it."""
    REFUSED = "refused"
    """The store is not opened for writing."""
    NAMED = "named"
    """The store is served without it; reported at the opening, by verify and by info."""


class Subject(StrEnum):
    """The part of a store that a state is found in."""

    FILE = "file"
    """A file or directory, by its path below the root."""
    TOPIC = "topic"
    """A topic of ``topics.json``, by its name."""
    TOPIC_FIELD = "topic field"
    """``name=value`` of a topic, a value in JSON."""
    TOPIC_ATTRIBUTE = "topic attribute"
    """``name=value`` of a topic."""
    GROUP_FIELD = "group field"
    """``name=value`` of a group of ``subscriptionGroup.json``, a value in JSON."""
    GROUP_ATTRIBUTE = "group attribute"
    """``name=value`` of the attributes of a group."""
    RECORD_FLAG = "record flag"
    """Bits of SYSFLAG, in hexadecimal digits."""
    PROPERTY = "property"
    """A property of a message, by its name."""


class Content(StrEnum):
    """The content that a file of a state must have."""

    ANY = "any"
    FILES = "files"
    """A directory with a file in it, at any depth."""
    ROCKSDB = "rocksdb"
    """A RocksDB with a table or with a write-ahead log that is not empty."""
    MEMBERS = "members"
    """JSON in which one of ``State.members`` is not empty."""
    COMPARED = "compared"
    """Content that other files name: ``loss_check`` finds the state, not the survey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state of the table."""

    name: str
    """A stable word for errors, findings and documents."""
    subject: Subject
    pattern: str
    """A regular expression for the whole path, name or ``name=value``."""
    shown: str
    """The same for people."""
    versions: str = "4.9, 5.x"
    holds: str
    verdict: Verdict
    action: str
    """The work of mqstore (read), the way to convert the state (refused), or the lack (named)."""
    content: Content = Content.ANY
    members: tuple[str, ...] = ()

    def matches(self, text: str) -> bool:
        """Whether a path, name or attribute is of this state."""
        return re.fullmatch(self.pattern, text) is not None


def state(
    subject: Subject,
    name: str,
    shown: str,
    holds: str,
    action: str = "continued",
    *,
    pattern: str = "",
    **more: object,
) -> State:
    """Make a row; without ``pattern`` the shown words are the names, joined by commas."""
    options: dict[str, object] = {"verdict": Verdict.READ, **more}
    return State(
        name=name,
        subject=subject,
        pattern=pattern or "|".join(re.escape(each) for each in shown.split(", ")),
        shown=shown,
        holds=holds,
        action=action,
        **options,  # type: ignore[arg-type] # fields of State
    )
