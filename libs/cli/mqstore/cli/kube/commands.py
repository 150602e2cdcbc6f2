"""Options, exit codes, and polling that the commands of the plugin share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import typer

from mqstore.cli.exit_codes import EXIT_OK, refuse, run_command
from mqstore.cli.kube.kubectl import EXIT_REFUSED, EXIT_UNREACHABLE, Kubectl, KubeError
from mqstore.cli.kube.release import Release, Shard, find
from mqstore.cli.output import Format, Output
from mqstore.cli.session import choose_form
from mqstore.client import ClientError, Unreachable

LOOK_S: Final = 0.5

Answer = TypeVar("Answer")

OneShard = Annotated[int, typer.Argument(help="The shard's number.", metavar="SHARD", min=0)]
SomeShard = Annotated[
    int | None, typer.Option("--shard", help="Only this one. [default: all]", min=0)
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The cluster and the release that the options before the command select."""

    kubectl: Kubectl
    instance: str | None

    def release(self) -> Release:
        """The selected release. Raises KubeError if there is none, or more than one."""
        return find(self.kubectl, self.instance)


def exit_of(context: typer.Context, command: Callable[[Release], int]) -> typer.Exit:
    """Run ``command`` with the selected release; returns the Exit that the caller raises.

    Its code is that of ``command``; 2 if a request is refused, 3 if a service does not answer.
    """
    chosen: Chosen = context.obj
    return typer.Exit(run_command(lambda: _code(chosen, command), refuse, unread=EXIT_OK))


def exit_of_output(
    context: typer.Context, form: Format | None, command: Callable[[Release, Output], int]
) -> typer.Exit:
    """As ``exit_of``, for a command that prints results in the form that is selected."""
    return exit_of(context, lambda release: command(release, Output(choose_form(form))))


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
    """The shard with a number. Raises KubeError if the release has no such shard."""
    for shard in release.shards():
        if shard.number == number:
            return shard
    raise KubeError(f"no shard {number}; there are {len(release.numbers)}, counted from 0")


def chosen_shards(release: Release, number: int | None) -> list[Shard]:
    """The shard with ``number``, or all shards if it is None."""
    return release.shards() if number is None else [shard_of(release, number)]


def poll_until_true(look: Callable[[], Answer], most_s: float) -> Answer:
    """Call ``look`` every ``LOOK_S`` seconds until its result is true; returns the last result.

    Stops after ``most_s`` seconds.
    """
    deadline = time.monotonic() + most_s
    while not (answer := look()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return answer
