"""``kubectl mqstore retention``: prints which segments retention will delete, when and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import AsJson, SomeShard, chosen_shards, exit_of, in_json
from mqstore.cli.kube.release import Release, Shard
from mqstore.cli.output import size
from mqstore.client import Retention


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("retention")(retention)


def retention(context: typer.Context, shard: SomeShard = None, as_json: AsJson = None) -> None:
    """Print which segments retention will delete, when and why. This command deletes nothing.

    Exit code 0: printed; 2: refused; 3: a shard does not answer.
    """
    raise exit_of(context, lambda release: _print_all(release, shard, in_lines=in_json(as_json)))


def _print_all(release: Release, number: int | None, *, in_lines: bool) -> int:
    for shard in chosen_shards(release, number):
        with release.client(shard) as client:
            found = client.retention()
        if in_lines:
            document = found.model_dump(by_alias=True)
            print(json.dumps({"shard": shard.number, **document}))
        else:
            _print(shard, found)
    return EXIT_OK


def _print(shard: Shard, found: Retention) -> None:
    print(
        f"{shard.name}: {size(found.bytes_to_go)} would go now; hour of deletion at "
        f"{_time(found.next_hour_ms)}; messages are {'refused' if found.puts_refused else 'taken'}"
    )
    if found.puts_refused_why is not None:
        print(f"  refused: {found.puts_refused_why}")
    print(f"  {'SEGMENT':<20} {'SIZE':>9} {'EXPIRES':<20} {'NOT BEFORE':<20} WHY")
    for segment in found.segments:
        held = f" by {', '.join(segment['heldBy'])}" if segment["heldBy"] else ""
        print(
            f"  {segment['name']:<20} {size(segment['size']):>9} {_time(segment['expiresMs']):<20} "
            f"{_time(segment['notBeforeMs']):<20} {segment['why']}{held}"
        )


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
