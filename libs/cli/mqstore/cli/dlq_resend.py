"""``mqstore dlq resend``: resends dead letters of a group."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli import dlq_options as options
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.service_access import (
    Access,
    AsJson,
    Ca,
    Shard,
    Token,
    TokenFile,
    WriterUrl,
    in_json,
    run_with_client,
)
from mqstore.client import WRITER_URL, Client, DeadLetterFilter, ResendTarget


def resend(
    group: options.Group,
    ids: options.Ids = None,
    topic: options.SourceTopic = None,
    key: options.Key = None,
    tag: options.Tag = None,
    reason: options.Reason = None,
    since: options.Since = None,
    until: options.Until = None,
    everything: options.All = False,
    to: Annotated[
        ResendTarget, typer.Option(help="To the source topic, or to this group only.")
    ] = ResendTarget.TOPIC,
    dry_run: options.DryRun = False,
    shard: Shard = None,
    writer_url: WriterUrl = WRITER_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Resend dead letters of a group: those named, those that match, or all. Needs role admin.

    May be repeated: nothing is resent twice. Exit code 0: resent, or resent before; 1: one was not
    resent, or a shard is missing; 2: refused; 3: store-writer does not answer.
    """

    def resend_letters(client: Client) -> int:
        """Resend, and print each result; returns the exit code."""
        wanted = options.filter_of(topic, key, tag, reason, since, until)
        if bool(ids) + (wanted is not None) + everything != 1:
            raise ValueError("give --id, or options that select dead letters, or --all")
        return _resend(client, group, ids or wanted, to, dry_run=dry_run, in_lines=in_json(as_json))

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, resend_letters, writer_url=writer_url))


def _resend(
    client: Client,
    group: str,
    wanted: DeadLetterFilter | list[str] | None,
    to: ResendTarget,
    *,
    dry_run: bool,
    in_lines: bool,
) -> int:
    code = EXIT_OK
    cursor: str | None = None
    while True:
        done = client.resend_dead_letters(group, wanted, to=to, dry_run=dry_run, cursor=cursor)
        printed = options.print_results(done.results, in_lines=in_lines)
        code = max(code, printed, options.print_missing(done.shards))
        cursor = done.next
        if cursor is None:
            return code
