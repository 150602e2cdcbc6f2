"""``mqstore dlq purge``: ends the listing of dead letters of a group."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli import dlq_options as options
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.service_access import (
    TIME_HELP,
    Access,
    AsJson,
    Ca,
    Shard,
    Token,
    TokenFile,
    WriterUrl,
    in_json,
    print_json,
    run_with_client,
)
from mqstore.client import WRITER_URL, Client, PurgedLetters, parse_time


def purge(
    group: options.Group,
    ids: options.Ids = None,
    topic: options.SourceTopic = None,
    key: options.Key = None,
    tag: options.Tag = None,
    reason: options.Reason = None,
    since: options.Since = None,
    until: options.Until = None,
    before: Annotated[
        str | None, typer.Option(help=f"Those dead before then, {TIME_HELP}.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Those in front of this queue offset of --shard.")
    ] = None,
    everything: options.All = False,
    dry_run: options.DryRun = False,
    shard: Shard = None,
    writer_url: WriterUrl = WRITER_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """End the listing of dead letters; their messages stay until they expire. Needs role admin.

    Select them by --id, --before, --offset, --all, or the options of `ls`. Exit code 0: purged; 1:
    one is unknown, or a shard is missing; 2: refused; 3: store-writer does not answer.
    """

    def purge_letters(client: Client) -> int:
        """Purge, and print the effect; returns the exit code."""
        wanted = options.filter_of(topic, key, tag, reason, since, until)
        selections = ids or None, wanted, before, offset
        if sum(each is not None for each in selections) + everything != 1:
            raise ValueError(
                "give one of --id, --before, --offset, --all, and options that select dead letters"
            )
        code, purged, cursor = EXIT_OK, 0, None
        while True:
            done = client.purge_dead_letters(
                group,
                ids or wanted,
                before_ms=None if before is None else parse_time(before),
                offset=offset,
                dry_run=dry_run,
                cursor=cursor,
            )
            purged, cursor = purged + done.purged, done.next
            code = max(code, _print(done, in_lines=in_json(as_json)))
            if cursor is None:
                break
        if not in_json(as_json):
            print(f"{'would be purged' if dry_run else 'purged'}: {purged}")
        return code

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, purge_letters, writer_url=writer_url))


def _print(done: PurgedLetters, *, in_lines: bool) -> int:
    if in_lines:
        print_json(done)
        code = int(any(each.status not in options.GOOD for each in done.results))
    else:
        code = options.print_results(done.results, in_lines=False)
    return max(code, options.print_missing(done.shards))
