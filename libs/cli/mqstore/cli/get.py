"""``mqstore message get``: prints messages by their ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.follow import message_row
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
from mqstore.client import QUERY_URL, Client, MessageResult

LOT: Final = 100
"""Ids of one request."""
FROM_STDIN: Final = "-"


def get(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Offset message ids; with --topic unique keys. `-` reads them from stdin, one a"
            " line.",
        ),
    ],
    topic: Annotated[str | None, typer.Option(help="Topic of the unique keys.")] = None,
    shard: Shard = None,
    query_url: QueryUrl = QUERY_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Print messages by their ids, in the order of the ids.

    Exit code 0: printed; 1: an id has no message, whose problem is printed; 2: refused; 3: the
    query service does not answer.
    """

    def print_messages(client: Client) -> int:
        """Print the messages; returns the exit code."""
        code, wanted = EXIT_OK, _each(ids)
        while lot := list(islice(wanted, LOT)):
            for result in _results(client, lot, topic):
                code = max(code, _print(result, in_lines=in_json(as_json)))
        return code

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, print_messages, query_url=query_url))


def _each(ids: Sequence[str]) -> Iterator[str]:
    for given in ids:
        if given == FROM_STDIN:
            yield from filter(None, map(str.strip, sys.stdin))
        else:
            yield given


def _results(client: Client, ids: Sequence[str], topic: str | None) -> Iterator[MessageResult]:
    while ids:
        found = client.messages_by_id(ids, topic=topic)
        yield from found.results
        ids = found.remaining


def _print(result: MessageResult, *, in_lines: bool) -> int:
    if in_lines:
        print_json(result)
    elif result.message is not None:
        print(f"{result.id}  {result.message.topic}  {message_row(result.message)}")
    elif result.problem is not None:
        print(f"mqstore: {result.id}: {result.problem.detail}", file=sys.stderr)
    return EXIT_OK if result.problem is None else EXIT_FINDINGS
