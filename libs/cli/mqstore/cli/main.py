"""The ``mqstore`` command. ``command_table`` has the modules of its commands."""

from __future__ import annotations

import atexit
import gc
from typing import Annotated, Final

import typer

from mqstore.cli.command_table import COMMANDS
from mqstore.cli.lazy_group import make_app
from mqstore.cli.mqadmin_names import MQADMIN

ALLOCATIONS: Final = 20_000
"""Allocations between two collections of garbage. Imports leave no garbage, and Python's 700 cost a
command 15 ms."""

app = make_app(
    "mqstore",
    "RocketMQ's message store: run, use, inspect and maintain it.",
    COMMANDS,
    foreign=MQADMIN,
    epilog="Exit codes: 0 done; 1 done, and something was found; 2 refused; 3 a service does not"
    " reply. Examples: mqstore COMMAND --help.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # slow to import

        print(f"mqstore {version('mqstore-cli')}")
        raise typer.Exit


@app.callback()
def _mqstore(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line as a process of its own."""
    gc.set_threshold(ALLOCATIONS)
    atexit.register(gc.freeze)  # the last collection, of all modules, takes 20 ms and frees nothing
    app()


if __name__ == "__main__":
    main()
