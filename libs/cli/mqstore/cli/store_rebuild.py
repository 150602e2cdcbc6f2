"""``mqstore store rebuild``: make queues and index again from the log; see ``repair_lines``."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.options import Act, HashSlots, IndexNum, PlanOnly, StoreDirectory
from mqstore.cli.session import Form


def rebuild(
    directory: StoreDirectory,
    queues: Annotated[bool, typer.Option("--queues", help="Make the queues again.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Make the index of keys again.")] = False,
    yes: Act = False,
    dry_run: PlanOnly = False,
    output: Form = None,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Make queues and index of a store again from its log; without --queues and --index both.

    For a store that no process has open. It is a `store repair` that makes the chosen parts again
    also where nothing is found. Prints the plan and changes nothing; with --yes it takes the
    store's lock, rebuilds, and verifies the store. Every message keeps its queue offset. Old queue
    entries are kept in mqstore/quarantine. After kill -9 or a crash, the store opens, and the same
    command ends the rebuild.

    Exit code 0: planned, or rebuilt without a lost message; 1: the log is damaged, so messages are
    lost, or findings are left; 2: refused.

    Examples:

    \b
        mqstore store rebuild /data/store
        mqstore store rebuild /data/store --index --yes
        mqstore store rebuild /data/store --queues --dry-run -o json
    """
    require("store")
    from mqstore.cli import repair_lines  # slow, and not needed for help

    chosen = {"queues": queues, "index": index}
    parts = tuple(name for name in repair_lines.PARTS if chosen[name]) or tuple(repair_lines.PARTS)
    choice = repair_lines.Choice(directory, acts=yes and not dry_run, parts=parts)
    raise typer.Exit(repair_lines.run(choice, output, hash_slots, index_num))
