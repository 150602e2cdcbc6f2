"""Options of the data source that select rows and columns; pushed filters select further."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mqstore.jobs.columns import TABLES
from mqstore.jobs.errors import WrongUsage
from mqstore.jobs.log import at_path, at_url
from mqstore.jobs.log.at_url import LogAtUrl
from mqstore.jobs.log.ranges import RANGE_MIN, RANGE_SIZE
from mqstore.jobs.log.source import Snapshot

OFFSET_MAX: Final = 2**63 - 1
MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NAMES: Final = {
    name.lower(): name
    for name in (
        *("path", "table", "columns", "topic", "since", "until", "fromOffset", "toOffset"),
        *("partitionBytes", "pushdown", "tokenFile", "ca"),
    )
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read: place, table, columns and filters. Raises WrongUsage if invalid."""

    where: str
    """A store directory, or the http(s) address of a shard's query service."""
    table: str = "messages"
    columns: tuple[str, ...] | None = None
    topics: frozenset[str] | None = None
    since_ms: int = -OFFSET_MAX - 1
    """Earliest store time of a message, in milliseconds since 1970, ..."""
    until_ms: int = OFFSET_MAX
    """... and the time that it must be before."""
    low: int = 0
    """Lowest physical offset of a record, ..."""
    high: int = OFFSET_MAX
    """... and the offset that it must be below."""
    partition_bytes: int = RANGE_SIZE
    pushdown: bool = False
    """Whether the reader accepts filters from Spark."""
    token_file: str | None = None
    ca: str | None = None

    def __post_init__(self) -> None:
        if self.table not in TABLES:
            raise WrongUsage(f"table {self.table!r} is none of {', '.join(TABLES)}")
        if self.partition_bytes < RANGE_MIN:
            raise WrongUsage(f"partitionBytes {self.partition_bytes}: at least {RANGE_MIN}")
        if self.is_url and (urlsplit(self.where).username or urlsplit(self.where).password):
            raise WrongUsage("Spark shows an address with its credentials; use tokenFile")

    @property
    def is_url(self) -> bool:
        """Whether the place is the address of a service."""
        return self.where.startswith(("http://", "https://"))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse Spark's options, whose names may have any case. Raises WrongUsage."""
        given = {_known(name): text for name, text in options.items()}
        if not given.get("path"):
            raise WrongUsage("nothing to read: load a store directory or a shard's address")
        return cls(
            where=given["path"],
            table=given.get("table", "messages"),
            columns=_words(given.get("columns")),
            topics=_topics(given.get("topic")),
            since_ms=time_ms(given.get("since"), -OFFSET_MAX - 1),
            until_ms=time_ms(given.get("until"), OFFSET_MAX),
            low=_number("fromOffset", given, 0),
            high=_number("toOffset", given, OFFSET_MAX),
            partition_bytes=_number("partitionBytes", given, RANGE_SIZE),
            pushdown=_flag("pushdown", given),
            token_file=given.get("tokenFile"),
            ca=given.get("ca"),
        )

    def look(self) -> Snapshot:
        """Take a snapshot of the log. Raises JobError."""
        if self.is_url:
            return at_url.look(LogAtUrl(self.where, self.token_file, self.ca))
        return at_path.look(Path(self.where.removeprefix("file:")))

    def of_topics(self, names: Iterable[str]) -> ReadOptions:
        """These options, restricted to some topics."""
        wanted = frozenset(names)
        return replace(self, topics=wanted if self.topics is None else self.topics & wanted)

    def within(
        self,
        *,
        low: int = 0,
        high: int = OFFSET_MAX,
        since_ms: int = -OFFSET_MAX - 1,
        until_ms: int = OFFSET_MAX,
    ) -> ReadOptions:
        """These options, restricted to a range of physical offsets and store times."""
        return replace(
            self,
            low=max(self.low, low),
            high=min(self.high, high),
            since_ms=max(self.since_ms, since_ms),
            until_ms=min(self.until_ms, until_ms),
        )


def time_ms(when: str | int | datetime | None, otherwise: int) -> int:
    """Milliseconds since 1970 of a time: such a number, or a date and time with its zone."""
    if when is None:
        return otherwise
    try:
        if isinstance(when, int) or (isinstance(when, str) and when.lstrip("-").isdigit()):
            return int(when)
        time = datetime.fromisoformat(when) if isinstance(when, str) else when
    except ValueError as error:
        raise WrongUsage(f"time {when!r}: write 2026-11-22T08:00:00Z or milliseconds") from error
    if time.tzinfo is None:
        raise WrongUsage(f"time {when} has no zone; write e.g. 2026-11-22T08:00:00Z")
    return (time - _EPOCH) // MILLISECOND


def _known(name: str) -> str:
    known = _NAMES.get(name.lower())
    if known is not None:
        return known
    if name.lower() == "token":
        raise WrongUsage("Spark shows its options to every user: give the token by tokenFile")
    raise WrongUsage(f"no option {name!r}; there are {', '.join(_NAMES.values())}")


def _number(name: str, given: Mapping[str, str], otherwise: int) -> int:
    text = given.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit()):
        raise WrongUsage(f"{name} {text!r} is no number of bytes")
    return min(int(text), OFFSET_MAX)


def _flag(name: str, given: Mapping[str, str]) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise WrongUsage(f"{name} {text!r} is neither true nor false")
    return text == "true"


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _topics(text: str | None) -> frozenset[str] | None:
    words = _words(text)
    return None if words is None else frozenset(words)
