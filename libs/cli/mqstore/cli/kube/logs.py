"""``kubectl mqstore logs``: of the right container."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mqstore.cli.kube.commands import OneShard, ended, shard_of
from mqstore.cli.kube.release import QUERY, WRITER


class Container(StrEnum):
    """Of a shard's pod."""

    WRITER = WRITER
    QUERY = QUERY


def add(app: typer.Typer) -> None:
    app.command("logs")(logs)


def logs(
    context: typer.Context,
    shard: OneShard,
    container: Annotated[
        Container, typer.Option("--container", "-c", help="Which of its services.")
    ] = Container.WRITER,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the container before its last restart.")
    ] = False,
    tail: Annotated[int, typer.Option(help="Only so many of the last lines; -1 for all.")] = -1,
) -> None:
    """Show what a shard's service wrote. The exit code is kubectl's."""
    more = [f"--tail={tail}", *(["--follow"] if follow else []), *(["-p"] if previous else [])]
    raise ended(
        context,
        lambda release: release.kubectl.passed_on(
            "logs", shard_of(release, shard).name, "-c", container.value, *more
        ),
    )
