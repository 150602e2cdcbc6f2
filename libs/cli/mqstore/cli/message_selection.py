"""Options that select messages of a store or of a file: by topic, time and key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from mqstore.cli.times import TIME_HELP, parse_when

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic. Repeatable."),
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help=f"Only messages stored then or later, {TIME_HELP}."
    ),
]
UntilTime = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only messages stored before, as --from."),
]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", "-k", metavar="KEY", help="Only messages with this key. Repeatable."),
]


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected messages; None selects all."""

    topics: frozenset[str] | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    keys: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        topics: Sequence[str] | None,
        from_time: str | None,
        until_time: str | None,
        keys: Sequence[str] | None,
    ) -> Selection:
        """Parse options. Raises ValueError for text that is no time, and for an empty range."""
        from_ms = None if from_time is None else parse_when(from_time)
        until_ms = None if until_time is None else parse_when(until_time)
        if from_ms is not None and until_ms is not None and from_ms >= until_ms:
            raise ValueError(
                f"--from {from_time} is not before --until {until_time}; nothing is in between"
            )
        return cls(
            frozenset(topics) if topics else None,
            from_ms,
            until_ms,
            frozenset(keys) if keys else None,
        )

    def has(self, topic: str, store_ms: int, keys: Collection[str]) -> bool:
        """Whether a message is selected; ``keys`` are its keys and its unique key."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.from_ms is None or store_ms >= self.from_ms)
            and (self.until_ms is None or store_ms < self.until_ms)
            and (self.keys is None or not self.keys.isdisjoint(keys))
        )

    def __str__(self) -> str:
        """The selection in one line; empty for all messages."""
        parts = [
            *(f"topic {each}" for each in sorted(self.topics or ())),
            *(f"key {each}" for each in sorted(self.keys or ())),
            *([] if self.from_ms is None else [f"from {self.from_ms}"]),
            *([] if self.until_ms is None else [f"until {self.until_ms}"]),
        ]
        return ", ".join(parts)
