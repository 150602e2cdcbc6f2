"""Options and output that the commands about dead letters share."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.service_access import TIME_HELP, print_json
from mqstore.client import DeadLetterFilter, LetterResult, LetterStatus, Shards, parse_time

Group = Annotated[str, typer.Argument(help="Consumer group.")]
Ids = Annotated[
    list[str] | None, typer.Option("--id", help="A dead letter, as `ls` prints it. Repeatable.")
]
SourceTopic = Annotated[str | None, typer.Option("--topic", help="Only of this source topic.")]
Key = Annotated[
    str | None, typer.Option(help="Only with this unique key, key, or origin message id.")
]
Tag = Annotated[str | None, typer.Option(help="Only with this tag.")]
Reason = Annotated[str | None, typer.Option(help="Only with this text in the reason.")]
Since = Annotated[
    str | None, typer.Option("--since", help=f"Only dead since then, {TIME_HELP}.", metavar="TIME")
]
Until = Annotated[
    str | None, typer.Option("--until", help=f"Only dead until then, {TIME_HELP}.", metavar="TIME")
]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]

GOOD: Final = (LetterStatus.DONE, LetterStatus.SETTLED)


def filter_of(
    topic: str | None,
    key: str | None,
    tag: str | None,
    reason: str | None,
    since: str | None,
    until: str | None,
) -> DeadLetterFilter | None:
    """The filter of the given options; None without any. Raises ValueError for a wrong time."""
    given = {
        "topic": topic,
        "key": key,
        "tag": tag,
        "reason": reason,
        "from": None if since is None else parse_time(since),
        "to": None if until is None else parse_time(until),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return DeadLetterFilter.model_validate(chosen) if chosen else None


def print_results(results: Iterable[LetterResult], *, in_lines: bool) -> int:
    """Print results; return the exit code: 1 if one is neither done nor was done before."""
    code = EXIT_OK
    for each in results:
        if each.status not in GOOD:
            code = EXIT_FINDINGS
        if in_lines:
            print_json(each)
        else:
            shown = f"{each.topic} {each.copy_id or ''}" if each.topic else each.detail
            print(f"{each.id}  {each.status:<11} {shown}".rstrip())
    return code


def print_missing(shards: Shards | None) -> int:
    """Print shards that did not reply to stderr; return the exit code: 1 with one."""
    if shards is None or not shards.missing:
        return EXIT_OK
    for number in shards.missing:
        why = shards.why[str(number)]
        print(f"mqstore: shard {number} is not included: {why}", file=sys.stderr)
    return EXIT_FINDINGS
