"""``kubectl mqstore events``: prints the events that a shard's store-writer publishes."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from mqstore.cli.events import COLUMNS, event_document
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import OneShard, exit_of_output, shard_of
from mqstore.cli.kube.release import Release
from mqstore.cli.output import Output
from mqstore.cli.session import Form


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("events")(events)


def events(
    context: typer.Context,
    shard: OneShard = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events as they arrive, until Ctrl-C.")
    ] = False,
    output: Form = None,
) -> None:
    """Print the events of a shard since its store-writer started: at most the latest 1000.

    Exit code 0: printed; 2: refused; 3: the shard or the cluster does not answer.

    Examples:

    \b
        kubectl mqstore events 0
        kubectl mqstore events 0 --follow -o json
    """

    def run(release: Release, out: Output) -> int:
        with (
            release.client(shard_of(release, shard)) as client,
            contextlib.suppress(KeyboardInterrupt),
        ):
            found = client.events(seconds=None if follow else 0)
            out.rows(map(event_document, found), COLUMNS)
        return EXIT_OK

    raise exit_of_output(context, output, run)
