"""``mqstore store repair``: mend a store's log before it is handed on; see ``repair_lines``."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import HashSlots, IndexNum, StoreDirectory


def repair(
    directory: StoreDirectory,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
    ] = False,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Repair damage in the log of a store at rest, so that a broker cuts nothing behind it.

    Reads the whole log. One changed word is put back where the block checksum proves what it was;
    a damaged record without such a proof gets a tombstone of its size, topic, queue and queue
    offset. The damaged bytes are kept in quarantine. Prints JSON lines. Exit code 0: nothing was
    damaged, or all of it was put back; 1: messages are lost, damage is left, or with --dry-run:
    something is damaged; 2: refused.

    Examples:

    \b
        mqstore store repair /data/store --dry-run
        mqstore store repair /data/store
    """
    require("store")
    from mqstore.cli import repair_lines  # slow, and not needed for help

    raise typer.Exit(repair_lines.run(directory, dry_run, hash_slots, index_num))
