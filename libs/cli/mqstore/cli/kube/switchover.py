"""``kubectl mqstore switchover``: hands the lead of a shard over to another replica."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import OneShard, chosen_shards, exit_of
from mqstore.cli.kube.release import Release


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("switchover")(switchover)


def switchover(
    context: typer.Context,
    shard: OneShard,
    to: Annotated[
        str | None, typer.Option(help="Pod that is to lead. [default: the one that has most]")
    ] = None,
) -> None:
    """Hand the lead of a shard over to another replica that is in sync.

    Producers are refused for less than a second, and retry. Exit code 0: the other replica leads;
    2: refused; 3: the leader does not answer.
    """
    raise exit_of(context, lambda release: _hand_over(release, shard, to))


def _hand_over(release: Release, number: int, to: str | None) -> int:
    (shard,) = chosen_shards(release, number)
    with release.client(shard) as client:
        successor = client.switch_over(to).successor
    print(f"shard {number}: {successor.partition('/')[0]} leads, in place of {shard.name}")
    return EXIT_OK
