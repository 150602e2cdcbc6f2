"""``mqstore dlq purge``: ends the listing of dead letters of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mqstore.cli import dlq_options as options
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.session import DryRun, Session, Yes, service_command
from mqstore.cli.times import TIME_HELP, parse_when

if TYPE_CHECKING:
    from mqstore.client import PurgedLetters


@service_command
@options.selecting
def purge(
    session: Session,
    group: options.Group,
    ids: options.Ids = None,
    selection: options.Selection = options.Selection(),
    before: Annotated[
        str | None, typer.Option(help=f"Those dead before then, {TIME_HELP}.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Those in front of this queue offset of --shard.")
    ] = None,
    everything: options.All = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """End the listing of dead letters; their messages stay until they expire. Needs role admin.

    Select them by --id, --before, --offset, --all, or the options of `ls`. Exit code 0: purged; 1:
    one is unknown, or a shard is missing; 2: refused; 3: store-writer does not answer.

    Examples:

    \b
        mqstore dlq purge billing --before "30d ago" --dry-run
        mqstore dlq purge billing --all --yes
    """
    wanted = selection.filter()
    selections = ids or None, wanted, before, offset
    if sum(each is not None for each in selections) + everything != 1:
        raise ValueError(
            "give one of --id, --before, --offset, --all, and options that select dead letters"
        )
    if not dry_run:
        session.confirm(f"End the listing of these dead letters of {group}?", yes=yes)
    before_ms = None if before is None else parse_when(before)
    code, purged, cursor = EXIT_OK, 0, None
    while True:
        done = session.client.purge_dead_letters(
            group,
            ids or wanted,
            before_ms=before_ms,
            offset=offset,
            dry_run=dry_run,
            cursor=cursor,
        )
        purged, cursor = purged + done.purged, done.next
        code = max(code, _print(session, done), session.warn_of_missing(done.shards))
        if cursor is None:
            break
    if session.out.is_table:
        session.out.line(f"{'would be purged' if dry_run else 'purged'}: {purged}")
    return code


def _print(session: Session, done: PurgedLetters) -> int:
    results = options.Results()
    found = list(results.each(done.results))
    if session.out.is_document:
        session.out.items([done], options.RESULTS)
    elif found:
        session.out.rows(found, options.RESULTS)
    return results.code
