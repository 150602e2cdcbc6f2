"""``mqstore store adopt``: makes a commit log that lies apart a root's own; see
``adopt_lines``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import StoreDirectory
from mqstore.cli.session import DryRun


def adopt(
    directory: StoreDirectory,
    commit_log: Annotated[
        Path | None,
        typer.Option(
            "--commit-log",
            help="The log's directory; needed for one outside of the store directory.",
            metavar="DIR",
            readable=False,
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Make a commit log outside its root (storePathCommitLog) the root's own.

    For a root that was moved, or that is a copy with a copy of the log. The store must be closed.
    Exit code 0: done, or nothing to do; 2: refused.

    Examples:

    \b
        mqstore store adopt /data/copy --commit-log /data/copy-of-log --dry-run
        mqstore store adopt /data/copy --commit-log /data/copy-of-log
    """
    require("store")
    from mqstore.cli import adopt_lines  # slow, and not needed for help

    raise typer.Exit(adopt_lines.run(directory.absolute(), commit_log, dry_run))
