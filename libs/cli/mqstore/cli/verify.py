"""``mqstore store verify``: every check of a store directory that we know; see ``verify_lines``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import HashSlots, IndexNum, StoreDirectory


def verify(
    directory: StoreDirectory,
    as_json: Annotated[
        bool | None,
        typer.Option("--json/--table", help="Default: columns on a terminal, else JSON lines."),
    ] = None,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Check a store directory without changing it; say what a real broker would do with it.

    Exit code 0: all is well (notes may be printed); 1: something was found; 2: refused.

    Examples:

    \b
        mqstore store verify /data/store
        mqstore store verify /data/store --json
    """
    require("store")
    from mqstore.cli import verify_lines  # slow, and not needed for help

    in_lines = not sys.stdout.isatty() if as_json is None else as_json
    raise typer.Exit(verify_lines.run(directory, in_lines, hash_slots, index_num))
