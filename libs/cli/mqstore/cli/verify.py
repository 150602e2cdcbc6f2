"""``mqstore store verify``: every check of a store directory that we know; see ``verify_lines``."""

from __future__ import annotations

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import HashSlots, IndexNum, StoreDirectory
from mqstore.cli.session import Form


def verify(
    directory: StoreDirectory,
    output: Form = None,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Check a store directory without changing it; say what a real broker would do with it.

    Exit code 0: all is well (notes may be printed); 1: something was found; 2: refused.

    Examples:

    \b
        mqstore store verify /data/store
        mqstore store verify /data/store -o json
    """
    require("store")
    from mqstore.cli import verify_lines  # slow, and not needed for help

    raise typer.Exit(verify_lines.run(directory, output, hash_slots, index_num))
