"""What the plugin's commands share: the release they were given, sizes, and how they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import typer

from mqstore.cli.ending import EXIT_FINE, end_of, refuse
from mqstore.cli.kube.kubectl import EXIT_REFUSED, EXIT_UNREACHABLE, Kubectl, KubeError
from mqstore.cli.kube.release import Release, Shard, find
from mqstore.client import ClientError, Unreachable

LOOK_S: Final = 0.5

Answer = TypeVar("Answer")

OneShard = Annotated[int, typer.Argument(help="The shard's number.", metavar="SHARD", min=0)]
SomeShard = Annotated[
    int | None, typer.Option("--shard", help="Only this one. [default: all]", min=0)
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen on the command line, before any command."""

    kubectl: Kubectl
    instance: str | None

    def release(self) -> Release:
        return find(self.kubectl, self.instance)


def ended(context: typer.Context, command: Callable[[Release], int]) -> typer.Exit:
    """To be raised: with the code of ``command``, 2 for what is refused, 3 where none answers."""
    chosen: Chosen = context.obj
    return typer.Exit(end_of(lambda: _code(chosen, command), refuse, unread=EXIT_FINE))


def _code(chosen: Chosen, command: Callable[[Release], int]) -> int:
    try:
        return command(chosen.release())
    except KubeError as error:
        refuse(str(error))
        return error.exit_code
    except Unreachable as error:
        refuse(f"the shard does not answer ({error})")
        return EXIT_UNREACHABLE
    except ClientError as error:
        refuse(str(error))
        return EXIT_REFUSED


def shard_of(release: Release, number: int) -> Shard:
    for shard in release.shards():
        if shard.number == number:
            return shard
    raise KubeError(f"no shard {number}; there are {release.replicas}, counted from 0")


def chosen_shards(release: Release, number: int | None) -> list[Shard]:
    return release.shards() if number is None else [shard_of(release, number)]


def awaited(look: Callable[[], Answer], most_s: float) -> Answer:
    """What ``look`` answers once that is true, or when the time is over; nothing tells of it."""
    deadline = time.monotonic() + most_s
    while not (answer := look()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return answer


def size(count: float) -> str:
    """``12.3 GiB``: bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
