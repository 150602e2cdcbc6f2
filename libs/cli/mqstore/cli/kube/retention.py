"""``kubectl mqstore retention``: prints which segments retention will delete, when and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import SomeShard, chosen_shards, exit_of_output
from mqstore.cli.kube.release import Release, Shard
from mqstore.cli.output import Column, Output, document, size
from mqstore.cli.session import Form
from mqstore.cli.store_state import SEGMENTS
from mqstore.cli.times import show_time
from mqstore.client import Retention

_SEGMENTS: Final = (Column("shard", lambda each: each["shard"], right=True), *SEGMENTS)


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("retention")(retention)


def retention(context: typer.Context, shard: SomeShard = None, output: Form = None) -> None:
    """Print which segments retention will delete, when and why. This command deletes nothing.

    Exit code 0: printed; 2: refused; 3: a shard does not answer.

    Examples:

    \b
        kubectl mqstore retention
        kubectl mqstore retention --shard 1 -o csv
    """
    raise exit_of_output(context, output, lambda release, out: _print_all(release, shard, out))


def _print_all(release: Release, number: int | None, out: Output) -> int:
    plans = _plans(release, number)
    if out.is_document:
        out.items(({"shard": shard.number, **document(plan)} for shard, plan in plans), ())
    elif out.is_table:
        for shard, plan in plans:
            _print(shard, plan, out)
    else:
        rows = ({"shard": shard.number, **each} for shard, plan in plans for each in plan.segments)
        out.items(rows, _SEGMENTS)
    return EXIT_OK


def _plans(release: Release, number: int | None) -> Iterator[tuple[Shard, Retention]]:
    for shard in chosen_shards(release, number):
        with release.client(shard) as client:
            yield shard, client.retention()


def _print(shard: Shard, found: Retention, out: Output) -> None:
    out.line(
        f"{shard.name}: {size(found.bytes_to_go)} would be deleted now; hour of deletion at"
        f" {show_time(found.next_hour_ms)}; messages are"
        f" {'refused' if found.puts_refused else 'accepted'}"
    )
    if found.puts_refused_why is not None:
        out.line(f"  refused: {found.puts_refused_why}")
    out.items(found.segments, SEGMENTS)
