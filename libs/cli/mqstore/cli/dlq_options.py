"""Options and output that the commands about dead letters share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from mqstore.cli.completion import complete_group, complete_topic
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, field_column
from mqstore.cli.times import TIME_HELP, parse_when

if TYPE_CHECKING:
    from mqstore.cli.session import Session
    from mqstore.client import DeadLetter, DeadLetterFilter, LetterResult

Group = Annotated[str, typer.Argument(help="Consumer group.", autocompletion=complete_group)]
Ids = Annotated[
    list[str] | None, typer.Option("--id", help="A dead letter, as `ls` prints it. Repeatable.")
]
SourceTopic = Annotated[
    str | None,
    typer.Option("--topic", help="Only of this source topic.", autocompletion=complete_topic),
]
Key = Annotated[
    str | None, typer.Option(help="Only with this unique key, key, or origin message id.")
]
Tag = Annotated[str | None, typer.Option(help="Only with this tag.")]
Reason = Annotated[str | None, typer.Option(help="Only with this text in the reason.")]
Since = Annotated[
    str | None, typer.Option("--from", help=f"Only dead since then, {TIME_HELP}.", metavar="TIME")
]
Until = Annotated[
    str | None, typer.Option("--until", help=f"Only dead until then, {TIME_HELP}.", metavar="TIME")
]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]

PAGE: Final = 100
"""Dead letters of one request."""
GOOD: Final = frozenset({"done", "settled"})
"""Statuses of a letter that is as requested."""
RESULTS: Final = (
    field_column("id", "id", width=32),
    field_column("status", "status", width=11),
    Column("topic", lambda each: each.topic or None, width=16),
    Column("result", lambda each: each.copy_id if each.topic else each.detail),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The options that select dead letters."""

    topic: SourceTopic = None
    key: Key = None
    tag: Tag = None
    reason: Reason = None
    since: Since = None
    until: Until = None

    def filter(self) -> DeadLetterFilter | None:
        """The filter of the given options; None without any. Raises ValueError for a wrong time."""
        from mqstore.client import DeadLetterFilter

        given = {
            "topic": self.topic,
            "key": self.key,
            "tag": self.tag,
            "reason": self.reason,
            "from": None if self.since is None else parse_when(self.since),
            "to": None if self.until is None else parse_when(self.until),
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return DeadLetterFilter.model_validate(chosen) if chosen else None


def selecting(function: Callable[..., int]) -> Callable[..., int]:
    """Give a function of a ``selection`` the options of a Selection in its place, for
    ``service_command``."""
    options = signature(Selection, eval_str=True).parameters.values()

    @wraps(function)
    def command(session: Session, **values: Any) -> int:
        chosen = {each.name: values.pop(each.name) for each in options}
        return function(session, selection=Selection(**chosen), **values)

    session, *own = signature(function, eval_str=True).parameters.values()
    named = [part for each in own for part in (options if each.name == "selection" else [each])]
    named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in named]
    command.__signature__ = Signature([session, *named])  # type: ignore[attr-defined]
    return command


class Listing:
    """The dead letters of a group, page by page. ``code`` is 1 if some may be missing."""

    def __init__(self, session: Session, group: str, wanted: DeadLetterFilter | None) -> None:
        self._session, self._group, self._wanted = session, group, wanted
        self.code = EXIT_OK

    def letters(
        self, count: int | None = None, order: Literal["newest", "oldest"] = "newest"
    ) -> Iterator[DeadLetter]:
        """Yield ``count`` dead letters, None: all."""
        cursor: str | None = None
        left = PAGE if count is None else count
        while left > 0:
            page = self._session.client.dead_letters(
                self._group, self._wanted, order=order, limit=min(left, PAGE), cursor=cursor
            )
            yield from page.messages
            for damaged in page.unreadable:
                self.code = EXIT_FINDINGS
                refuse(f"offset {damaged.physical_offset} cannot be read: {damaged.detail}")
            self.code = max(self.code, self._session.warn_of_missing(page.shards))
            if count is not None:
                left -= len(page.messages)
            cursor = page.next
            if cursor is None:
                return
        refuse(f"there may be more than these {count}; raise --limit")


class Results:
    """The results of letters, and the exit code: 1 if one is not as requested."""

    def __init__(self) -> None:
        self.code = EXIT_OK

    def each(self, results: Iterable[LetterResult]) -> Iterator[LetterResult]:
        """Yield results, and note their statuses."""
        for result in results:
            if result.status not in GOOD:
                self.code = EXIT_FINDINGS
            yield result
