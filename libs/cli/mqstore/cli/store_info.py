"""``mqstore store info``: the overview of a store directory; see ``info_lines``."""

from __future__ import annotations

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import HashSlots, IndexNum, StoreDirectory
from mqstore.cli.session import Form


def info(
    directory: StoreDirectory,
    output: Form = None,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Show a store directory on one screen: identity, bounds, counts, and how it was left.

    Only reads, also beside a running writer, and reads of the log what a recovery would. Exit code
    0: shown; 1: shown, and an opening would be refused or read-only, or a file cannot be read; 2:
    refused.

    Examples:

    \b
        mqstore store info /data/store
        mqstore store info /data/store -o json | jq .log
    """
    require("store")
    from mqstore.cli import info_lines  # slow, and not needed for help

    raise typer.Exit(info_lines.run(directory, output, hash_slots, index_num))
