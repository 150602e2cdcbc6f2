"""``kubectl mqstore logs``: prints the log of a container of a shard."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import OneShard, exit_of, shard_of
from mqstore.cli.kube.release import QUERY, WRITER, Release


class Container(StrEnum):
    """The containers of a shard's pod."""

    WRITER = WRITER
    QUERY = QUERY


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("logs")(logs)


def logs(
    context: typer.Context,
    shard: OneShard,
    container: Annotated[
        Container, typer.Option("--container", "-c", help="Service of the shard.")
    ] = Container.WRITER,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines as they are written.")
    ] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Log of the container before its last restart.")
    ] = False,
    tail: Annotated[int, typer.Option(help="Number of last lines; -1 for all.")] = -1,
) -> None:
    """Print the log of a shard's service.

    Exit code 0: printed; 2: refused; 3: the cluster does not answer.

    Examples:

    \b
        kubectl mqstore logs 0 --tail 100
        kubectl mqstore logs 0 --container query --follow
    """
    more = [f"--tail={tail}", *(["--follow"] if follow else []), *(["-p"] if previous else [])]

    def run(release: Release) -> int:
        pod = shard_of(release, shard).name
        release.kubectl.print_output("logs", pod, "-c", container.value, *more)
        return EXIT_OK

    raise exit_of(context, run)
