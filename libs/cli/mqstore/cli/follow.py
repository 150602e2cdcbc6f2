"""``mqstore message follow``: prints the messages of a topic as they arrive."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.service_access import (
    TIME_HELP,
    Access,
    AsJson,
    Ca,
    QueryUrl,
    Shard,
    Token,
    TokenFile,
    in_json,
    run_with_client,
)
from mqstore.client import QUERY_URL, Client, Message, TopicEvent, parse_time

BODY_SHOWN: Final = 60
"""Maximum number of characters of a body in a row of the table."""


def follow(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    since: Annotated[
        str | None,
        typer.Option("--from", help=f"First store timestamp, {TIME_HELP}.", metavar="TIME"),
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="Continue after this event.", metavar="ID")
    ] = None,
    tags: Annotated[str | None, typer.Option(help="Only messages with these tags: A || B.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only messages that match this SQL92 expression.")
    ] = None,
    shard: Shard = None,
    query_url: QueryUrl = QUERY_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Print the messages of a topic as they arrive, each once, until Ctrl-C.

    Exit code 0: stopped; 2: refused; 3: the query service does not answer, or is unavailable for a
    minute.
    """

    def print_messages(client: Client) -> int:
        """Print the messages; returns the exit code."""
        in_lines = in_json(as_json)
        from_ms = None if since is None else parse_time(since)
        with contextlib.suppress(KeyboardInterrupt):
            for event in client.follow(topic, after=after, from_ms=from_ms, tags=tags, sql=sql):
                print(_line(event) if in_lines else _row(event), flush=True)
        return EXIT_OK

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, print_messages, query_url=query_url))


def _line(event: TopicEvent) -> str:
    found = event.message or event.unreadable
    shown = None if found is None else found.model_dump(by_alias=True, exclude_none=True)
    kind = "unreadable" if event.message is None else "message"
    return json.dumps({"id": event.id, kind: shown}, separators=(",", ":"))


def _row(event: TopicEvent) -> str:
    found = event.message
    if found is None:
        damaged = event.unreadable
        return "" if damaged is None else f"offset {damaged.physical_offset}: {damaged.detail}"
    return message_row(found)


def message_row(found: Message) -> str:
    """A message in a row: store time, queue and offset, tags, and the beginning of its body."""
    at = datetime.fromtimestamp(found.store_timestamp / 1000, UTC)
    body = found.body if found.body is not None else f"({found.body_size} bytes)"
    return (
        f"{at.isoformat(timespec='milliseconds')[:-6]}Z  {found.queue_id:>3} "
        f"#{found.queue_offset:<10} {found.tags or '-':<12} {body[:BODY_SHOWN]!r}"
    )
