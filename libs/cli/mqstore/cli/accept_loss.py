"""``mqstore store accept-loss``: let a store go on without durable data that is gone; see
``accept_loss_lines``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import StoreDirectory
from mqstore.cli.session import Form


def accept_loss(
    directory: StoreDirectory,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is lost and what would be written.")
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="LOSS", help="The loss to accept, as --dry-run has named it."),
    ] = None,
    segment_size: Annotated[
        int | None,
        typer.Option(
            min=4096,
            max=2**31 - 1,
            metavar="BYTES",
            help="mappedFileSizeCommitLog of a broker whose log is gone; else the files show it.",
        ),
    ] = None,
    commit_log: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            readable=False,
            help="The log's directory, for a broker's store with one outside of the directory.",
        ),
    ] = None,
    output: Form = None,
) -> None:
    """Accept that durable data of a store is gone, so that messages are taken again.

    First put the log's files back if you can: mount its volume, restore a copy. A store-writer that
    serves the store read-only may go on running; it opens the store within seconds. Exit code 0:
    accepted, or shown; 2: refused, with why.

    Examples:

    \b
        mqstore store accept-loss /data/store --dry-run
        mqstore store accept-loss /data/store --confirm LOSS
    """
    require("store")
    from mqstore.cli import accept_loss_lines  # slow, and not needed for help

    if dry_run == (confirm is not None):
        raise typer.BadParameter("give either --dry-run or --confirm LOSS")
    log = None if commit_log is None else commit_log.absolute()
    found = accept_loss_lines.StoreOnDisk(directory.absolute(), segment_size, log)
    raise typer.Exit(accept_loss_lines.run(found, confirm, output))
