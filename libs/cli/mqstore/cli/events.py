"""``mqstore events``: prints the events of a store that store-writer publishes."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Annotated

import typer

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
from mqstore.client import WRITER_URL, Client, StoreEvent


def events(
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new events as they arrive, until Ctrl-C.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(help="Print only events after this one.", metavar="ID")
    ] = None,
    shard: Shard = None,
    writer_url: WriterUrl = WRITER_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Print the events of a store since store-writer started: at most the latest 1000.

    After a restart of store-writer the command continues; the first event is then a gap. Exit code
    0: printed; 2: refused; 3: store-writer does not answer, or is unavailable for a minute.
    """

    def print_events(client: Client) -> int:
        """Print the events; returns the exit code."""
        in_lines = in_json(as_json)
        with contextlib.suppress(KeyboardInterrupt):
            for event in client.events(after=after, seconds=None if follow else 0):
                print(_line(event) if in_lines else _row(event), flush=follow)
        return EXIT_OK

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, print_events, writer_url=writer_url))


def _line(event: StoreEvent) -> str:
    fields = {"id": event.id, "kind": event.kind, "atMs": event.at_ms, **event.data}
    return json.dumps(fields, separators=(",", ":"))


def _row(event: StoreEvent) -> str:
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    data = " ".join(f"{name}={value}" for name, value in event.data.items())
    return f"{at[:-6]}Z  {event.kind:<10} {data}"
