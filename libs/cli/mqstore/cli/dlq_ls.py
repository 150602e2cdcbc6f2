"""``mqstore dlq ls``: prints the dead letters of a group."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from mqstore.cli import dlq_options as options
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.service_access import (
    Access,
    AsJson,
    Ca,
    QueryUrl,
    Shard,
    Token,
    TokenFile,
    in_json,
    print_json,
    run_with_client,
)
from mqstore.client import QUERY_URL, Client, DeadLetter, DeadLetterFilter, format_time

LIMIT: Final = 100


def ls(
    group: options.Group,
    topic: options.SourceTopic = None,
    key: options.Key = None,
    tag: options.Tag = None,
    reason: options.Reason = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of dead letters.")] = LIMIT,
    shard: Shard = None,
    query_url: QueryUrl = QUERY_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Print the dead letters of a group that were not resent or purged, the newest first.

    In JSON, each with its properties and body on a line. Exit code 0: printed; 1: a shard is
    missing or a dead letter is damaged; 2: refused; 3: the query service does not answer.
    """

    def print_letters(client: Client) -> int:
        """Print the dead letters; returns the exit code."""
        wanted = options.filter_of(topic, key, tag, reason, since, until)
        return _print(client, group, wanted, limit, in_lines=in_json(as_json))

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, print_letters, query_url=query_url))


def _print(
    client: Client,
    group: str,
    wanted: DeadLetterFilter | None,
    limit: int,
    *,
    in_lines: bool,
) -> int:
    code, left = EXIT_OK, limit
    cursor: str | None = None
    while left:
        page = client.dead_letters(group, wanted, limit=min(left, LIMIT), cursor=cursor)
        for each in page.messages:
            if in_lines:
                print_json(each)
            else:
                print(_row(each))
        for damaged in page.unreadable:
            where = f"offset {damaged.physical_offset}"
            print(f"mqstore: {where} cannot be read: {damaged.detail}", file=sys.stderr)
        code = max(code, options.print_missing(page.shards), int(bool(page.unreadable)))
        left -= min(left, len(page.messages))
        cursor = page.next
        if cursor is None:
            return code
    print(f"mqstore: there may be more than these {limit}; raise --limit", file=sys.stderr)
    return code


def _row(letter: DeadLetter) -> str:
    keys = " ".join(letter.keys) or letter.uniq_key or "-"
    return (
        f"{format_time(letter.dead_since)}  {letter.offset_msg_id}  "
        f"{letter.source_topic or '-':<24} {letter.delivery_attempts:>3}x  "
        f"{letter.tags or '-':<12} {keys:<24} {letter.reason or ''}"
    ).rstrip()
