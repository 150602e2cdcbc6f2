"""``mqstore store dump``: everything that is in a store directory; see ``dump_lines``."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import HashSlots, IndexNum, StoreDirectory


def dump(
    directory: StoreDirectory,
    queries: Annotated[
        bool, typer.Option("--queries", help="Also look up every key through the index.")
    ] = False,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Lock the directory and write what recovery changes."),
    ] = False,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Print all messages, queues and index look-ups of a store as JSON lines.

    Opens and recovers a copy in memory: the directory is not changed. Exit code 0: whole;
    1: opened, but something was cut, dropped or is damaged; 2: refused.

    Examples:

    \b
        mqstore store dump /data/store | head
        mqstore store dump /data/store --queries > before.jsonl
    """
    require("store")
    from mqstore.cli import dump_lines  # slow, and not needed for help

    raise typer.Exit(dump_lines.run(directory, queries, in_place, hash_slots, index_num))
