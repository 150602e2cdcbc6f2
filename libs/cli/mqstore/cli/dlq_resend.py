"""``mqstore dlq resend``: resends dead letters of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mqstore.cli import dlq_options as options
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.session import DryRun, Session, service_command

if TYPE_CHECKING:
    from mqstore.client import LetterResult


@service_command
@options.selecting
def resend(
    session: Session,
    group: options.Group,
    ids: options.Ids = None,
    selection: options.Selection = options.Selection(),
    everything: options.All = False,
    to: Annotated[
        Literal["topic", "group"],
        typer.Option(help="To the source topic, or to this group only."),
    ] = "topic",
    dry_run: DryRun = False,
) -> int:
    """Resend dead letters of a group: those named, those that match, or all. Needs role admin.

    May be repeated: nothing is resent twice. Exit code 0: resent, or resent before; 1: one was not
    resent, or a shard is missing; 2: refused; 3: store-writer does not answer.

    Examples:

    \b
        mqstore dlq resend billing --id 7F0000010000AEE00000000000000000
        mqstore dlq resend billing --from "1d ago" --dry-run
        mqstore dlq resend billing --all --to group
    """
    wanted = selection.filter()
    if bool(ids) + (wanted is not None) + everything != 1:
        raise ValueError("give --id, or options that select dead letters, or --all")
    results, code = options.Results(), EXIT_OK

    def resent() -> Iterator[LetterResult]:
        """Yield the results, page by page."""
        nonlocal code
        cursor: str | None = None
        while True:
            done = session.client.resend_dead_letters(
                group, ids or wanted, to=to, dry_run=dry_run, cursor=cursor
            )
            yield from results.each(done.results)
            code = max(code, session.warn_of_missing(done.shards))
            cursor = done.next
            if cursor is None:
                return

    session.out.rows(resent(), options.RESULTS)
    return max(code, results.code)
