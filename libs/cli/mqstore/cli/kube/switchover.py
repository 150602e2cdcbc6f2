"""``kubectl mqstore switchover``: hands the lead of a shard over to another replica."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import OneShard, chosen_shards, exit_of
from mqstore.cli.kube.release import Release
from mqstore.cli.session import DryRun


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("switchover")(switchover)


def switchover(
    context: typer.Context,
    shard: OneShard,
    to: Annotated[
        str | None, typer.Option(help="Pod that is to lead. [default: the one that has most]")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Hand the lead of a shard over to another replica that is in sync.

    Producers are refused for less than a second, and retry. Exit code 0: the other replica leads;
    2: refused; 3: the leader does not answer.

    Examples:

    \b
        kubectl mqstore switchover 0 --dry-run
        kubectl mqstore switchover 0 --to shop-mqstore-shard-0-1
    """
    raise exit_of(context, lambda release: _hand_over(release, shard, to, dry_run=dry_run))


def _hand_over(release: Release, number: int, to: str | None, *, dry_run: bool) -> int:
    (shard,) = chosen_shards(release, number)
    if dry_run:
        print(f"shard {number}: {shard.name} would hand over to {to or 'the one that has most'}")
        return EXIT_OK
    with release.client(shard) as client:
        successor = client.switch_over(to).successor
    print(f"shard {number}: {successor.partition('/')[0]} leads, in place of {shard.name}")
    return EXIT_OK
