"""``mqstore events``: what happens in a store, as store-writer tells it."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from mqstore.cli.asking import (
    Access,
    AsJson,
    Ca,
    Shard,
    Token,
    TokenFile,
    WriterUrl,
    asked,
    in_json,
)
from mqstore.cli.ending import EXIT_FINE
from mqstore.client import WRITER_URL, Client, StoreEvent


def events(
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes; Ctrl-C ends it.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(help="Only what came behind this event.", metavar="ID")
    ] = None,
    shard: Shard = None,
    writer_url: WriterUrl = WRITER_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Tell what happened in the store since store-writer began: the latest 1000 events.

    A store-writer that is started anew is followed on, its first event then is a gap. Exit code
    0: told; 2: refused; 3: store-writer does not answer, or is gone for a minute.
    """

    def ask(client: Client) -> int:
        in_lines = in_json(as_json)
        with contextlib.suppress(KeyboardInterrupt):
            for event in client.events(after=after, seconds=None if follow else 0):
                print(_line(event) if in_lines else _row(event), flush=follow)
        return EXIT_FINE

    raise typer.Exit(asked(Access(token, token_file, ca, shard), ask, writer_url=writer_url))


def _line(event: StoreEvent) -> str:
    told = {"id": event.id, "kind": event.kind, "atMs": event.at_ms, **event.data}
    return json.dumps(told, separators=(",", ":"))


def _row(event: StoreEvent) -> str:
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    data = " ".join(f"{name}={value}" for name, value in event.data.items())
    return f"{at[:-6]}Z  {event.kind:<10} {data}"
